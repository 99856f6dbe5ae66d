"""The tasks of a backfill's run: as many as may run at once, and more when tasks end and work is left."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from pennon.pipeline.cluster.driver import task_count, wait
from pennon.pipeline.cluster.tasks import TaskError, TaskRuns, run_tasks

if TYPE_CHECKING:
    from pennon.core.job_model import BackfillSpec
    from pennon.pipeline.backfill.commit_monitor import CommitMonitor
    from pennon.pipeline.backfill.plan_run import PlanRun
    from pennon.pipeline.cluster.session import Session
    from pennon.pipeline.environments.environment import DeployedEnvironment
    from pennon.pipeline.worker.lease import Lease


#: The queue is listed again after this many times what the last listing took, which is long on an object store. Not
#: measured: at most a twentieth of the time goes into listings.
_QUIET = 20


class TaskPool:
    """Runs tasks until the work queue of a plan run is empty."""

    def __init__(
        self,
        lease: Lease,
        session: Session,
        environment: DeployedEnvironment,
        plan_run: PlanRun,
        monitor: CommitMonitor,
    ) -> None:
        self._lease = lease
        self._session = session
        self._environment = environment
        self._plan_run = plan_run
        self._monitor = monitor
        self._profile = plan_run.resources.profile(session)
        spec = lease.job.backfill_spec
        self._most = plan_run.resources.tasks_at_once(session, most_tasks(session, spec, plan_run.plan.rows))
        self._task = replace(
            plan_run.task,
            share=min(self._most, len(plan_run.plan.units)),
            most_tasks=self._most,
            most_rows=spec.get("task_size"),
        )
        self._started = 0
        self._quiet_until = 0.0
        self._runs: TaskRuns[object] = TaskRuns()

    def run(self) -> None:
        """Run tasks until no work is left, and commit what they finish."""
        queue, signals = self._plan_run.queue, self._plan_run.signals
        signals.stop_all()
        queue.clear()
        signals.start()
        while self._start():
            self._wait()
        if queue.state().claimed:  # by tasks that Spark has lost, and did not try again
            queue.release()
            while self._start():
                self._wait()
        signals.stop()
        queue.clear()

    def _wait(self) -> None:
        """Wait until all tasks have ended, and commit what they finish."""
        wait(self._runs, self._lease, self._poll, self._plan_run.signals.stop)
        try:
            self._runs.results()
        except TaskError:
            self._monitor.poll(last=True)
            raise
        self._monitor.poll(last=True)

    def _poll(self) -> None:
        self._monitor.poll()
        if time.monotonic() > self._quiet_until:
            self._start()

    def _start(self) -> bool:
        """Start tasks if there is work for them, and return whether there was."""
        began = time.monotonic()
        state = self._plan_run.queue.state()
        self._quiet_until = began + _QUIET * (time.monotonic() - began)
        count = min(self._most - (self._started - state.ended_tasks), len(state.open))
        if count < 1:
            return False
        task = replace(self._task, first=self._started)
        self._started += count
        self._runs.add(
            run_tasks(
                self._session,
                task,
                count,
                group=self._lease.job.id,
                environment=self._environment,
                profile=self._profile,
            )
        )
        return True


def most_tasks(session: Session, spec: BackfillSpec, rows: int) -> int:
    """Return how many tasks of a backfill may run at once, whatever resources they need."""
    most_rows, count = spec.get("task_size"), task_count(session, spec.get("concurrency"))
    if most_rows is None or spec.get("concurrency") is not None:
        return count
    return max(count, -(-rows // most_rows))
