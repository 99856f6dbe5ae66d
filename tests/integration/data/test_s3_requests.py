"""How many requests each operation sends to S3, as the documentation promises."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import lance_namespace
import pytest
from lance_namespace import LanceNamespace

from tests.integration.data.tables import DataTable, rows
from tests.support.rest import RestClient
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import StartPennon
    from tests.support.s3 import S3Root, S3Server

PAGE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "s3.md"
_KINDS = ("PUT", "GET", "HEAD", "LIST", "DELETE")
_EXACT = ("PUT", "LIST", "DELETE")
_ROW = re.compile(r"^\| (?P<operation>[^|]+?) \| (?P<counts>[\d |]+) \|$", re.MULTILINE)


def documented() -> dict[str, dict[str, int]]:
    """Return the table of the page: the requests of each operation, by kind."""
    found = {}
    for row in _ROW.finditer(PAGE.read_text()):
        counts = map(int, row["counts"].split("|"))
        found[row["operation"].replace("`", "")] = dict(zip(_KINDS, counts, strict=True))
    return found


def kind_of(request: str) -> str:
    if "list-type=2" in request:
        return "LIST"
    method = request.partition(" ")[0]
    return "DELETE" if method == "POST" and request.endswith("?delete") else method


def is_data_read(request: str) -> bool:
    """Tell whether a request reads rows: the number of those depends on the table."""
    return request.startswith("GET ") and "/data/" in request


@pytest.fixture
def on_s3(start_pennon: StartPennon, s3_root: S3Root) -> Iterator[RestClient]:
    """A server with one process, so that all requests meet the same caches, and no maintenance sends any."""
    options = json.dumps(s3_root.options)
    server = start_pennon(
        *(
            "--root",
            s3_root.url,
            "--storage-options",
            options,
            "--processes",
            "1",
            "--workers",
            "0",
            "--no-discover-tables",
        )
    )
    with RestClient(server.url) as client:
        yield client


class CountedCommits(LanceNamespace):
    """A client's namespace that forwards to a server, and keeps the requests that the server sends for a commit."""

    def __init__(self, http: RestClient, s3_server: S3Server) -> None:
        self._server = lance_namespace.connect("rest", {"uri": str(http.raw.base_url).rstrip("/")})
        self._s3_server = s3_server

    def namespace_id(self) -> str:
        return "counted"

    def describe_table(self, request: Any) -> Any:
        return self._server.describe_table(request)

    def list_table_versions(self, request: Any) -> Any:
        return self._server.list_table_versions(request)

    def describe_table_version(self, request: Any) -> Any:
        return self._server.describe_table_version(request)

    def create_table_version(self, request: Any) -> Any:
        self._s3_server.take_requests()
        return self._server.create_table_version(request)

    def append(self, table: DataTable, options: dict[str, str]) -> None:
        """Append rows as a client that writes to the bucket itself."""
        lance.write_dataset(
            rows(8, 9), namespace_client=self, table_id=table.names, mode="append", storage_options=options
        )


def operations_on(
    table: DataTable, commits: CountedCommits, options: dict[str, str]
) -> dict[str, Callable[[], object]]:
    """Return the documented operations in the order in which they are done."""
    upsert = {"on": "id", "when_matched_update_all": "true", "when_not_matched_insert_all": "true"}
    return {
        "CreateTable": lambda: table.create(rows(3)),
        "InsertIntoTable, the first by a process": lambda: table.put("insert", rows(3, 4)),
        "InsertIntoTable": lambda: table.put("insert", rows(4, 5)),
        "CreateTableVersion": lambda: commits.append(table, options),
        "DescribeTable": lambda: table.do("describe"),
        "DescribeTable with details": lambda: table.do("describe", {"load_detailed_metadata": True}),
        "CountTableRows": table.count,
        "QueryTable": lambda: table.query(k=2, columns={"column_names": ["id"]}),
        "ListTableVersions": lambda: table.do("version/list"),
        "CreateTableTag": lambda: table.do("tags/create", {"tag": "first", "version": 1}),
        "MergeInsertIntoTable": lambda: table.put("merge_insert", rows(4, 6), **upsert),
        "UpdateTable": lambda: table.do("update", {"predicate": "id = 1", "updates": [["word", "'blue'"]]}),
        "DeleteFromTable": lambda: table.do("delete", {"predicate": "id = 2"}),
        "RestoreTable": lambda: table.do("restore", {"version": 2}),
        "DropTable": lambda: table.do("drop"),
    }


def test_operations_send_the_documented_requests(on_s3: RestClient, s3_server: S3Server, s3_root: S3Root) -> None:
    table = DataTable(on_s3, "counted")
    operations = operations_on(table, CountedCommits(on_s3, s3_server), s3_root.options)
    promised = documented()
    assert set(promised) == set(operations)
    s3_server.take_requests()
    for name, run in operations.items():
        run()
        expected = Counter(promised[name])
        seen: Counter[str] = Counter()

        def is_complete(seen: Counter[str] = seen, expected: Counter[str] = expected) -> bool:
            sent = [request for request in s3_server.take_requests() if f"/{s3_root.bucket}" in request]
            seen.update(kind_of(request) for request in sent if not is_data_read(request))
            return all(seen[kind] >= expected[kind] for kind in _EXACT)  # some are sent after the response

        wait_until(is_complete, f"{name} sent {dict(seen)}")
        assert {kind: seen[kind] for kind in _EXACT} == {kind: expected[kind] for kind in _EXACT}, name
        # Lance opens versions on several threads, one of which may find what another has read.
        assert seen["GET"] + seen["HEAD"] <= expected["GET"] + expected["HEAD"], f"{name} sent {dict(seen)}"
