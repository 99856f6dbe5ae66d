"""Changes of jobs, each in a transaction of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pennon.jobs.queue import lock_job

if TYPE_CHECKING:
    from pennon.jobs.queue import Queue


def change_job(queue: Queue, verb: str, job_id: str, by: str = "", **options: Any) -> Any:
    """Cancel, pause, resume or retry a job, and return the answer."""
    return queue._database.write(
        lambda connection: getattr(queue, verb)(connection, lock_job(connection, job_id), by, **options)
    )
