"""The backfill of a fragment, or of a range of its rows, on an executor.

The inputs are read, the rows computed, and checkpoints saved; for a fragment, the column file is written.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pennon.columns.row_spans import Mask, runs_of, spans_of
from pennon.columns.state import row_ids_of
from pennon.functions.failures import FunctionFailedError
from pennon.pipeline.backfill.results import ComputedRows, Results
from pennon.pipeline.backfill.work_queue import split_rows
from pennon.pipeline.task_metrics import TaskMetrics
from pennon.pipeline.task_records import add_counters, record_data_file
from pennon.tables.blobs import is_blob, scan_with_blobs

if TYPE_CHECKING:
    from lance import LanceDataset
    from lance.dataset import LanceScanner
    from lance.fragment import DataFile, LanceFragment

    from pennon.columns.plan import WorkUnit
    from pennon.pipeline.backfill.checkpoints import Checkpoints, Receipt
    from pennon.pipeline.backfill.work_queue import WorkQueue
    from pennon.pipeline.batch_sizer import BatchLimits, BatchSizer
    from pennon.pipeline.column_work import TargetColumn
    from pennon.pipeline.function_execution import Compute
    from pennon.pipeline.task_records import TaskCounters

#: A gap of at most this many bytes and rows between rows to compute is read along: two scans would cost more. Not
#: measured.
_GAP_BYTES = 1024 * 1024
_GAP_ROWS = 4096
_EXPRESSION = "computed"
#: A fragment is divided only if computing the rest would take one task longer than this: the start of another task, and
#: reading the results again for the column file, take time too. An estimate, not measured.
_LEAST_SECONDS = 0.3


@dataclass(frozen=True)
class Division:
    """Where a fragment is divided when tasks are idle, and how many may run at once."""

    queue: WorkQueue
    most_tasks: int


@dataclass
class FragmentBackfill:
    """The work on one fragment."""

    dataset: LanceDataset
    unit: WorkUnit
    #: What is read of a row: columns by their paths, or one expression.
    inputs: list[str] | str
    targets: list[TargetColumn]
    limits: BatchLimits
    checkpoints: Checkpoints
    compute: Compute
    batch_sizer: BatchSizer
    division: Division | None = None
    metrics: TaskMetrics = field(default_factory=TaskMetrics)

    def compute_range(self) -> TaskCounters:
        """Compute the missing rows, and save them as parts; another task writes the column file."""
        results = Results(self, saves_all=True)
        for start, stop, computes in self._ranges(results.missing):
            if computes:
                for _ in self._read(start, stop, [], results):
                    results.discard()
        results.save()
        return self.metrics.counters()

    def fill(
        self, uri: str, storage_options: dict[str, str] | None, earlier: Sequence[TaskCounters] = ()
    ) -> str | None:
        """Compute the missing rows, write the column file, and save its receipt.

        Returns None, or the name of the unfinished file if the fragment was divided meanwhile.
        """
        from lance.file import LanceFileWriter
        from lance.fragment import DataFile

        name = f"{uuid.uuid4().hex}.lance"
        schema = pa.schema([self.dataset.schema.field(root).remove_metadata() for root in self._roots()])
        results = Results(self)
        path, version = f"{uri}/data/{name}", self.dataset.data_storage_version
        with LanceFileWriter(path, schema, version=version, storage_options=storage_options) as writer:
            rows = checkpoints = 0
            for block in self._column_batches(results):
                began = time.perf_counter()
                writer.write_batch(block if block.schema == schema else block.cast(schema))
                self.metrics.write_seconds += time.perf_counter() - began
                rows += block.num_rows
                if results.worthy_checkpoints > checkpoints:
                    checkpoints = results.worthy_checkpoints
                    if self._divide(results, rows):
                        return name
        file = DataFile.create(self.dataset, name)
        self.metrics.bytes_written += file.file_size_bytes or 0
        self.checkpoints.save_receipt(self.unit.input_signature, self._receipt(file, results, earlier))
        return None

    def _divide(self, results: Results, at: int) -> bool:
        """Divide the rows that are left if tasks are idle, and return whether that was done."""
        if self.division is None or results.has_unsaved:
            return False
        rows = np.flatnonzero(results.missing[at:]) + at
        seconds = self.metrics.udf_seconds / max(self.metrics.rows_computed, 1) * len(rows)
        if len(rows) < 2 or seconds < _LEAST_SECONDS:
            return False
        tasks = self.division.queue.tasks_for_one(self.division.most_tasks)
        if tasks < 2:
            return False
        results.save()
        ranges = split_rows(rows, tasks, self.batch_sizer.least)
        self.division.queue.divide(self.unit, ranges, self.metrics.counters())
        return True

    def _receipt(self, file: DataFile, results: Results, earlier: Sequence[TaskCounters]) -> Receipt:
        counters: dict[str, float] = {}
        for each in (*earlier, self.metrics.counters()):
            add_counters(counters, each)
        return {
            "fragment_id": self.unit.fragment_id,
            "signature": self.unit.signature,
            "todo": self.unit.todo,
            "failed": spans_of(results.failed),
            "errors": results.errors,
            "row_ids": self._row_ids(),
            "file": record_data_file(file),
            "counters": cast("TaskCounters", counters),
        }

    def _roots(self) -> list[str]:
        return list(dict.fromkeys(target.root for target in self.targets))

    def _row_ids(self) -> list[list[int]]:
        if not self.dataset.has_stable_row_ids:
            return []
        ids = self._scan(0, self.unit.rows, [], with_row_id=True, batch_size=self.unit.rows).to_table()
        return runs_of(row_ids_of(ids))

    def _scan(self, start: int, stop: int, columns: list[str] | dict[str, str], **options: Any) -> LanceScanner:
        """Scan rows by their offsets; deleted rows count."""
        options.setdefault("batch_size", self._batch_rows())
        options.setdefault("batch_size_bytes", self.limits.batch_bytes)
        if self.unit.has_deletions or not columns:
            options["include_deleted_rows"] = options["with_row_id"] = True
        if (start, stop) != (0, self.unit.rows):
            options["offset"], options["limit"] = start, stop - start
        # Functions take the bytes of blobs, but a plain scan reads their descriptors.
        return scan_with_blobs(self.dataset, columns, fragments=[self._fragment], batch_readahead=2, **options)

    @cached_property
    def _fragment(self) -> LanceFragment:
        # The unit was planned for this version, so the fragment exists.
        return cast("LanceFragment", self.dataset.get_fragment(self.unit.fragment_id))

    def _batch_rows(self) -> int:
        by_bytes = self.limits.batch_bytes // max(self._row_bytes, 1)
        return int(max(1, min(self.limits.batch_rows, by_bytes, self.limits.most_checkpoint_rows)))

    @cached_property
    def _row_bytes(self) -> int:
        """About how many bytes a row has; the unit's files do not contain blobs, so those are added."""
        blobs = [field.name for field in self.dataset.schema if is_blob(field) and field.name in self.inputs]
        size = self.unit.bytes // max(self.unit.count, 1)
        if not blobs:
            return size
        descriptors = self.dataset.scanner(fragments=[self._fragment], columns=blobs).to_table()
        lengths: list[int] = [pc.sum(pc.struct_field(column, "size")).as_py() or 0 for column in descriptors.columns]
        return size + sum(lengths) // max(int(descriptors.num_rows), 1)

    def _column_batches(self, results: Results) -> Iterator[pa.RecordBatch]:
        """Return the new content of the top-level columns, in row order."""
        keeps = self._roots() if self._reads_present() else []
        for start, stop, computes in self._ranges(results.missing):
            if not keeps and not computes:
                yield from results.without_reading(start, stop)
                continue
            for at, batch in self._read(start, stop, keeps, results if computes else None):
                yield results.column(at, at + batch.num_rows, batch.select(keeps) if keeps else None)

    def _read(
        self, start: int, stop: int, keeps: list[str], results: Results | None
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Read a range of rows, and compute the missing ones if there are results to add them to.

        Yields batches, each with the offset of its first row.
        """
        scanner = self._scan(start, stop, self._columns(results is not None, keeps))
        for batch in self.metrics.measure_reads(iter(scanner.to_batches())):
            missing = None if results is None else results.missing[start : start + batch.num_rows]
            for piece in [batch] if missing is None else self._pieces(batch, missing):
                if results is not None:
                    self._compute(start, piece, results)
                yield start, piece
                start += piece.num_rows

    def _pieces(self, batch: pa.RecordBatch, missing: Mask) -> Iterator[pa.RecordBatch]:
        """Divide a batch into calls of the size that the batch sizer has found."""
        wanted, cut, start = np.flatnonzero(missing), 0, 0
        while start < batch.num_rows:
            cut += self.batch_sizer.rows * self.limits.threads
            stop = int(wanted[cut]) if cut < len(wanted) else batch.num_rows
            yield batch.slice(start, stop - start)
            start = stop

    def _columns(self, computes: bool, keeps: list[str]) -> list[str] | dict[str, str]:
        """Return what to read: the inputs first, if rows are computed, then the present content."""
        if isinstance(self.inputs, str):
            name = _EXPRESSION
            while name in keeps:
                name += "_"
            return {**({name: self.inputs} if computes else {}), **{root: f"`{root}`" for root in keeps}}
        return list(dict.fromkeys([*(self.inputs if computes else []), *keeps]))

    def _reads_present(self) -> bool:
        """Return whether the present content is needed: for rows that are not computed, or around a nested column."""
        return self.unit.keeps_values or any(target.path != target.root for target in self.targets)

    def _ranges(self, missing: Mask) -> Iterator[tuple[int, int, bool]]:
        """Return ranges of rows, and whether each has rows to compute; small gaps are part of such a range."""
        gap = max(1, min(_GAP_ROWS, _GAP_BYTES // max(self._row_bytes, 1)))
        at = 0
        merged: list[list[int]] = []
        for start, stop in spans_of(missing):
            if merged and start - merged[-1][1] < gap:
                merged[-1][1] = stop
            else:
                merged.append([start, stop])
        for start, stop in merged:
            if start > at:
                yield at, start, False
            yield start, stop, True
            at = stop
        if at < self.unit.rows:
            yield at, self.unit.rows, False

    def _compute(self, at: int, piece: pa.RecordBatch, results: Results) -> None:
        """Compute the missing ones among some rows."""
        from pennon.pipeline.function_execution import call_in_threads

        missing = results.missing[at : at + piece.num_rows]
        wanted = np.arange(piece.num_rows) if missing.all() else np.flatnonzero(missing)
        inputs = piece.select([0] if isinstance(self.inputs, str) else input_positions(self.inputs))
        if len(wanted) < piece.num_rows:
            inputs = inputs.take(wanted)
        if not len(wanted):
            return
        began = time.perf_counter()
        try:
            computed = call_in_threads(self.compute, inputs, self.limits.threads)
        except FunctionFailedError as error:
            error.location = self._describe(None if error.row is None else int(wanted[error.row]) + at)
            raise
        seconds = time.perf_counter() - began
        size = 0
        for start, values, errors in computed:
            size += values.nbytes
            self.metrics.rows_computed += values.num_rows
            self.metrics.rows_failed += len(errors)
            share = seconds * values.num_rows / len(wanted)
            offsets = wanted[start : start + values.num_rows] + at
            results.add(ComputedRows(offsets, values, errors), share)
        self.metrics.udf_seconds += seconds
        self.batch_sizer.update(len(wanted) // self.limits.threads, seconds, size)

    def _describe(self, row: int | None) -> str:
        """Describe where a row is, for an error message."""
        fragment = f"fragment {self.unit.fragment_id}"
        if row is None:
            return f"a batch of {fragment}"
        row_id = self._scan(row, row + 1, [], with_row_id=True).to_table().column("_rowid")[0]
        return f"row {row} of {fragment} (row id {row_id})"


def input_positions(inputs: list[str]) -> list[int]:
    """Return the position of each input among the columns that are read; a column is read once."""
    read = list(dict.fromkeys(inputs))
    return [read.index(path) for path in inputs]
