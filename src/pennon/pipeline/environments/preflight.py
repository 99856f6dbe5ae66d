"""Trying functions on an executor before anything is written: what does not fit it is told at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pennon.pipeline.backfill.plan_run import JobFailedError
from pennon.pipeline.cluster.driver import wait
from pennon.pipeline.cluster.tasks import run_tasks

if TYPE_CHECKING:
    from pennon.pipeline.cluster.session import Session
    from pennon.pipeline.environments.environment import Shipped
    from pennon.pipeline.worker.lease import Lease
    from pennon.pipeline.worker.worker_services import WorkerServices


class Trial(Protocol):
    """Work whose functions can be tried."""

    def try_out(self) -> None:
        """Load the functions, and call them for a few rows where that tells anything; raise what they fail of."""


@dataclass(frozen=True)
class Preflight:
    """Tries the functions of a job where its tasks are going to run."""

    services: WorkerServices
    lease: Lease
    session: Session
    shipped: Shipped
    profile: Any

    def fly(self, trial: Trial, references: Sequence[str], unit: str) -> None:
        """Try functions, unless this session has seen them work; raise the failure of the job if they do not.

        Args:
            trial: The work that they are tried with.
            references: What tells them from other functions.
            unit: What the job's event calls them.
        """
        known = {(reference, self.shipped.checksum) for reference in references}
        if self.session.tried.issuperset(known):
            return
        group = f"{self.lease.job.id}-preflight"
        task = _TrialTask(trial)
        run = run_tasks(self.session, task, 1, group=group, environment=self.shipped, profile=self.profile)
        wait(run, self.lease, lambda: None, lambda: None)
        (answer,) = run.results()
        if "failure" in answer:
            raise JobFailedError("preflight", answer["failure"]["type"], answer["failure"]["message"])
        self.session.tried.update(known)
        self.services.queue.note(self.lease.job, "preflight", unit, answer)


@dataclass(frozen=True)
class _TrialTask:
    trial: Trial

    def __call__(self, number: int) -> dict[str, Any]:  # noqa: ARG002 (the one task there is)
        """Try functions; how they fail tells what is missing."""
        import platform

        from pennon.pipeline.computation import failure_of

        try:
            self.trial.try_out()
        except Exception as error:
            failure = failure_of(error)
            if failure is None:
                raise
            return {"failure": failure}
        return {"python": platform.python_version()}
