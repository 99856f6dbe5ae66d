"""The run of one plan of a backfill: what it computes, where it keeps checkpoints, and how much is committed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pennon.columns.plan import ColumnPlan
from pennon.functions.envelope import read_envelope
from pennon.functions.error_policy import ErrorPolicy
from pennon.pipeline.cluster.resources import TaskResources

if TYPE_CHECKING:
    from collections.abc import Callable

    from pennon.columns.feature_columns import FeatureColumn
    from pennon.pipeline.backfill.checkpoints import Checkpoints
    from pennon.pipeline.backfill.commits import BackfillCommitter
    from pennon.pipeline.backfill.task import BackfillTask
    from pennon.pipeline.backfill.work_queue import WorkQueue
    from pennon.pipeline.run_signals import RunSignals


@dataclass
class PlanRun:
    """A plan, and how far it is carried out."""

    column: FeatureColumn
    plan: ColumnPlan
    checkpoints: Checkpoints
    #: Reads the state of all feature columns, so it is called only when there is something to compute.
    open_committer: Callable[[], BackfillCommitter]
    task: BackfillTask
    signals: RunSignals
    queue: WorkQueue
    committed: int = 0
    commits: int = 0

    def is_complete(self, newest: int) -> bool:
        """Return whether every fragment is committed, and the newest version holds no commit of another writer."""
        return self.committed == len(self.plan.units) and newest == self.plan.version + self.commits

    @property
    def error_policy(self) -> ErrorPolicy:
        """The error policy that the function declares."""
        function = self.task.work.function
        return ErrorPolicy() if function is None else read_envelope(function).error_policy

    @property
    def resources(self) -> TaskResources:
        """The resources that the function declares for each task."""
        function = self.task.work.function
        return TaskResources() if function is None else TaskResources.of([read_envelope(function).options])
