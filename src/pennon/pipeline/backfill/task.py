"""The task of a backfill: it claims fragments, or ranges of their rows, and fills them one after the other.

Executors import this module: nothing of Lance is imported before a Python worker forked.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from pennon.columns.plan import WorkUnit
from pennon.columns.row_spans import as_spans
from pennon.pipeline.backfill.fragment import FragmentBackfill, input_positions
from pennon.pipeline.batch_sizer import BatchLimits, BatchSizer
from pennon.pipeline.column_work import SAMPLE_ROWS, ColumnWork
from pennon.pipeline.run_signals import RunSignals, run_task
from pennon.pipeline.task_metrics import reset_peak_memory
from pennon.storage.layout import branch_folder
from pennon.tables.blobs import scan_with_blobs
from pennon.tables.snapshots import Snapshot

if TYPE_CHECKING:
    import pyarrow as pa
    from lance import LanceDataset
    from lance.fragment import LanceFragment

    from pennon.pipeline.backfill.checkpoints import Checkpoints, Receipt
    from pennon.pipeline.backfill.work_queue import QueuedWork, WorkQueue
    from pennon.pipeline.function_execution import Errors
    from pennon.pipeline.task_records import TaskAnswer
    from pennon.storage.file_io import FileIO


@dataclass(frozen=True)
class BackfillTask:
    """Fills fragments; each task claims one after the other, or ranges of their rows."""

    source: Snapshot
    work: ColumnWork
    limits: BatchLimits
    checkpoint_path: str
    units: tuple[WorkUnit, ...] = field(repr=False)
    #: How many tasks share the fragments at first, and how many may run at once.
    share: int = 1
    most_tasks: int = 1
    #: The most rows of a task, if its first fragment has no more.
    most_rows: int | None = None
    #: The number of the first task that Spark runs.
    first: int = 0
    #: Names the signals and the queue of this run of tasks.
    run: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __call__(self, number: int) -> TaskAnswer[None]:
        """Do what is left of the work."""
        from pennon.pipeline.backfill.checkpoints import Checkpoints
        from pennon.storage.root import open_file_io

        files = open_file_io(self.source.location, self.source.options)
        number += self.first
        signals, checkpoints = self.signals(files), Checkpoints(files, self.checkpoint_path)
        return run_task(signals, number, lambda: self._fill(number, files, checkpoints, signals))

    def signals(self, files: FileIO) -> RunSignals:
        """Return the signals of this run, given the table's folder."""
        from pennon.pipeline.backfill.checkpoints import signals_path

        return RunSignals(files, signals_path(self.checkpoint_path), self.run)

    def queue(self, files: FileIO) -> WorkQueue:
        """Return the work queue of this run, given the table's folder."""
        from pennon.pipeline.backfill.checkpoints import queue_path
        from pennon.pipeline.backfill.work_queue import WorkQueue

        return WorkQueue(files, queue_path(self.checkpoint_path), self.run, self.units)

    def dry_run(self) -> None:
        """Load the function, and call it for the first rows."""
        from pennon.pipeline.function_execution import open_compute

        dataset = self.source.open()
        with open_compute(self.work, dataset.schema) as compute:
            compute(_sample(dataset, self.units[0], list(self.work.inputs)))

    def _fill(self, number: int, files: FileIO, checkpoints: Checkpoints, signals: RunSignals) -> None:
        """Claim work until none is left, and do it."""
        from pennon.pipeline.backfill.fragment import Division
        from pennon.pipeline.function_execution import has_crashed_before, open_compute

        reset_peak_memory()
        queue, is_retry = self.queue(files), has_crashed_before()
        if number >= self.share and not is_retry and not queue.state().open:
            queue.end(number)  # others were faster, and loading the function may take long
            return
        dataset = self.source.open()
        batch_sizer = BatchSizer(self.limits, *self._call_rows())
        division = Division(queue, self.most_tasks)
        # Work is claimed only when the function is loaded: others would wait for it.
        with open_compute(self.work, dataset.schema) as compute:

            def compute_if_open(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Errors]:
                # Spark ends a cancelled task seconds later, and what it computes until then is computed twice.
                signals.check()
                return compute(batch)

            for work in queue.claim(number, self.share, self.most_rows, is_retry=is_retry):
                fragment = FragmentBackfill(
                    dataset, work.unit, self._inputs(), list(self.work.targets), self.limits, checkpoints,
                    compute_if_open, batch_sizer, division if work.is_whole else None,
                )  # fmt: skip
                self._do(work, fragment, queue, files)

    def _do(self, work: QueuedWork, fragment: FragmentBackfill, queue: WorkQueue, files: FileIO) -> None:
        """Do a piece of work, and record that it is done, unless it was divided meanwhile."""
        if work.is_range:
            queue.finish(work, fragment.compute_range())
            return
        if not is_receipt_for(fragment.checkpoints.receipt(work.unit.input_signature), work.unit):
            earlier = queue.earlier_counters(work.unit)
            unfinished = fragment.fill(self.source.home, self.source.options or None, earlier)
            if unfinished is not None:
                files.remove(f"{branch_folder(self.source.branch)}data/{unfinished}")
                return
        queue.finish(work, None)

    def _inputs(self) -> list[str] | str:
        return self.work.expression if self.work.expression is not None else list(self.work.inputs)

    def _call_rows(self) -> tuple[int, int]:
        """Return the least and the most rows of a call: the function's ``batch_size``, if a checkpoint can hold it."""
        from pennon.functions.envelope import read_envelope

        most = min(self.limits.batch_rows, self.limits.most_checkpoint_rows)
        if self.work.function is None:
            return 1, most
        envelope = read_envelope(self.work.function)
        most = min(most, envelope.options.batch_size or most)
        return most if envelope.options.batch_size and envelope.kind != "scalar" else 1, most


def is_receipt_for(receipt: Receipt | None, unit: WorkUnit) -> bool:
    """Return whether a receipt says that the work of this unit is done."""
    if receipt is None or receipt["signature"] != unit.signature:
        return False
    return as_spans(receipt["todo"]) == unit.todo


def _sample(dataset: LanceDataset, unit: WorkUnit, inputs: list[str]) -> pa.RecordBatch:
    start = unit.todo[0][0]
    stop = min(unit.todo[0][1], start + SAMPLE_ROWS)
    scanner = scan_with_blobs(
        dataset,
        list(dict.fromkeys(inputs)),
        fragments=[cast("LanceFragment", dataset.get_fragment(unit.fragment_id))],
        offset=start,
        limit=stop - start,
        # Deleted rows keep their offsets only if they are read along.
        include_deleted_rows=unit.has_deletions,
        with_row_id=unit.has_deletions,
    )
    table = scanner.to_table().select(input_positions(inputs)).combine_chunks()
    return table.to_batches()[0]
