"""Watching the tasks of a backfill: what is finished is committed in groups, while the rest goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pennon.columns.row_spans import count_rows
from pennon.pipeline.backfill.plan_run import JobFailedError, Round
from pennon.pipeline.backfill.task import is_receipt_for

if TYPE_CHECKING:
    from pennon.columns.plan import Unit
    from pennon.pipeline.worker.lease import Lease

_COMMIT_SECONDS = 2.0
_PARTS_SECONDS = 1.0

Commit = Callable[["list[tuple[Unit, dict[str, Any]]]"], None]


class Watch:
    """Sees which fragments are finished, commits them in groups, and counts."""

    def __init__(self, lease: Lease, current: Round, commit: Commit) -> None:
        self._lease = lease
        self._commit = commit
        self._current = current
        self._waiting = {current.checkpoints.receipt_name(u.input_signature): u for u in current.plan.units}
        self._ready: list[tuple[Unit, dict[str, Any]]] = []
        self._since = time.monotonic()
        self._group = lease.job.spec.get("commit_granularity")
        self._policy = current.error_policy
        self._failed = 0
        self._computed = lease.rows_done
        self._partly = (0, 0)
        self._looked_at_parts = time.monotonic()

    def look(self, *, last: bool = False) -> None:
        """Take up what is finished, and commit when there is enough of it or it has waited for long."""
        checkpoints = self._current.checkpoints
        names = checkpoints.receipts()
        for name in names & self._waiting.keys():
            unit = self._waiting[name]
            receipt = checkpoints.receipt(unit.input_signature)
            if receipt is not None and is_receipt_for(receipt, unit):
                del self._waiting[name]
                self._ready.append((unit, receipt))
                self._computed += unit.count
                self._count(receipt["counters"])
                self._failed += count_rows(receipt["failed"])
        self._look_at_parts()
        overdue = time.monotonic() - self._since > _COMMIT_SECONDS
        while self._ready and (last or overdue or (self._group and len(self._ready) >= self._group)):
            size = self._group or len(self._ready)
            group, self._ready = self._ready[:size], self._ready[size:]
            self._commit(group)
            self._since = time.monotonic()
        self._check_budget()
        failure = checkpoints.failure(names)
        if failure is not None:
            raise JobFailedError("compute", failure["type"], failure["message"])

    def _look_at_parts(self) -> None:
        """Count what is computed of fragments that are not finished."""
        if not self._waiting or time.monotonic() - self._looked_at_parts > _PARTS_SECONDS:
            parts = self._current.checkpoints.parts() if self._waiting else iter(())
            begun = [part for part in parts if f"{part.fragment}.json" in self._waiting]
            self._partly = (sum(part.rows for part in begun), sum(part.failed for part in begun))
            self._looked_at_parts = time.monotonic()
        self._lease.counters["rows_computed"] = self._computed + self._partly[0]

    def _count(self, counters: dict[str, float]) -> None:
        peak = counters.pop("peak_memory_bytes", 0)
        for counted_otherwise in ("rows_computed", "rows_failed"):
            counters.pop(counted_otherwise, None)
        self._lease.add(**counters)
        known = self._lease.counters
        known["peak_memory_bytes"] = max(known.get("peak_memory_bytes", 0), peak)

    def _check_budget(self) -> None:
        planned, failed = self._current.plan.rows, self._failed + self._partly[1]
        if self._policy.exceeded(failed, planned):
            raise JobFailedError(
                "compute",
                "ErrorBudgetExceeded",
                f"{failed} of {planned} rows failed, more than the function's error policy allows.",
            )
