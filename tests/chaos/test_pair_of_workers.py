"""Two workers on one catalog: what one of them loses, or sleeps over, the other carries on, and nothing is harmed."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING

import pytest

import pennon
from tests.chaos.conftest import POSTGRESQL, STORMY, database_arguments
from tests.clients.lakes import Lake
from tests.integration.backfill.calls import CallLog
from tests.integration.backfill.sample_tables import SampleTable, ended, new_name, rows, slow
from tests.support.server import PennonProcess
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pennon.client import Job

FRAGMENTS, SIZE = 16, 20

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PennonProcess]:
    """A server with two workers, each with a Spark of its own, on PostgreSQL."""
    arguments = database_arguments(request, POSTGRESQL)
    with PennonProcess(tmp_path_factory.mktemp("pair"), *arguments, env={**STORMY, "PENNON_WORKERS": "2"}) as server:
        yield server


@pytest.fixture
def sample(pair: PennonProcess, tmp_path: Path) -> SampleTable:
    """A table of many fragments, with a column that takes its time."""
    db, lake, name = pennon.connect(pair.url), Lake(pair), new_name()
    db.create_table(name, rows(0, SIZE))
    sample = SampleTable(db, lake, lake.connect(), CallLog(tmp_path / "calls"), name)
    for start in range(SIZE, FRAGMENTS * SIZE, SIZE):
        sample.add(start, start + SIZE)
    sample.table.add_columns({"y": slow(sample.log, 0.2, batch_size=5)})
    return sample


def begin(sample: SampleTable) -> tuple[Job, int]:
    """Begin to fill a table, and return after the first commit, with the process id of the worker that made it."""
    job = sample.table.backfill_async("y", commit_granularity=1, concurrency=1)
    wait_until(lambda: has_happened(job, "committed"), "a first commit")
    (claim,) = (event for event in job.events().to_pylist() if event["kind"] == "claimed")
    return job, int(json.loads(claim["data"])["worker"].split("-")[-2])


def has_happened(job: Job, *kinds: str) -> bool:
    """Tell whether these have happened to a job, in this order."""
    happened = iter(job.events()["kind"].to_pylist())
    return all(kind in happened for kind in kinds)


def check(sample: SampleTable, job: Job) -> None:
    """Insist that the job was taken over and did all it was to do."""
    assert ended(job).state == "done", job.failure
    assert has_happened(job, "taken_over", "committed", "done")
    assert sample.values() == {number: number * 1000 for number in range(FRAGMENTS * SIZE)}
    assert sample.state() == (FRAGMENTS * SIZE, 0, 0, 0)
    assert sample.checkpoints() == []


def test_a_worker_that_wakes_late_leaves_the_work_of_the_other_alone(sample: SampleTable) -> None:
    job, worker = begin(sample)
    os.kill(worker, signal.SIGSTOP)
    try:
        wait_until(lambda: has_happened(job, "taken_over", "committed"), "a commit of the other")
    finally:
        os.kill(worker, signal.SIGCONT)
    check(sample, job)


def test_the_job_of_a_worker_that_dies_is_carried_on_by_the_other(sample: SampleTable) -> None:
    job, worker = begin(sample)
    os.kill(worker, signal.SIGKILL)
    check(sample, job)
    calls = sample.log.new()
    assert len(calls) - len(set(calls)) <= 5, "more than the batch in flight was computed again"
