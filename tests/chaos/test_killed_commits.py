"""The server is killed at each step of a commit: nothing acknowledged is lost, and nothing is left half done."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.chaos import faults
from tests.chaos.conftest import BUCKET, SQLITE
from tests.clients.lakes import ClientTable, rows
from tests.clients.staging import Staged, Stager

if TYPE_CHECKING:
    from tests.chaos.conftest import FindMortal
    from tests.chaos.crashing import Mortal

#: Steps after which a commit has not happened: the next version is still free.
BEFORE_THE_RECORD = {
    "before the manifest is checked": faults.STAGE,
    "after the manifest was checked": faults.STAGED,
    "inside the transaction": faults.RECORD,
}
#: Steps after which it has, whatever is left to do.
AFTER_THE_RECORD = {
    "once it is recorded": faults.PUBLISH,
    "before it gets its final name": faults.PUBLISH_FILE,
    "before the staged file goes": faults.UNSTAGE,
    "once it is in place": faults.PUBLISHED_FILE,
    "before the record is finalized": faults.FINALIZE,
    "before the answer": faults.ANSWER,
}
#: The same in a bucket.
IN_A_BUCKET = {
    "once it is recorded": faults.PUBLISH,
    "before it gets its final name": faults.REMOTE_PUBLISH_FILE,
    "before the staged object goes": faults.REMOTE_UNSTAGE,
    "once it is in place": faults.REMOTE_PUBLISHED_FILE,
}


class InFlight:
    """A table at version 1 and a commit of version 2 that its server does not survive."""

    def __init__(self, mortal: Mortal, name: str, step: str) -> None:
        self.mortal = mortal
        self.path = f"/v1/table/{name}/version"
        self.table = mortal.table(name)
        self.table.write(rows(10), "create")
        stager = Stager(mortal.lake, self.table.location)
        self.staged, self.rival = stager.append(rows(10, 20)), stager.append(rows(50, 60))
        mortal.arm(step)
        self.answer = mortal.post(f"{self.path}/create", self.staged.request([name]))
        mortal.recover()

    def propose(self, staged: Staged) -> int:
        return self.mortal.status(f"{self.path}/create", staged.request(self.table.id))

    def check_that_it_happened(self) -> None:
        """Insist on version 2, whole, and on version 3 to follow it."""
        assert self.answer is None or self.answer.status_code == 200
        table: ClientTable = self.mortal.table(*self.table.id)
        assert table.recorded() == [1, 2]
        assert self.propose(self.staged) == 200
        assert self.propose(self.rival) == 409
        table.check(version=2, ids=range(20))
        table.write(rows(20, 30))
        table.check(version=3, ids=range(30))


@pytest.mark.parametrize("step", BEFORE_THE_RECORD.values(), ids=BEFORE_THE_RECORD)
def test_a_commit_that_was_not_recorded_did_not_happen(mortal: FindMortal, name: str, step: str) -> None:
    flight = InFlight(mortal(SQLITE), name, step)
    assert flight.answer is None
    table = flight.mortal.table(name)
    assert table.recorded() == [1]
    assert table.open().version == 1
    assert flight.propose(flight.staged) == 200
    assert flight.propose(flight.rival) == 409
    table.check(version=2, ids=range(20))


@pytest.mark.parametrize("step", AFTER_THE_RECORD.values(), ids=AFTER_THE_RECORD)
def test_a_commit_that_was_recorded_is_finished_by_the_next_reader(mortal: FindMortal, name: str, step: str) -> None:
    InFlight(mortal(SQLITE), name, step).check_that_it_happened()


@pytest.mark.parametrize("step", IN_A_BUCKET.values(), ids=IN_A_BUCKET)
def test_the_same_holds_for_postgresql_and_a_bucket(mortal: FindMortal, name: str, step: str) -> None:
    InFlight(mortal(BUCKET), name, step).check_that_it_happened()


@pytest.mark.parametrize("step", [faults.PUBLISH, faults.UNSTAGE], ids=["once it is recorded", "once it is in place"])
def test_a_rival_that_comes_after_the_crash_has_lost_and_sees_the_winner(
    mortal: FindMortal, name: str, step: str
) -> None:
    flight = InFlight(mortal(SQLITE), name, step)
    assert flight.propose(flight.rival) == 409
    assert flight.mortal.status(f"{flight.path}/describe", {"version": 2}) == 200
    flight.mortal.table(name).check(version=2, ids=range(20))


@pytest.mark.parametrize(
    "step", [faults.PUBLISH, faults.PUBLISHED_FILE], ids=["once it is recorded", "once it is in place"]
)
def test_a_client_that_was_cut_off_finds_its_rows_once_the_server_is_back(
    mortal: FindMortal, name: str, step: str
) -> None:
    server = mortal(SQLITE)
    table = server.table(name)
    table.write(rows(10), "create")
    stale = table.open()
    server.arm(step)
    with pytest.raises(Exception, match=r"(?i)unknown|connect|request|sending"):
        table.write(rows(10, 20))
    server.wait_until_dead()
    server.recover()
    server.table(name).check(version=2, ids=range(20))
    stale.delete("id < 5")
    server.table(name).check(version=3, ids=range(5, 20))
