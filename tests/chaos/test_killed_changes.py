"""The server is killed in the middle of changes to the catalog: each happened whole, or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.chaos import faults
from tests.chaos.conftest import POSTGRESQL, SQLITE
from tests.chaos.crashing import Mortal
from tests.clients.lakes import ClientTable, rows
from tests.clients.staging import Stager
from tests.support.rest import RestClient
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.chaos.conftest import FindMortal

on_each_catalog = pytest.mark.parametrize("kind", [SQLITE, POSTGRESQL])


def make_tables(mortal: Mortal, space: str, *names: str) -> list[ClientTable]:
    """Make a namespace and tables of ten rows in it."""
    assert mortal.status(f"/v1/namespace/{space}/create") == 200
    tables = [mortal.table(space, name) for name in names]
    for table in tables:
        table.write(rows(10), "create")
    return tables


def tables_in(mortal: Mortal, space: str) -> list[str]:
    with RestClient(mortal.server.url) as http:
        return list(http.get(f"/v1/namespace/{space}/table/list")["tables"])


def trash_of(mortal: Mortal) -> list[Path]:
    return list((mortal.server.directory / ".pennon-trash").glob("*"))


@on_each_catalog
def test_a_table_is_still_there_when_its_drop_was_not_recorded(mortal: FindMortal, name: str, kind: str) -> None:
    server = mortal(kind)
    server.table(name).write(rows(10), "create")
    server.arm(faults.SCHEDULE)
    assert server.post(f"/v1/table/{name}/drop", {}) is None
    server.recover()
    server.table(name).check(version=1, ids=range(10))
    assert server.status(f"/v1/table/{name}/drop") == 200


@pytest.mark.parametrize(
    ("step", "root"),
    [
        (faults.REMOVE, True),
        (faults.REMOVE, False),
        (faults.REMOVE_TREE, True),
        (faults.DELETE_GARBAGE, True),
        (faults.ANSWER, True),
    ],
)
def test_a_dropped_table_is_gone_with_its_files_and_its_name_is_free(
    mortal: FindMortal, name: str, step: str, root: bool
) -> None:
    server = mortal(SQLITE)
    identifier = [name] if root else [name, "t"]
    if not root:
        assert server.status(f"/v1/namespace/{name}/create") == 200
    table = server.table(*identifier)
    table.write(rows(10), "create")
    location = table.location
    server.arm(step)
    assert server.post(f"/v1/table/{'$'.join(identifier)}/drop", {}) is None
    server.recover()
    assert server.status(f"/v1/table/{'$'.join(identifier)}/describe") == 404
    table = server.table(*identifier)
    table.write(rows(5), "create")
    table.check(version=1, ids=range(5))
    assert table.location != location
    if root:
        wait_until(lambda: Path(location).resolve() == Path(table.location).resolve(), "its name leads to the new one")
    else:
        wait_until(lambda: server.lake.is_empty(location), "the files of the dropped table are gone")
    wait_until(lambda: not trash_of(server), "nothing is left in the trash")
    table.check(version=1, ids=range(5))


def test_a_name_is_free_while_what_a_dead_process_was_removing_is_still_its_own(tmp_path: Path) -> None:
    server = Mortal(tmp_path, lease_millis=600_000)
    server.server.start()
    try:
        server.table("t").write(rows(10), "create")
        server.arm(faults.DELETE_GARBAGE)
        assert server.post("/v1/table/t/drop", {}) is None
        server.recover()
        server.table("t").write(rows(5), "create")
        server.table("t").check(version=1, ids=range(5))
    finally:
        server.close()


@on_each_catalog
@pytest.mark.parametrize(("step", "happened"), [(faults.INSERT, False), (faults.ANSWER, True)])
def test_a_table_is_declared_or_not(mortal: FindMortal, name: str, kind: str, step: str, happened: bool) -> None:
    server = mortal(kind)
    assert server.status(f"/v1/namespace/{name}/create") == 200
    server.arm(step)
    assert server.post(f"/v1/table/{name}$t/declare", {}) is None
    server.recover()
    assert tables_in(server, name) == (["t"] if happened else [])
    assert server.status(f"/v1/table/{name}$t/declare") == (409 if happened else 200)


@on_each_catalog
@pytest.mark.parametrize(("step", "happened"), [(faults.RENAME, False), (faults.ANSWER, True)])
def test_a_table_is_renamed_or_not(mortal: FindMortal, name: str, kind: str, step: str, happened: bool) -> None:
    server = mortal(kind)
    make_tables(server, name, "t")
    server.arm(step)
    assert server.post(f"/v1/table/{name}$t/rename", {"new_table_name": "renamed"}) is None
    server.recover()
    (found,) = tables_in(server, name)
    assert found == ("renamed" if happened else "t")
    table = server.table(name, found)
    table.check(version=1, ids=range(10))
    table.write(rows(10, 20))
    table.check(version=2, ids=range(20))


@pytest.mark.parametrize(
    ("step", "times", "happened"),
    [(faults.RECORD, 2, False), (faults.PUBLISH, 1, True), (faults.PUBLISH, 2, True)],
    ids=["inside the transaction", "none in place", "one in place"],
)
@pytest.mark.parametrize("kind", ["batch-create", "batch-commit"])
def test_a_batch_happens_whole_or_not_at_all(
    mortal: FindMortal, name: str, kind: str, step: str, times: int, happened: bool
) -> None:
    server = mortal(SQLITE)
    tables = make_tables(server, name, "a", "b")
    requests = [Stager(each.lake, each.location).append(rows(10, 20)).request(each.id) for each in tables]
    entries: dict[str, Any] = {"entries": requests}
    path, body = "/v1/table/version/batch-create", entries
    if kind == "batch-commit":
        declare = {"declare_table": {"id": [name, "new"]}}
        path = "/v1/table/batch-commit"
        body = {"operations": [declare, *({"create_table_version": request} for request in requests)]}
    server.arm(step, times)
    assert server.post(path, body) is None
    server.recover()
    assert [table.recorded() for table in tables] == [[1, 2] if happened else [1]] * 2
    assert tables_in(server, name) == (["a", "b", "new"] if happened and kind == "batch-commit" else ["a", "b"])
    assert server.status("/v1/table/version/batch-create", entries) == 200
    for table in tables:
        table.check(version=2, ids=range(20))
        table.write(rows(20, 30))
        table.check(version=3, ids=range(30))


@pytest.mark.parametrize(
    ("kind", "step", "times", "happened"),
    [
        (SQLITE, faults.SCHEDULE, 2, False),
        (POSTGRESQL, faults.SCHEDULE, 2, False),
        (SQLITE, faults.REMOVE, 1, True),
        (POSTGRESQL, faults.REMOVE_FOLDER, 2, True),
    ],
)
def test_a_cascade_takes_all_or_nothing(
    mortal: FindMortal, name: str, kind: str, step: str, times: int, happened: bool
) -> None:
    server = mortal(kind)
    tables = make_tables(server, name, "a", "b", "c")
    locations = [table.location for table in tables]
    server.arm(step, times)
    cascade = {"behavior": "Cascade"}
    assert server.post(f"/v1/namespace/{name}/drop", cascade) is None
    server.recover()
    if not happened:
        for table in tables:
            table.check(version=1, ids=range(10))
        assert server.status(f"/v1/namespace/{name}/drop", cascade) == 200
    assert server.status(f"/v1/namespace/{name}/exists") == 404
    wait_until(lambda: all(server.lake.is_empty(place) for place in locations), "the files of all tables are gone")
    assert server.status(f"/v1/namespace/{name}/create") == 200
    assert tables_in(server, name) == []
