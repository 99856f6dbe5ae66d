"""The preflight of a job: it tests functions on an executor before anything is written, so that errors show at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pennon.pipeline.cluster.driver import wait
from pennon.pipeline.cluster.tasks import run_tasks
from pennon.pipeline.job_failure import raise_task_failure

if TYPE_CHECKING:
    from pennon.pipeline.cluster.resources import AnyProfile
    from pennon.pipeline.cluster.session import Session
    from pennon.pipeline.environments.environment import DeployedEnvironment
    from pennon.pipeline.task_records import TaskAnswer
    from pennon.pipeline.worker.lease import Lease


class DryRun(Protocol):
    """A task whose functions can be tested."""

    def dry_run(self) -> None:
        """Load the functions, and call them for a few rows if that proves anything; raise their errors."""


@dataclass(frozen=True)
class Preflight:
    """Tests the functions of a job where its tasks are going to run."""

    lease: Lease
    session: Session
    environment: DeployedEnvironment
    profile: AnyProfile | None

    def run(self, task: DryRun, references: Sequence[str], unit: str) -> None:
        """Test functions, unless they passed in this session before; abort the job if they fail.

        Args:
            task: The task to test them with.
            references: Identify the functions.
            unit: The unit of the job's event.
        """
        functions = {(reference, self.environment.checksum) for reference in references}
        if self.session.tested.issuperset(functions):
            return
        group = f"{self.lease.job.id}-preflight"
        run = run_tasks(
            self.session, _PreflightTask(task), 1, group=group, environment=self.environment, profile=self.profile
        )
        wait(run, self.lease, lambda: None, lambda: None)
        (answer,) = run.results()
        raise_task_failure("preflight", answer["failure"])
        self.session.tested.update(functions)
        self.lease.add_event("preflight", answer["result"] or {}, unit)


@dataclass(frozen=True)
class _PreflightTask:
    task: DryRun

    def __call__(self, number: int) -> TaskAnswer[Mapping[str, str]]:  # noqa: ARG002 (there is one task)
        """Test functions, and return the version of Python."""
        import platform

        from pennon.pipeline.function_execution import find_failure

        try:
            self.task.dry_run()
        except Exception as error:
            failure = find_failure(error)
            if failure is None:
                raise
            return {"result": None, "failure": failure}
        return {"result": {"python": platform.python_version()}, "failure": None}
