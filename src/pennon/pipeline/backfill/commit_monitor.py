"""The commit monitor of a backfill: it commits finished fragments in groups while other tasks still run."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from pennon.columns.row_spans import count_rows
from pennon.pipeline.backfill.task import is_receipt_for
from pennon.pipeline.job_failure import JobAbortedError, raise_task_failure
from pennon.pipeline.task_records import add_counters

if TYPE_CHECKING:
    from pennon.columns.plan import WorkUnit
    from pennon.pipeline.backfill.commits import FinishedUnit
    from pennon.pipeline.backfill.plan_run import PlanRun
    from pennon.pipeline.worker.lease import Lease

#: How long a finished fragment waits at most for others to share its commit. Not measured.
_COMMIT_SECONDS = 2.0
#: How often parts are listed for the progress; a listing is a request on an object store. Not measured.
_PARTS_SECONDS = 1.0
#: Computed rows are counted from parts and receipts, failed ones when they are committed.
_COUNTED_ELSEWHERE = ("rows_computed", "rows_failed")


class CommitMonitor:
    """Finds finished fragments, commits them in groups, and counts rows."""

    def __init__(self, lease: Lease, plan_run: PlanRun, commit: Callable[[list[FinishedUnit]], None]) -> None:
        self._lease = lease
        self._commit = commit
        self._plan_run = plan_run
        self._pending: dict[str, WorkUnit] = {
            plan_run.checkpoints.receipt_name(unit.input_signature): unit for unit in plan_run.plan.units
        }
        self._ready: list[FinishedUnit] = []
        self._committed_at = time.monotonic()
        self._group_size = lease.job.backfill_spec.get("commit_granularity")
        self._policy = plan_run.error_policy
        self._failed = 0
        self._computed = lease.rows_done
        #: Computed and failed rows of fragments that are not finished.
        self._partial = (0, 0)
        self._listed_parts_at = time.monotonic()

    def poll(self, *, last: bool = False) -> None:
        """Collect finished fragments, and commit when a group is full or has waited long enough."""
        checkpoints = self._plan_run.checkpoints
        for name in checkpoints.receipt_names() & self._pending.keys():
            unit = self._pending[name]
            receipt = checkpoints.receipt(unit.input_signature)
            if receipt is not None and is_receipt_for(receipt, unit):
                del self._pending[name]
                self._ready.append((unit, receipt))
                self._computed += unit.count
                add_counters(self._lease.counters, receipt["counters"], skip=_COUNTED_ELSEWHERE)
                self._failed += count_rows(receipt["failed"])
        self._count_parts()
        is_overdue = time.monotonic() - self._committed_at > _COMMIT_SECONDS
        while self._ready and (last or is_overdue or (self._group_size and len(self._ready) >= self._group_size)):
            size = self._group_size or len(self._ready)
            group, self._ready = self._ready[:size], self._ready[size:]
            self._commit(group)
            self._committed_at = time.monotonic()
        self._check_budget()
        raise_task_failure("compute", self._plan_run.signals.poll().failure)

    def _count_parts(self) -> None:
        """Count the rows that are computed in fragments that are not finished."""
        if not self._pending or time.monotonic() - self._listed_parts_at > _PARTS_SECONDS:
            parts = self._plan_run.checkpoints.parts() if self._pending else iter(())
            begun = [part for part in parts if f"{part.fragment}.json" in self._pending]
            self._partial = (sum(part.rows for part in begun), sum(part.failed for part in begun))
            self._listed_parts_at = time.monotonic()
        self._lease.counters["rows_computed"] = self._computed + self._partial[0]

    def _check_budget(self) -> None:
        planned, failed = self._plan_run.plan.rows, self._failed + self._partial[1]
        if self._policy.exceeded(failed, planned):
            raise JobAbortedError(
                "compute",
                "ErrorBudgetExceeded",
                f"{failed} of {planned} rows failed, more than the function's error policy allows.",
            )
