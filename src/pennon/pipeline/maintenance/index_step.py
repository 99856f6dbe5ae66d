"""The step of a maintenance job that adds new rows to indexes, merges their segments, and trains them again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lance_namespace.errors import ConcurrentModificationError, LanceNamespaceError

from pennon.catalog import maintenance_state
from pennon.maintenance import guard, index_upkeep
from pennon.maintenance.guard import DeletionFiles, Folds
from pennon.pipeline.cancellation import run_cancellable
from pennon.tables.lance_errors import typed_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lance import LanceDataset

    from pennon.maintenance.index_upkeep import IndexState, IndexTask
    from pennon.pipeline.maintenance.table_work import TableWork

OPERATION = "OptimizeIndices"
#: How often an index is tried again after another commit changed it first.
_ATTEMPTS = 3


@dataclass(frozen=True)
class _Done:
    """The outcome of a task: the segments that it made, from a version with these deletion files."""

    version: int
    segments: frozenset[str]
    deletions: DeletionFiles
    was_retrained: bool


class IndexStep:
    """Keeps the indexes of one table."""

    def __init__(self, work: TableWork, folds: Folds) -> None:
        self._work = work
        self._folds = folds

    def run(self, unclean: frozenset[int] = frozenset(), only: Callable[[IndexState], bool] = lambda _: True) -> None:
        """Do what is due on the indexes; vector indexes lose the deleted rows of the fragments in ``unclean``."""
        work = self._work
        dataset = work.services.datasets.at(work.table, work.branch, None)
        states = [state for state in index_upkeep.index_states(dataset) if only(state)]
        tasks = index_upkeep.plan(dataset, states, work.policy, unclean=unclean, is_stale=self._is_stale())
        for task in tasks:
            work.lease.add_event("planned", {"reason": task.reason, "rows": task.rows}, task.name)
        work.lease.add(indices_planned=len(tasks))
        for batch in index_upkeep.batch(tasks, states):
            names = {task.name for task in batch}
            self._run_batch(batch, [state for state in states if state.name in names])

    def _is_stale(self) -> bool:
        """Return whether a client's compaction has left entries of deleted rows, as was noticed at its commit."""
        work = self._work
        branch = work.services.database.read(
            lambda connection: maintenance_state.find(connection, work.table.id, work.branch)
        )
        return branch is not None and branch.has_stale_entries

    def _run_batch(self, tasks: Sequence[IndexTask], states: Sequence[IndexState]) -> None:
        work = self._work
        for left in reversed(range(_ATTEMPTS)):
            work.check()
            try:
                # It may take long and cannot be interrupted. When the job must stop, it is abandoned: a job without
                # its lease cannot commit.
                done = run_cancellable(lambda: self._commit(tasks), work.check).result()
            except ConcurrentModificationError:
                if work.refusal is not None:
                    raise work.refusal from None
                if not left:
                    raise
                continue
            break
        if done is None:
            return
        work.services.queue.end_commit(work.lease.job)
        if not done.was_retrained:
            self._folds.add(done.segments, done.deletions)
        merged = sum(len(state.segments) for state in states) if done.was_retrained else sum(t.merge for t in tasks)
        work.lease.add(
            indices_committed=len(tasks),
            rows_indexed=sum(state.unindexed_rows for state in states),
            segments_merged=merged,
            indices_retrained=int(done.was_retrained),
        )
        data = {"version": done.version, "retrained": done.was_retrained}
        work.lease.add_event("committed", data, ", ".join(task.name for task in tasks))

    def _commit(self, tasks: Sequence[IndexTask]) -> _Done | None:
        """Do a batch of tasks; None if there was nothing to do any more."""
        work = self._work
        dataset, committer = work.services.datasets.open_for_writing(
            work.table, work.branch, lambda connection: work.record(connection, OPERATION)
        )
        before, deletions = dataset.version, guard.deletion_files(dataset)
        try:
            with typed_errors():
                was_retrained = index_upkeep.run(dataset, tasks)
        except Exception as error:
            if isinstance(committer.failure, LanceNamespaceError):
                raise committer.failure from error
            raise
        if dataset.version == before:
            return None
        return _Done(dataset.version, _new_segments(dataset), deletions, was_retrained)


def _new_segments(dataset: LanceDataset) -> frozenset[str]:
    """Return the segments that the last commit of a dataset has made."""
    transaction = dataset.read_transaction(dataset.version)
    operation = transaction.operation if transaction is not None else None
    return frozenset(str(index.uuid) for index in getattr(operation, "new_indices", ()))
