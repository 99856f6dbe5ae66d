"""The server is killed in the middle of changes to the catalog: each happened whole, or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.clients.lakes import ClientTable, Lake, rows
from tests.clients.staging import Stager
from tests.clients.waiting import wait_until
from tests.support.rest import RestClient

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.chaos.conftest import PlanCrash
    from tests.chaos.crashing import Crash

ANSWER = "before pennon.server.exchange:Exchange.answer"
RECORD = "after pennon.lake.authority:CommitAuthority.record"
PUBLISH = "before pennon.lake.authority:CommitAuthority.publish"
SCHEDULE = "after pennon.lake.removal:Removal.schedule"
REMOVE = "before pennon.lake.removal:Removal.remove"
RMTREE = "before shutil:rmtree"
FORGET = "before pennon.catalog.garbage:remove"


@pytest.fixture
def catalog_arguments(catalog_url: str) -> list[str]:
    return ["--database", catalog_url]


def tables_of(lake: Lake, *names: str) -> list[ClientTable]:
    client = lake.connect()
    return [ClientTable(lake, client, *name.split("$")) for name in names]


def start_with(crash: Crash, *names: str) -> list[ClientTable]:
    """Start the server that is to die, with tables of ten rows."""
    lake = crash.start()
    with RestClient(lake.url) as http:
        for space in sorted({name.split("$")[0] for name in names if "$" in name}):
            http.post(f"/v1/namespace/{space}/create")
    tables = tables_of(lake, *names)
    for table in tables:
        table.write(rows(10), "create")
    return tables


def status_of(lake: Lake, path: str, body: Any = None) -> int:
    with RestClient(lake.url) as http:
        return http.raw.post(path, json=body or {}).status_code


def test_a_table_is_still_there_when_its_drop_was_not_recorded(
    plan_crash: PlanCrash, catalog_arguments: Sequence[str]
) -> None:
    crash = plan_crash(SCHEDULE, catalog_arguments)
    start_with(crash, "t")
    crash.arm()
    assert crash.post("/v1/table/t/drop", {}) is None
    (table,) = tables_of(crash.recover(), "t")
    table.check(version=1, ids=range(10))
    assert status_of(table.lake, "/v1/table/t/drop") == 200


@pytest.mark.parametrize(
    ("fault", "name"),
    [
        (REMOVE, "t"),
        (REMOVE, "space$t"),
        (RMTREE, "t"),
        (RMTREE, "space$t"),
        (FORGET, "t"),
        (ANSWER, "t"),
    ],
)
def test_a_dropped_table_is_gone_with_its_files_and_its_name_is_free(
    plan_crash: PlanCrash, fault: str, name: str
) -> None:
    crash = plan_crash(fault)
    (table,) = start_with(crash, name)
    location = table.location
    crash.arm()
    assert crash.post(f"/v1/table/{name}/drop", {}) is None
    lake = crash.recover()
    assert status_of(lake, f"/v1/table/{name}/describe") == 404
    (table,) = tables_of(lake, name)
    table.write(rows(5), "create")
    table.check(version=1, ids=range(5))
    directory = lake.server.directory
    if table.location != location:
        wait_until(lambda: lake.is_empty(location), "the files of the dropped table are gone")
    wait_until(lambda: not any((directory / ".pennon-trash").glob("*")), "nothing is left in the trash")
    table.check(version=1, ids=range(5))


@pytest.mark.parametrize("fault", [REMOVE, FORGET], ids=["before its files go", "after its files went"])
def test_a_name_is_free_while_what_a_dead_process_was_removing_is_still_its_own(
    plan_crash: PlanCrash, fault: str
) -> None:
    crash = plan_crash(fault, lease_millis=600_000)
    start_with(crash, "t")
    crash.arm()
    assert crash.post("/v1/table/t/drop", {}) is None
    (table,) = tables_of(crash.recover(), "t")
    table.write(rows(5), "create")
    table.check(version=1, ids=range(5))


@pytest.mark.parametrize(
    ("fault", "happened"),
    [("after pennon.catalog.tables:insert", False), (ANSWER, True)],
    ids=["inside the transaction", "unanswered"],
)
def test_a_table_is_declared_or_not(
    plan_crash: PlanCrash, catalog_arguments: Sequence[str], fault: str, happened: bool
) -> None:
    crash = plan_crash(fault, catalog_arguments)
    start_with(crash, "space$other")
    crash.arm()
    assert crash.post("/v1/table/space$t/declare", {}) is None
    lake = crash.recover()
    with RestClient(lake.url) as http:
        listed = http.get("/v1/namespace/space/table/list")["tables"]
    assert listed == (["other", "t"] if happened else ["other"])
    assert status_of(lake, "/v1/table/space$t/declare") == (409 if happened else 200)


@pytest.mark.parametrize(
    ("fault", "happened"),
    [("after pennon.catalog.tables:rename", False), (ANSWER, True)],
    ids=["inside the transaction", "unanswered"],
)
def test_a_table_is_renamed_or_not(
    plan_crash: PlanCrash, catalog_arguments: Sequence[str], fault: str, happened: bool
) -> None:
    crash = plan_crash(fault, catalog_arguments)
    start_with(crash, "space$t")
    crash.arm()
    assert crash.post("/v1/table/space$t/rename", {"new_table_name": "renamed"}) is None
    lake = crash.recover()
    with RestClient(lake.url) as http:
        (listed,) = http.get("/v1/namespace/space/table/list")["tables"]
    assert listed == ("renamed" if happened else "t")
    (table,) = tables_of(lake, f"space${listed}")
    table.check(version=1, ids=range(10))
    table.write(rows(10, 20))
    table.check(version=2, ids=range(20))


@pytest.mark.parametrize(
    ("fault", "times", "happened"),
    [(RECORD, 2, False), (PUBLISH, 1, True), (PUBLISH, 2, True)],
    ids=["inside the transaction", "none in place", "one in place"],
)
@pytest.mark.parametrize("kind", ["batch-create", "batch-commit"])
def test_a_batch_happens_whole_or_not_at_all(
    plan_crash: PlanCrash, kind: str, fault: str, times: int, happened: bool
) -> None:
    crash = plan_crash(fault)
    tables = start_with(crash, "space$a", "space$b")
    requests = [Stager(each.lake, each.location).append(rows(10, 20)).request(each.id) for each in tables]
    body: dict[str, Any] = {"entries": requests}
    path = "/v1/table/version/batch-create"
    if kind == "batch-commit":
        declare = {"declare_table": {"id": ["space", "new"]}}
        body = {"operations": [declare, *({"create_table_version": request} for request in requests)]}
        path = "/v1/table/batch-commit"
    crash.arm(times)
    assert crash.post(path, body) is None
    tables = tables_of(crash.recover(), "space$a", "space$b")
    lake = tables[0].lake
    assert [table.recorded() for table in tables] == [[1, 2] if happened else [1]] * 2
    declared = happened and kind == "batch-commit"
    assert status_of(lake, "/v1/table/space$new/exists") == (200 if declared else 404)
    assert status_of(lake, "/v1/table/version/batch-create", {"entries": requests}) == 200
    for table in tables:
        table.check(version=2, ids=range(20))
        table.write(rows(20, 30))
        table.check(version=3, ids=range(30))


@pytest.mark.parametrize(
    ("fault", "times", "happened"),
    [(SCHEDULE, 2, False), (REMOVE, 1, True), ("before pennon.lake.local:LocalFolder.remove_all", 2, True)],
    ids=["inside the transaction", "before the files go", "while the files go"],
)
def test_a_cascade_takes_all_or_nothing(
    plan_crash: PlanCrash, catalog_arguments: Sequence[str], fault: str, times: int, happened: bool
) -> None:
    names = ["space$a", "space$b", "space$c"]
    crash = plan_crash(fault, catalog_arguments)
    tables = start_with(crash, *names)
    locations = [table.location for table in tables]
    crash.arm(times)
    assert crash.post("/v1/namespace/space/drop", {"behavior": "Cascade"}) is None
    lake = crash.recover()
    if not happened:
        for table in tables_of(lake, *names):
            table.check(version=1, ids=range(10))
        assert status_of(lake, "/v1/namespace/space/drop", {"behavior": "Cascade"}) == 200
    assert status_of(lake, "/v1/namespace/space/exists") == 404
    wait_until(lambda: all(lake.is_empty(place) for place in locations), "the files of all tables are gone")
    assert status_of(lake, "/v1/namespace/space/create") == 200
    with RestClient(lake.url) as http:
        assert http.get("/v1/namespace/space/table/list")["tables"] == []
