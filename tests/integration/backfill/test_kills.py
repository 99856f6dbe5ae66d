"""A backfill goes on where it was after its Spark, its worker, or the whole server was killed."""

from __future__ import annotations

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import pennon
from tests.chaos.spark_processes import javas_of
from tests.integration.backfill.calls import CallLog
from tests.integration.backfill.conftest import NewSample
from tests.integration.backfill.sample_tables import SampleTable, ended, slow
from tests.support.server import PennonProcess
from tests.support.spark import WORKER
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pennon.client import Job

ENV = {**WORKER, "PENNON_JOB_LEASE_SECONDS": "4"}
FRAGMENTS, SIZE, BATCH = 4, 20, 5


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PennonProcess]:
    """A server that tests may kill, with a lease that soon runs out."""
    with PennonProcess(tmp_path_factory.mktemp("mortal"), env=ENV) as server:
        yield server


def children_of(server: PennonProcess) -> dict[int, bytes]:
    """Return the processes that a server started, with their commands."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if b"pennon." in command and str(server.pid).encode() in command.split(b"\0"):
            found[int(path.parent.name)] = command
    return found


def worker_of(server: PennonProcess) -> int:
    """Return the process id of a server's worker."""
    (worker,) = (pid for pid, command in children_of(server).items() if b"pennon.pipeline.worker.process" in command)
    return worker


def begin(new_sample: NewSample, log: CallLog, server: PennonProcess, *, again: bool) -> tuple[SampleTable, str]:
    """Begin to fill a table, or to fill it again, and return, with the job's id, when half of it is computed."""
    sample = new_sample(FRAGMENTS * SIZE, FRAGMENTS, server)
    sample.table.add_columns({"y": slow(log, 0.2, batch_size=BATCH)})
    if again:
        sample.fill()
    before = sum(log.counts().values())
    job = sample.table.backfill_async("y", concurrency=2, commit_granularity=1, mode="all" if again else "default")
    wait_until(lambda: sum(log.counts().values()) - before >= FRAGMENTS * SIZE // 2, "half of the rows")
    return sample, job.id


def check(sample: SampleTable, server: PennonProcess, job_id: str, event: str = "taken_over") -> Job:
    """Insist that the job ends well after an event, and repeated no more than the batch that each task was at."""
    job = ended(pennon.connect(server.url).job(job_id))
    assert job.state == "done", job.failure
    assert sample.values() == {number: number * 1000 for number in range(FRAGMENTS * SIZE)}
    assert sample.state() == (FRAGMENTS * SIZE, 0, 0, 0)
    calls = sample.log.new()
    assert set(calls) == set(range(FRAGMENTS * SIZE))
    assert len(calls) - len(set(calls)) <= 2 * BATCH
    kinds = job.events()["kind"].to_pylist()
    assert event in kinds
    assert kinds.count("committed") == FRAGMENTS
    counted = [job.counters[name] for name in ("rows_planned", "rows_computed", "rows_committed", "rows_skipped")]
    assert counted == [FRAGMENTS * SIZE] * 3 + [0]
    assert job.result is not None
    assert job.result["published_version"] == sample.open().version
    assert sample.checkpoints() == []
    return job


def test_a_killed_spark_is_replaced_and_its_job_goes_on(
    new_sample: NewSample, log: CallLog, mortal: PennonProcess
) -> None:
    sample, job_id = begin(new_sample, log, mortal, again=False)
    for java in javas_of(mortal.pid):
        os.kill(java, signal.SIGKILL)
    job = check(sample, mortal, job_id, "released")
    assert job.events()["kind"].to_pylist().count("preflight") == 2  # the function was tried on each Spark
    (release,) = (json.loads(event["data"]) for event in job.events().to_pylist() if event["kind"] == "released")
    assert release["failure"]["type"] == "SparkLostError"
    assert release["failure"]["message"].startswith("Spark's Java process ended by signal SIGKILL")


def test_a_killed_worker_is_replaced_and_its_job_goes_on(
    new_sample: NewSample, log: CallLog, mortal: PennonProcess
) -> None:
    sample, job_id = begin(new_sample, log, mortal, again=False)
    os.kill(worker_of(mortal), signal.SIGKILL)
    check(sample, mortal, job_id)


def test_a_killed_server_is_started_again_and_its_job_goes_on(
    new_sample: NewSample, log: CallLog, mortal: PennonProcess
) -> None:
    sample, job_id = begin(new_sample, log, mortal, again=True)
    with ThreadPoolExecutor(1) as threads:
        waiting = pennon.connect(mortal.url).job(job_id)
        waited = threads.submit(waiting.wait, progress=False)
        mortal.kill()
        wait_until(lambda: not children_of(mortal), "the end of its processes")
        wait_until(lambda: waiting.waiting_for == "the server does not respond", "who waits notices it")
        mortal.start()
        check(sample, mortal, job_id)
        assert waited.result().state == "done"
