"""A disk that takes no more: everything that writes is refused for the time being, and nothing is half done."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from tests.integration.data.tables import DataTable, error, rows
from tests.support.rest import RestClient
from tests.support.server import PennonProcess

MERGE = {"on": "id", "when_matched_update_all": "true", "when_not_matched_insert_all": "true"}
WRITES: dict[str, Callable[[DataTable], httpx.Response]] = {
    "create": lambda t: DataTable(t.http, "new").send("create", rows(5)),
    "insert": lambda t: t.send("insert", rows(5)),
    "insert much": lambda t: t.send("insert", rows(200_000)),
    "overwrite": lambda t: t.send("insert", rows(5), mode="overwrite"),
    "merge": lambda t: t.send("merge_insert", rows(50, 150), **MERGE),
    "update": lambda t: t.ask("update", {"updates": [["word", "'x'"]]}),
    "delete": lambda t: t.ask("delete", {"predicate": "id > 3"}),
    "restore": lambda t: t.ask("restore", {"version": 1}),
    "add columns": lambda t: t.ask("add_columns", {"new_columns": [{"name": "n", "expression": "id + 1"}]}),
    "alter columns": lambda t: t.ask("alter_columns", {"alterations": [{"path": "id", "rename": "number"}]}),
    "drop columns": lambda t: t.ask("drop_columns", {"columns": ["word"]}),
    "schema metadata": lambda t: t.ask("schema_metadata/update", {"a": "b"}),
    "index": lambda t: t.ask("create_index", {"column": "id", "index_type": "BTREE"}),
    "tag": lambda t: t.ask("tags/create", {"tag": "new", "version": 1}),
    "move a tag": lambda t: t.ask("tags/update", {"tag": "kept", "version": 1}),
    "branch": lambda t: t.ask("branches/create", {"name": "new"}),
    "upload": lambda t: t.ask("multipart_write/create"),
    "clone": lambda t: DataTable(t.http, "new").ask(
        "clone", {"source_location": t.do("describe")["location"], "is_shallow": False}
    ),
    "declare": lambda t: DataTable(t.http, "new").ask("declare"),
    "rename": lambda t: t.ask("rename", {"new_table_name": "new"}),
    "drop": lambda t: t.ask("drop"),
    "deregister": lambda t: t.ask("deregister"),
    "create a namespace": lambda t: t.http.raw.post("/v1/namespace/new/create", json={}),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PennonProcess]:
    """A server that can be kept from writing."""
    with PennonProcess(tmp_path_factory.mktemp("full")) as running:
        yield running


@contextmanager
def full_disk(server: PennonProcess) -> Iterator[None]:
    """Let no file of a server grow inside the block."""
    soft, hard = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (soft, hard))


def state(table: DataTable) -> tuple[Any, ...]:
    """Return all that the server tells of its tables."""
    listed = [table.http.get(path) for path in ("/v1/table?delimiter=%24", "/v1/namespace/%24/list")]
    described = [table.do(verb) for verb in ("describe", "tags/list", "branches/list", "index/list", "version/list")]
    return listed, described, table.query().to_pydict(), table.files("_refs")


def test_what_cannot_be_written_is_refused_and_changes_nothing(server: PennonProcess) -> None:
    with RestClient(server.url) as http:
        table = DataTable(http, "t").create(rows(100))
        table.put("insert", rows(100, 110))
        table.do("tags/create", {"tag": "kept", "version": 1})
        before = state(table)
        with full_disk(server):
            for name, write in WRITES.items():
                assert error(write(table)) == (503, 17), name
                assert state(table) == before, name
        for name, write in WRITES.items():
            if name in {"insert", "merge", "tag", "branch", "add columns", "create a namespace", "clone"}:
                assert write(table).status_code == 200, name
