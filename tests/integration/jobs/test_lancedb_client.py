"""What LanceDB's own client does with jobs, unmodified: both the blocking and the asynchronous one."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import lancedb
import pytest
from lancedb.exceptions import JobCancelledError, JobFailedError, JobNotFoundError

from pennon.core.job_model import JobState

if TYPE_CHECKING:
    from pennon.catalog.jobs import Job
    from tests.integration.jobs.servers import JobServer

NO_RETRIES = {"retry_config": {"retries": 0}}


@pytest.fixture
def job(server: JobServer) -> Job:
    """A job that waits, on a table of the root."""
    return server.submit(server.new_table(), spec={"column": "c"})


@pytest.fixture
def db(server: JobServer) -> Any:
    return lancedb.connect("db://lake", api_key="none", host_override=server.url, client_config=NO_RETRIES)


def test_jobs_are_listed(db: Any, job: Job) -> None:
    (found,) = [info for info in db.list_jobs() if info.job_id == job.id]
    assert (found.job_type, found.state, found.created_at_millis) == ("backfill", "pending", job.created_at)
    assert found.table.endswith("$t")


def test_a_database_lists_only_its_own(server: JobServer, job: Job) -> None:
    server.submit(server.new_table())
    db = lancedb.connect(f"db://{job.object[0]}", api_key="none", host_override=server.url)
    assert [(info.job_id, info.table) for info in db.list_jobs()] == [(job.id, "t")]


def test_a_job_can_be_opened_and_described(db: Any, server: JobServer, job: Job) -> None:
    opened = db.open_job(job.id)
    assert (opened.state, opened.job_type, opened.spec) == ("running", "backfill", {"column": "c"})
    assert (opened.creation_ms, opened.result, opened.failure) == (job.created_at, None, None)
    server.queue.finish(server.hold(job), JobState.DONE, counters={}, result={"rows_assigned": 3})  # type: ignore[arg-type]
    assert opened.status() == "finished"
    opened.refresh()
    assert opened.result == {"rows_assigned": 3}


def test_a_job_is_waited_for(db: Any, server: JobServer, job: Job) -> None:
    opened, held = db.open_job(job.id), server.hold(job)
    ending = threading.Timer(0.3, lambda: server.queue.finish(held, JobState.DONE, counters={}, result={"rows": 1}))  # type: ignore[arg-type]
    ending.start()
    opened.wait(timedelta(seconds=60))
    ending.join()
    assert opened.status() == "finished"


@pytest.mark.parametrize(
    ("state", "error"),
    [("failed", JobFailedError), ("timed_out", JobFailedError), ("cancelled", JobCancelledError)],
)
def test_a_bad_end_is_an_error(db: Any, server: JobServer, job: Job, state: str, error: type[Exception]) -> None:
    failure = {"phase": "compute", "type": "ValueError", "message": "seven is too many", "retryable": False}
    server.queue.finish(server.hold(job), state, counters={}, failure=failure)  # type: ignore[arg-type]
    opened = db.open_job(job.id)
    assert (opened.failure.phase, opened.failure.message, opened.failure.retryable) == (
        "compute",
        "seven is too many",
        False,
    )
    with pytest.raises(error, match="cancelled" if state == "cancelled" else "seven is too many"):
        opened.wait()


def test_a_job_is_paused_and_resumed(db: Any, server: JobServer, job: Job) -> None:
    assert db.resume_job(job.id) == "not_paused"
    assert db.pause_job(job.id) == "pausing"
    assert db.pause_job(job.id) == "already_paused"
    assert db.resume_job(job.id) == "resumed"
    held = server.hold(job)
    assert db.pause_job(job.id) == "pausing"
    assert db.resume_job(job.id) == "still_pausing"
    server.queue.release(held, {}, paused=True)
    assert db.resume_job(job.id) == "resumed"
    held = server.hold(job)
    server.database.write(lambda connection: server.queue.begin_commit(connection, held))
    assert db.pause_job(job.id) == "committing"


def test_a_job_is_cancelled_also_twice(db: Any, job: Job) -> None:
    assert db.cancel_job(job.id) is True
    assert db.cancel_job(job.id) is True
    opened = db.open_job(job.id)
    opened.cancel()
    assert opened.status() == "cancelled"


def test_a_missing_job_is_an_error(db: Any) -> None:
    with pytest.raises(JobNotFoundError):
        db.open_job("nothing")
    assert db.cancel_job("nothing") is False
    with pytest.raises(Exception, match="404"):
        db.pause_job("nothing")


def test_events_are_a_table_that_can_be_narrowed(db: Any, server: JobServer, job: Job) -> None:
    held = server.hold(job)
    for number in range(3):
        server.queue.add_event(held, "committed", str(number), {"rows_added": 7, "rows_updated": 3})
    opened = db.open_job(job.id)
    assert opened.events().num_rows == 5
    complete = opened.events(filter="state = 'committed'", limit=2)
    assert complete["claim_entity"].to_pylist() == ["0", "1"]
    assert complete["rows_processed"].to_pylist() == [10, 10]
    none = opened.events(filter="state = 'nothing'")
    assert (none.num_rows, none.schema) == (0, complete.schema)


def test_the_asynchronous_client_does_the_same(server: JobServer, job: Job) -> None:
    async def work() -> None:
        db: Any = await lancedb.connect_async(
            "db://lake", api_key="none", host_override=server.url, client_config=NO_RETRIES
        )
        assert job.id in {info.job_id for info in await db.list_jobs()}
        opened = await db.open_job(job.id)
        assert await opened.status() == "running"
        assert await db.pause_job(job.id) == "pausing"
        assert await db.resume_job(job.id) == "resumed"
        assert (await opened.events()).num_rows == 3
        with pytest.raises(asyncio.TimeoutError):
            await opened.wait(timedelta(seconds=0.3))
        await opened.cancel()
        with pytest.raises(JobCancelledError):
            await opened.wait()

    asyncio.run(work())
