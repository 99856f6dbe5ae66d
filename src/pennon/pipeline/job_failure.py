"""The error that ends a job as failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pennon.core.job_model import Failure

if TYPE_CHECKING:
    from pennon.pipeline.task_records import TaskFailure


class JobAbortedError(Exception):
    """A job cannot continue; ``failure`` is stored with it."""

    def __init__(self, phase: str, kind: str, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.failure = Failure(phase=phase, type=kind, message=message, retryable=retryable)


def raise_task_failure(phase: str, failure: TaskFailure | None) -> None:
    """Abort the job if a task failed."""
    if failure is not None:
        raise JobAbortedError(phase, failure["type"], failure["message"])
