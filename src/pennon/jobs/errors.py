"""Errors of the job queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_namespace.errors import TransactionNotFoundError

if TYPE_CHECKING:
    from pennon.catalog.jobs import Job
    from pennon.core.job_model import StopRequest


class LeaseLostError(Exception):
    """The lease on a job has expired: another worker has the job, or it has ended."""

    def __init__(self, job: Job) -> None:
        super().__init__(f"worker {job.worker} has lost the lease on job {job.id} (attempt {job.attempt})")


class StopRequestedError(Exception):
    """A job must stop and must not commit any more."""

    def __init__(self, stop_request: StopRequest) -> None:
        super().__init__(f"the job must stop: {stop_request}")
        self.stop_request = stop_request


def missing_job(job_id: str) -> TransactionNotFoundError:
    """Return the error for a job that does not exist or that the caller cannot see."""
    return TransactionNotFoundError(f"Job {job_id[:64]!r} does not exist.")
