"""The task of a row-by-row refresh: read rows of the source, compute, and write fragments of the view.

Executors import this module: nothing of Lance is imported before a Python worker forked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from pennon.pipeline.batch_sizer import BatchLimits, BatchSizer
from pennon.pipeline.column_work import SAMPLE_ROWS, ColumnWork
from pennon.pipeline.refresh.task_result import MOST_ERRORS, finish_task
from pennon.pipeline.refresh.work_split import FragmentRange, RowIdRuns, WorkItem
from pennon.pipeline.run_signals import RunSignals, run_task
from pennon.pipeline.task_metrics import TaskMetrics, reset_peak_memory
from pennon.tables.snapshots import Snapshot
from pennon.views.model.definition import CHILD, SOURCE_ROW

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from pennon.functions.chunker_calls import Expanded
    from pennon.pipeline.function_execution import AnyExpander, Compute, Errors
    from pennon.pipeline.refresh.fragments import FragmentWriter
    from pennon.pipeline.refresh.task_result import RefreshTaskResult, SourceError
    from pennon.pipeline.task_records import TaskAnswer

    #: Computes rows of the view from a batch of the source.
    Derive = Callable[[pa.RecordBatch], list[pa.RecordBatch]]

#: The folder of run signals, in a view.
SIGNALS = "_refreshes"

_KEEP, _INPUT = "__keep", "__input"
#: The rows that are first taken by their ids; after that, their size decides. Not measured.
_FIRST_ROWS = 1024


@dataclass(frozen=True)
class Chunker:
    """A function that makes several rows of one: its bytes, its inputs, and the columns that it makes."""

    function: bytes
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Projection:
    """How rows of the view are computed from rows of the source."""

    #: Names and expressions, as Lance evaluates them.
    columns: tuple[tuple[str, str], ...]
    where: str | None = None
    functions: tuple[ColumnWork, ...] = ()
    chunker: Chunker | None = None
    limit: int | None = None
    offset: int | None = None

    @property
    def names(self) -> list[str]:
        """The columns that are written."""
        made = [target.path for work in self.functions for target in work.targets]
        if self.chunker is not None:
            made += [CHILD, *self.chunker.outputs]
        return [*(name for name, _ in self.columns), *made]


@dataclass(frozen=True)
class RowRefreshTask:
    """Computes rows of a view from groups of rows of its source; each Spark task has one group."""

    source: Snapshot
    target: Snapshot
    projection: Projection
    limits: BatchLimits
    #: Names the files and the signals of this run.
    run: str
    most_rows: int | None
    groups: tuple[tuple[WorkItem, ...], ...] = field(repr=False)

    def __call__(self, number: int) -> TaskAnswer[RefreshTaskResult]:
        """Compute the rows of one group."""
        reset_peak_memory()
        writer, signals = self._open_writer(), open_signals(self.target, self.run)

        def work() -> RefreshTaskResult:
            worker = _Worker(self, number, writer, signals)
            worker.run(self.groups[number])
            return worker.finish()

        return run_task(signals, number, work, writer.abort)

    def with_groups(self, start: int, stop: int) -> Self:
        """Return the task for some of its groups."""
        return replace(self, groups=self.groups[start:stop])

    def dry_run(self) -> None:
        """Load the functions, and call them for the first rows."""
        _Worker(self, 0, self._open_writer(), open_signals(self.target, self.run)).dry_run(self.groups[0])

    def _open_writer(self) -> FragmentWriter:
        from pennon.pipeline.refresh.fragments import FragmentWriter

        return FragmentWriter(self.target, self.projection.names, self.run, self.most_rows)


def open_signals(target: Snapshot, run: str) -> RunSignals:
    """Return the signals of a run, given the view that it refreshes."""
    from pennon.storage.root import open_file_io

    return RunSignals(open_file_io(target.location, target.options), SIGNALS, run)


class _Worker:
    """Does the work of one task."""

    def __init__(self, task: RowRefreshTask, number: int, writer: FragmentWriter, signals: RunSignals) -> None:
        self._task = task
        self._number = number
        self._writer = writer
        self._dataset = task.source.open()
        self._metrics = TaskMetrics()
        self._signals = signals
        self._batch_sizer = BatchSizer(task.limits, 1, self._call_rows())
        self._known: list[NDArray[np.int64]] = []
        self._errors: list[SourceError] = []

    def run(self, items: tuple[WorkItem, ...]) -> None:
        """Compute and write the rows of items, one after the other."""
        with self._open_derive() as derive:
            for item in items:
                for batch in self._read(item):
                    self._run_batch(batch, derive, item)

    def dry_run(self, items: tuple[WorkItem, ...]) -> None:
        """Compute the first rows of items, and write nothing."""
        with self._open_derive() as derive:
            batch = next((batch for item in items for batch in self._read(item)), None)
            if batch is not None:
                derive(batch.slice(0, SAMPLE_ROWS))

    def finish(self) -> RefreshTaskResult:
        """Complete the files, and return the result."""
        return finish_task(self._writer, self._signals, self._metrics, self._known, self._errors)

    def _run_batch(self, batch: pa.RecordBatch, derive: Derive, item: WorkItem) -> None:
        """Compute a batch in calls of the size that the batch sizer has found, and check for a stop after each."""
        start = 0
        while start < batch.num_rows:
            piece = batch.slice(start, self._batch_sizer.rows * self._task.limits.threads)
            start += piece.num_rows
            began = time.perf_counter()
            results = derive(piece)
            seconds = time.perf_counter() - began
            self._metrics.udf_seconds += seconds
            self._metrics.rows_computed += piece.num_rows
            self._batch_sizer.update(
                piece.num_rows // self._task.limits.threads, seconds, sum(r.nbytes for r in results)
            )
            began = time.perf_counter()
            for result in results:
                self._writer.write(result)
                if item.known:
                    self._known.append(result.column(SOURCE_ROW).to_numpy())
            self._metrics.write_seconds += time.perf_counter() - began
            self._signals.report_progress(self._number, self._metrics.rows_computed)

    # Reading.

    def _columns(self, *, keep: bool) -> dict[str, str]:
        from pennon.tables.field_paths import path_expression

        projection = self._task.projection
        inputs = [path for work in projection.functions for path in work.inputs]
        inputs += projection.chunker.inputs if projection.chunker else ()
        # Errors name the source row, even if the view does not keep it.
        found = {SOURCE_ROW: "_rowid"} if projection.functions or projection.chunker else {}
        found |= dict(projection.columns) | {f"{_INPUT}{at}": path_expression(path) for at, path in enumerate(inputs)}
        return found | ({_KEEP: projection.where} if keep and projection.where is not None else {})

    def _read(self, item: WorkItem) -> Iterator[pa.RecordBatch]:
        batches = self._take(item) if isinstance(item, RowIdRuns) else self._scan(item)
        for read in self._metrics.measure_reads(batches):
            has_filter = _KEEP in read.schema.names
            batch = read.filter(read.column(_KEEP)).drop_columns([_KEEP]) if has_filter else read
            if batch.num_rows:
                yield batch

    def _scan(self, item: FragmentRange) -> Iterator[pa.RecordBatch]:
        projection, limits = self._task.projection, self._task.limits
        is_limited = projection.limit is not None or projection.offset is not None
        options: dict[str, Any] = {}
        if is_limited:
            options = {"limit": projection.limit, "offset": projection.offset}
        else:
            options["fragments"] = [self._dataset.get_fragment(item.fragment_id)]
            if not item.is_whole:
                options |= {"offset": item.start, "limit": item.rows}
        whole = is_limited or item.is_whole
        scanner = self._dataset.scanner(
            columns=self._columns(keep=not whole),
            filter=projection.where if whole else None,
            batch_size=limits.batch_rows,
            batch_size_bytes=limits.batch_bytes,
            batch_readahead=2,
            **options,
        )
        yield from scanner.to_batches()

    def _take(self, item: RowIdRuns) -> Iterator[pa.RecordBatch]:
        """Take rows by their ids; their size decides how many at a time."""
        import pyarrow as pa

        from pennon.columns.row_spans import numbers_of

        ids = numbers_of(item.runs).astype("uint64")
        columns, limits = self._columns(keep=True), self._task.limits
        start, rows = 0, _FIRST_ROWS
        while start < len(ids):
            table = self._dataset._take_rows(pa.array(ids[start : start + rows]), columns=columns)  # noqa: SLF001
            start += rows
            rows = int(min(max(limits.batch_bytes * rows // max(table.nbytes, 1), 1), limits.batch_rows, rows * 8))
            yield from table.combine_chunks().to_batches()

    # Computing.

    def _call_rows(self) -> int:
        from pennon.functions.envelope import read_envelope

        projection = self._task.projection
        contents = [work.function for work in projection.functions if work.function is not None]
        contents += [projection.chunker.function] if projection.chunker else []
        sizes = [read_envelope(content).options.batch_size for content in contents]
        return min([self._task.limits.batch_rows, *(size for size in sizes if size)])

    @contextmanager
    def _open_derive(self) -> Iterator[Derive]:
        from pennon.pipeline.function_execution import open_compute

        projection = self._task.projection
        if projection.chunker is not None:
            with self._open_expand(projection.chunker) as expand:
                yield expand
        elif projection.functions:
            with ExitStack() as opened:
                schema = self._writer.schema
                functions = [opened.enter_context(open_compute(work, schema)) for work in projection.functions]
                yield lambda batch: [self._apply(batch, functions)]
        else:
            yield lambda batch: [batch]

    def _apply(self, batch: pa.RecordBatch, functions: list[Compute]) -> pa.RecordBatch:
        """Return the columns of the view for rows of the source."""
        import pyarrow as pa

        from pennon.functions.results import concat_batches
        from pennon.pipeline.function_execution import call_in_threads

        projection = self._task.projection
        names = [name for name, _ in projection.columns]
        columns = [batch.column(name) for name in names]
        at = 0
        for work, compute in zip(projection.functions, functions, strict=True):
            inputs = batch.select([f"{_INPUT}{at + number}" for number in range(len(work.inputs))])
            at += len(work.inputs)
            with self._describing_row(batch):
                pieces = call_in_threads(compute, inputs, self._task.limits.threads)
            values = [values for _, values, _ in pieces]
            columns += concat_batches(values, values[0].schema).columns
            names += [target.path for target in work.targets]
            for start, _, errors in pieces:
                self._add_errors(batch.slice(start), work.targets[0].path, errors)
        return pa.RecordBatch.from_arrays(columns, names=names)

    @contextmanager
    def _open_expand(self, chunker: Chunker) -> Iterator[Derive]:
        """Yield what makes children of rows, each with its parent's columns and its index among its siblings."""
        import pyarrow as pa

        from pennon.pipeline.function_execution import open_expanders

        inputs = [f"{_INPUT}{at}" for at in range(len(chunker.inputs))]
        schema = pa.schema([self._writer.schema.field(name) for name in chunker.outputs])
        names = [name for name, _ in self._task.projection.columns]

        def with_parents(batch: pa.RecordBatch, piece: Expanded) -> pa.RecordBatch:
            parents = batch.select(names).take(piece.parent_rows)
            columns = [*parents.columns, pa.array(piece.child_indexes), *piece.values.columns]
            return pa.RecordBatch.from_arrays(columns, names=[*names, CHILD, *chunker.outputs])

        def expand_part(expander: AnyExpander, part: pa.RecordBatch) -> list[pa.RecordBatch]:
            with self._describing_row(part):
                pieces, errors = expander.expand(part.select(inputs))
            found = [(error.row, error.type, error.message, error.attempt) for error in errors]
            self._add_errors(part, chunker.outputs[0], found)
            return [with_parents(part, piece) for piece in pieces]

        def expand(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
            if len(expanders) == 1:
                return expand_part(expanders[0], batch)
            size = -(-batch.num_rows // len(expanders))
            parts = [batch.slice(start, size) for start in range(0, batch.num_rows, size)]
            with ThreadPoolExecutor(len(parts)) as pool:
                found = list(pool.map(expand_part, expanders, parts))
            return [piece for pieces in found for piece in pieces]

        with open_expanders(chunker.function, chunker.inputs, schema, self._task.limits.threads) as expanders:
            yield expand

    @contextmanager
    def _describing_row(self, batch: pa.RecordBatch) -> Iterator[None]:
        """Add to a function's error which row of the source it is about."""
        from pennon.functions.failures import FunctionFailedError

        try:
            yield
        except FunctionFailedError as error:
            if error.row is not None:
                error.location = f"the source's row with id {batch.column(SOURCE_ROW)[error.row]}"
            raise

    def _add_errors(self, batch: pa.RecordBatch, column: str, errors: Errors) -> None:
        self._metrics.rows_failed += len(errors)
        ids = batch.column(SOURCE_ROW)
        for row, kind, message, attempt in errors[: max(MOST_ERRORS - len(self._errors), 0)]:
            self._errors.append(
                {
                    "column": column,
                    "row": ids[row].as_py(),
                    "partition": None,
                    "error_type": kind,
                    "error_message": message,
                    "attempt": attempt,
                }
            )
