"""The server is killed at each step of a commit: nothing acknowledged is lost, and nothing is left half done."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.clients.lakes import ClientTable, Lake, rows, s3_arguments
from tests.clients.staging import Staged, Stager
from tests.support.rest import RestClient

if TYPE_CHECKING:
    from tests.chaos.conftest import PlanCrash
    from tests.chaos.crashing import Crash
    from tests.support.s3 import S3Root, S3Server

AUTHORITY = "pennon.lake.authority:CommitAuthority"
LOCAL = "pennon.lake.local:LocalFolder"
REMOTE = "pennon.lake.remote:RemoteFolder"

#: Steps after which a commit has not happened: the next version is still free.
BEFORE_THE_RECORD = {
    "before the manifest is checked": f"before {AUTHORITY}.stage",
    "after the manifest was checked": f"after {AUTHORITY}.stage",
    "inside the transaction": f"after {AUTHORITY}.record",
}
#: Steps after which it has, whatever is left to do.
AFTER_THE_RECORD = {
    "once it is recorded": f"before {AUTHORITY}.publish",
    "before it gets its final name": f"before {LOCAL}.promote",
    "before the staged file goes": f"before {LOCAL}.remove",
    "once it is in place": f"after {LOCAL}.promote",
    "before the record is settled": "before pennon.catalog.versions:settle",
    "before the answer": "before pennon.server.exchange:Exchange.answer",
}
#: The same in a bucket.
IN_A_BUCKET = {
    "once it is recorded": f"before {AUTHORITY}.publish",
    "before it gets its final name": f"before {REMOTE}.promote",
    "before the staged object goes": f"before {REMOTE}.remove",
    "once it is in place": f"after {REMOTE}.promote",
}


class InFlight:
    """A table at version 1 and a commit of version 2 that its server does not survive."""

    def __init__(self, crash: Crash) -> None:
        self.crash = crash
        lake = crash.start()
        table = ClientTable(lake, lake.connect(), "t")
        table.write(rows(10), "create")
        stager = Stager(lake, table.location)
        self.staged, self.rival = stager.append(rows(10, 20)), stager.append(rows(50, 60))
        crash.arm()
        self.answer = crash.post("/v1/table/t/version/create", self.staged.request(["t"]))

    def recover(self) -> ClientTable:
        lake = self.crash.recover()
        return ClientTable(lake, lake.connect(), "t")

    @staticmethod
    def propose(lake: Lake, staged: Staged, expect: int) -> None:
        with RestClient(lake.url) as http:
            http.post("/v1/table/t/version/create", staged.request(["t"]), expect=expect)


def check_that_it_happened(flight: InFlight) -> None:
    table = flight.recover()
    assert table.recorded() == [1, 2]
    flight.propose(table.lake, flight.staged, expect=200)
    flight.propose(table.lake, flight.rival, expect=409)
    table.check(version=2, ids=range(20))
    table.write(rows(20, 30))
    table.check(version=3, ids=range(30))


@pytest.mark.parametrize("fault", BEFORE_THE_RECORD.values(), ids=BEFORE_THE_RECORD)
def test_a_commit_that_was_not_recorded_did_not_happen(plan_crash: PlanCrash, fault: str) -> None:
    flight = InFlight(plan_crash(fault))
    assert flight.answer is None
    table = flight.recover()
    assert table.recorded() == [1]
    assert table.open().version == 1
    flight.propose(table.lake, flight.staged, expect=200)
    flight.propose(table.lake, flight.rival, expect=409)
    table.check(version=2, ids=range(20))


@pytest.mark.parametrize("fault", AFTER_THE_RECORD.values(), ids=AFTER_THE_RECORD)
def test_a_commit_that_was_recorded_is_finished_by_the_next_reader(plan_crash: PlanCrash, fault: str) -> None:
    flight = InFlight(plan_crash(fault))
    assert flight.answer is None or flight.answer.status_code == 200
    check_that_it_happened(flight)


@pytest.mark.parametrize("step", ["once it is recorded", "before the staged file goes"])
def test_a_rival_that_comes_after_the_crash_has_lost_and_sees_the_winner(plan_crash: PlanCrash, step: str) -> None:
    flight = InFlight(plan_crash(AFTER_THE_RECORD[step]))
    table = flight.recover()
    flight.propose(table.lake, flight.rival, expect=409)
    with RestClient(table.lake.url) as http:
        assert http.post("/v1/table/t/version/describe", {"version": 2})["version"]["version"] == 2
    table.check(version=2, ids=range(20))


@pytest.mark.parametrize("fault", IN_A_BUCKET.values(), ids=IN_A_BUCKET)
def test_the_same_holds_for_postgresql_and_a_bucket(
    plan_crash: PlanCrash, postgres_url: str, s3_server: S3Server, s3_root: S3Root, fault: str
) -> None:
    arguments = ["--database", postgres_url, *s3_arguments(s3_root)]
    check_that_it_happened(InFlight(plan_crash(fault, arguments, s3=s3_server)))


@pytest.mark.parametrize("step", ["once it is recorded", "once it is in place"])
def test_a_client_that_was_cut_off_finds_its_rows_once_the_server_is_back(plan_crash: PlanCrash, step: str) -> None:
    crash = plan_crash(AFTER_THE_RECORD[step])
    lake = crash.start()
    table = ClientTable(lake, lake.connect(), "t")
    table.write(rows(10), "create")
    stale = table.open()
    crash.arm()
    with pytest.raises(Exception, match=r"(?i)unknown|connect|request|sending"):
        table.write(rows(10, 20))
    crash.wait_until_dead()
    lake = crash.recover()
    table = ClientTable(lake, lake.connect(), "t")
    table.check(version=2, ids=range(20))
    stale.delete("id < 5")
    table.check(version=3, ids=range(5, 20))
