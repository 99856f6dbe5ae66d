"""What people ask of jobs: to cancel, pause, resume and repeat them. Each answer is the truth at its commit.

Every function is part of the caller's transaction and is given a job that was locked in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_namespace.errors import InvalidInputError, InvalidTableStateError

from pennon.catalog import job_events, jobs, tables, versions
from pennon.catalog.jobs import CANCELLED, COMMITTING, DONE, ENDED, HELD, PAUSED, PENDING, Job
from pennon.core.identifiers import format_identifier, new_id

if TYPE_CHECKING:
    from pennon.catalog import Connection

CANCEL, PAUSE, TIMEOUT = "cancel", "pause", "timeout"


def cancel(connection: Connection, job: Job, now: int, by: str = "") -> str:
    """Cancel a job: at once when nobody holds it, otherwise by asking its worker.

    Once this answered "cancelling", the job commits nothing more. "committing" means that a commit had just been made,
    and the job stops after it.
    """
    if job.state in ENDED:
        return f"already_{job.state}"
    if job.state not in HELD:
        jobs.end(connection, job, CANCELLED, now)
        job_events.append(connection, job.id, CANCELLED, now, data={"by": by})
        return CANCELLED
    if job.wish != CANCEL:
        jobs.wish(connection, job.id, CANCEL)
        job_events.append(connection, job.id, "cancel_requested", now, data={"by": by})
    return COMMITTING if job.state == COMMITTING else "cancelling"


def pause(connection: Connection, job: Job, now: int, by: str = "") -> str:
    """Let a job rest: at once when nobody holds it, otherwise by asking its worker."""
    if job.state in ENDED:
        raise InvalidTableStateError(f"Job {job.id!r} has ended: it is {job.state}, and cannot be paused.")
    if job.state == PAUSED:
        return "already_paused"
    if job.state == PENDING:
        jobs.rest(connection, job.id, now)
        job_events.append(connection, job.id, PAUSED, now, data={"by": by})
        return PAUSED
    if job.wish in (CANCEL, TIMEOUT):
        raise InvalidTableStateError(f"Job {job.id!r} is about to end ({job.wish}), and cannot be paused.")
    if job.wish is None:
        jobs.wish(connection, job.id, PAUSE)
        job_events.append(connection, job.id, "pause_requested", now, data={"by": by})
    return COMMITTING if job.state == COMMITTING else "pausing"


def resume(connection: Connection, job: Job, now: int, by: str = "") -> str:
    """Let a job that rests wait for a worker again."""
    if job.state == PAUSED:
        jobs.wake(connection, job.id, now)
        job_events.append(connection, job.id, "resumed", now, data={"by": by})
        return "resumed"
    return "still_pausing" if job.state in HELD and job.wish == PAUSE else "not_paused"


def retry(connection: Connection, job: Job, now: int, *, only_failed: bool = False, by: str = "") -> Job:
    """Submit again what a job was to do, or only the rows that failed in it."""
    if job.state not in ENDED:
        raise InvalidTableStateError(f"Job {job.id!r} has not ended: it is {job.state}. Cancel it first.")
    if job.state == DONE and not only_failed:
        advice = " Only its failed rows can be tried again: only_failed." if job.kind == "backfill" else ""
        raise InvalidTableStateError(f"Job {job.id!r} is done.{advice}")
    if only_failed and job.kind != "backfill":
        raise InvalidInputError(f"Job {job.id!r} is a {job.kind}: only a backfill can try its failed rows alone.")
    if tables.find_by_id(connection, job.table_id) is None:
        raise InvalidTableStateError(f"The table {format_identifier(job.object)!r} of job {job.id!r} was dropped.")
    spec = job.spec
    if only_failed:
        newest = _newest(connection, job)
        spec = {**job.spec, "mode": "only_failed", **({} if newest is None else {"since": newest})}
    again = Job(
        id=new_id(),
        kind=job.kind,
        table_id=job.table_id,
        branch=job.branch,
        target=job.target,
        object=job.object,
        state=PENDING,
        priority=job.priority,
        spec=spec,
        submitted_by=by or job.submitted_by,
        context=job.context,
        created_at=now,
        retry_of=job.id,
    )
    add(connection, again)
    job_events.append(connection, job.id, "retried", now, data={"job_id": again.id, "by": by})
    return again


def _newest(connection: Connection, job: Job) -> int | None:
    newest = versions.latest(connection, job.table_id, job.branch)
    return None if newest is None else newest.version


def add(connection: Connection, job: Job) -> None:
    """Put a job into the queue."""
    jobs.insert(connection, job)
    data = {"by": job.submitted_by, **({"retry_of": job.retry_of} if job.retry_of else {})}
    job_events.append(connection, job.id, "submitted", job.created_at, data=data)
