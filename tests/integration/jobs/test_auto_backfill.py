"""Columns that keep themselves filled: after commits, by as many workers as there are; jobs are only recorded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import pennon
from pennon.catalog import jobs
from pennon.client.columns import column_entries
from pennon.core.job_model import JobState
from pennon.jobs.auto_backfill import AutoBackfill
from tests.integration.jobs.queue_fixture import Clock
from tests.integration.views.guards.services import ViewLake

if TYPE_CHECKING:
    from pennon.catalog.jobs import Job

COOLDOWN = 5.0
THRESHOLD = 3


@pennon.udf(auto_backfill=True)
def doubled(a: int) -> int:
    return 2 * a


@pennon.udf(auto_backfill=True, data_type=pa.struct({"half": pa.int64(), "rest": pa.int64()}))
def divided(a: int) -> tuple[int, int]:
    return divmod(a, 2)


@pennon.udf
def astray(nowhere: int) -> int:
    return nowhere


def rows(count: int) -> pa.Table:
    """Return rows that functions compute from."""
    return pa.table({"a": pa.array(range(count), pa.int64())})


class AutoBackfillFixture:
    """Tables, and two workers whose clock the test moves."""

    def __init__(self, directory: Path, database: str) -> None:
        settings: dict[str, Any] = {"auto_backfill_every_seconds": COOLDOWN, "auto_backfill_min_rows": THRESHOLD}
        self.lake = ViewLake(directory, database=database, **settings)
        self.clock = Clock()
        services = self.lake.ns.services
        self.queue, self._database = services.queue, services.database
        self.queue._now = self.clock  # the queue's own clock says when a job was submitted
        self._workers = [AutoBackfill(services, self.clock) for _ in range(2)]

    def table(self, name: str, columns: Any) -> None:
        """Make a table with just enough rows, and columns that functions fill."""
        self.lake("CreateTable", name, data=rows(THRESHOLD))
        self.lake("AlterTableAddColumns", name, new_columns=column_entries(columns))

    def add(self, name: str, count: int) -> None:
        """Append rows to a table."""
        self.lake("InsertIntoTable", name, data=rows(count))

    def tick(self, seconds: float = 0.0) -> list[str]:
        """Let time pass and all workers look; return the columns of the jobs that were submitted."""
        self.clock.advance(seconds)
        before = {job.id for job in self._jobs()}
        for worker in self._workers:
            worker.tick()
        return sorted(job.target for job in self._jobs() if job.id not in before)

    def end(self, state: str = "failed") -> None:
        """End the job that is due, without having computed anything."""
        claimed = self.queue.claim("worker", 30)
        assert claimed is not None
        self.queue.finish(claimed, JobState(state), counters={})

    def _jobs(self) -> list[Job]:
        return self._database.read(lambda connection: jobs.page(connection, (), before=None, limit=100))


@pytest.fixture
def fixture(catalog_url: str, tmp_path: Path) -> Iterator[AutoBackfillFixture]:
    made = AutoBackfillFixture(tmp_path / "lake", catalog_url)
    yield made
    made.lake.close()


def test_a_column_is_filled_once_there_are_enough_rows(fixture: AutoBackfillFixture) -> None:
    fixture.lake("CreateTable", "t", data=rows(THRESHOLD - 1))
    fixture.lake(
        "AlterTableAddColumns", "t", new_columns=column_entries({"x": doubled, "asked_for": pennon.computed("a")})
    )
    assert fixture.tick() == []
    fixture.add("t", 1)
    assert fixture.tick() == ["x"]


def test_jobs_of_a_column_do_not_overlap_and_keep_their_distance(fixture: AutoBackfillFixture) -> None:
    fixture.table("t", {"x": doubled})
    assert fixture.tick() == ["x"]
    fixture.add("t", 1)
    assert fixture.tick(60) == []  # one is under way
    fixture.end("done")
    assert fixture.tick() == ["x"]
    fixture.end("done")
    fixture.add("t", 1)
    assert fixture.tick(COOLDOWN - 1) == []
    assert fixture.tick(1) == ["x"]


@pytest.mark.parametrize("state", ["failed", "cancelled", "timed_out"])
def test_what_failed_is_repeated_by_no_worker_before_the_table_changes(
    fixture: AutoBackfillFixture, state: str
) -> None:
    fixture.table("t", {"x": doubled, ("half", "rest"): divided})
    assert fixture.tick() == ["half", "x"]
    for _ in range(2):
        fixture.end(state)
    assert fixture.tick(60) == fixture.tick(60) == []
    fixture.add("t", 1)
    assert fixture.tick(60) == ["half", "x"]


def test_a_column_that_cannot_be_filled_hinders_no_other(fixture: AutoBackfillFixture) -> None:
    fixture.lake("CreateTable", "lost", data=rows(THRESHOLD).append_column("nowhere", pa.array(range(THRESHOLD))))
    fixture.lake("AlterTableAddColumns", "lost", new_columns=column_entries({"lost": astray, "x": doubled}))
    fixture.lake.open("lost").drop_columns(["nowhere"])
    fixture.table("t", {"y": doubled})
    assert fixture.tick() == ["x", "y"]


def test_a_table_that_cannot_be_read_hinders_no_other(fixture: AutoBackfillFixture) -> None:
    fixture.table("broken", {"x": doubled})
    fixture.lake("DeleteFromTable", "broken", predicate="a = 1")
    fixture.table("t", {"y": doubled})
    for file in Path(fixture.lake.ns.find_table(("broken",)).location, "_deletions").iterdir():
        file.unlink()
    assert fixture.tick() == ["y"]
