"""How many requests each operation sends to S3, as the documentation promises."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.data.tables import DataTable, rows
from tests.support.rest import RestClient
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import StartPennon
    from tests.support.s3 import S3Root, S3Server

PAGE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "s3.md"
_KINDS = ("PUT", "GET", "HEAD", "LIST", "DELETE")
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


@pytest.fixture
def on_s3(start_pennon: StartPennon, s3_root: S3Root) -> Iterator[RestClient]:
    """A server with one process, so that all requests meet the same caches."""
    options = json.dumps(s3_root.options)
    server = start_pennon(
        *("--root", s3_root.url, "--storage-options", options, "--processes", "1", "--no-discover-tables")
    )
    with RestClient(server.url) as client:
        yield client


def test_operations_send_the_documented_requests(on_s3: RestClient, s3_server: S3Server, s3_root: S3Root) -> None:
    table = DataTable(on_s3, "counted")
    operations: dict[str, Callable[[], object]] = {
        "CreateTable": lambda: table.create(rows(3)),
        "InsertIntoTable, the first by a process": lambda: table.put("insert", rows(3, 4)),
        "InsertIntoTable": lambda: table.put("insert", rows(4, 5)),
        "DescribeTable": lambda: table.do("describe"),
        "DescribeTable with details": lambda: table.do("describe", {"load_detailed_metadata": True}),
        "CountTableRows": table.count,
        "ListTableVersions": lambda: table.do("version/list"),
        "DropTable": lambda: table.do("drop"),
    }
    promised = documented()
    assert set(promised) == set(operations)
    s3_server.take_requests()
    for name, run in operations.items():
        run()
        expected = Counter(promised[name])
        seen: Counter[str] = Counter()

        def is_complete(seen: Counter[str] = seen, expected: Counter[str] = expected) -> bool:
            seen.update(kind_of(request) for request in s3_server.take_requests() if f"/{s3_root.bucket}" in request)
            return seen.total() >= expected.total()  # a staged manifest is removed after the response

        wait_until(is_complete, f"{name} sent {dict(seen)}")
        assert +seen == +expected, name
