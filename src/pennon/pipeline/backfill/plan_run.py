"""One plan of a backfill on its way: what is computed, kept and committed of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pennon.columns.plan import Plan, Unit
from pennon.functions.envelope import read_envelope
from pennon.functions.error_policy import ErrorPolicy
from pennon.pipeline.cluster.resources import Needs

if TYPE_CHECKING:
    from collections.abc import Callable

    from pennon.columns.feature_columns import FeatureColumn
    from pennon.pipeline.backfill.checkpoints import Checkpoints
    from pennon.pipeline.backfill.commits import FillCommitter
    from pennon.pipeline.backfill.task import FillTask


class JobFailedError(Exception):
    """A job cannot go on, and why."""

    def __init__(self, phase: str, kind: str, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.failure = {"phase": phase, "type": kind, "message": message, "retryable": retryable}


@dataclass
class Round:
    """One plan on its way."""

    column: FeatureColumn
    plan: Plan
    checkpoints: Checkpoints
    #: Reads what is known of all feature columns: only when there is something to compute.
    open_committer: Callable[[], FillCommitter]
    task: FillTask
    committed: int = 0
    commits: int = 0

    def is_all(self, newest: int) -> bool:
        """Tell whether every fragment of the plan was committed, and nobody else had a part in the newest version."""
        return self.committed == len(self.plan.units) and newest == self.plan.version + self.commits

    @property
    def error_policy(self) -> ErrorPolicy:
        """What the function's author said about errors."""
        function = self.task.work.function
        return ErrorPolicy() if function is None else read_envelope(function).error_policy

    @property
    def needs(self) -> Needs:
        """What the function's author said about its tasks."""
        function = self.task.work.function
        return Needs() if function is None else Needs.of([read_envelope(function).options])


def group_units(units: tuple[Unit, ...], count: int, most_rows: int | None) -> tuple[tuple[Unit, ...], ...]:
    """Share fragments out among tasks, so that each has about as much to do; none has more rows than allowed.

    Only a fragment alone may have more: it is not divided.
    """
    groups: list[list[Unit]] = [[] for _ in range(min(count, len(units)))]
    loads = [0] * len(groups)
    for unit in sorted(units, key=lambda unit: unit.count, reverse=True):
        lightest = loads.index(min(loads))
        if most_rows is not None and loads[lightest] and loads[lightest] + unit.count > most_rows:
            lightest = len(groups)
            groups.append([])
            loads.append(0)
        groups[lightest].append(unit)
        loads[lightest] += unit.count
    return tuple(tuple(sorted(group, key=lambda unit: unit.fragment_id)) for group in groups)
