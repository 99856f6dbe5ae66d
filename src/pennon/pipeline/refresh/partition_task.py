"""The task of a view over a table function: it runs the function for the partitions of one bucket.

Executors import this module: nothing of Lance is imported before a Python worker forked.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from io import IOBase
from typing import TYPE_CHECKING, Self, cast

from pennon.pipeline.batch_sizer import BatchLimits
from pennon.pipeline.refresh.row_task import open_signals
from pennon.pipeline.refresh.task_result import MOST_ERRORS, finish_task
from pennon.pipeline.run_signals import RunSignals, run_task
from pennon.pipeline.task_metrics import TaskMetrics, reset_peak_memory
from pennon.tables.snapshots import Snapshot
from pennon.views.model.definition import Definition

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from pennon.functions.error_policy import ErrorPolicy
    from pennon.functions.failures import FunctionFailedError
    from pennon.functions.sandbox.udtf_calls import SandboxedTableFunction
    from pennon.functions.udtf_calls import PartitionFailedError, TableFunction
    from pennon.pipeline.refresh.fragments import FragmentWriter
    from pennon.pipeline.refresh.task_result import RefreshTaskResult, SourceError
    from pennon.pipeline.task_records import TaskAnswer

    Ids = NDArray[np.integer]
    #: A partition: its description, its value, and the ids of its rows.
    _Found = tuple[str, str, Ids]

_KEY = "__partition"
#: The rows that are first taken by their ids; after that, their size decides. Not measured.
_FIRST_ROWS = 1024
#: Batches beyond this many bytes are kept in a file until their partition has succeeded. Not measured.
_BUFFER_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class _Partition:
    """The rows of one call of the function."""

    #: Describes it in error messages.
    name: str
    #: Identifies it in recorded errors.
    value: str | None
    #: The number of rows; None for the whole source, which is not counted.
    rows: int | None
    read: Callable[[], Iterable[pa.RecordBatch]]


@dataclass(frozen=True)
class PartitionTask:
    """Runs a table function over the partitions of a source; each Spark task has one bucket of them."""

    source: Snapshot
    target: Snapshot
    definition: Definition
    function: bytes = field(repr=False)
    limits: BatchLimits
    run: str
    most_rows: int | None
    #: The number of buckets, and those of this run of tasks.
    buckets: int
    groups: tuple[int, ...]

    def __call__(self, number: int) -> TaskAnswer[RefreshTaskResult]:
        """Run the function over one bucket."""
        from pennon.pipeline.refresh.fragments import FragmentWriter

        reset_peak_memory()
        expansion = self.definition.expansion
        assert expansion is not None  # noqa: S101 (a table function has one)
        writer = FragmentWriter(self.target, list(expansion.outputs), self.run, self.most_rows)
        signals = open_signals(self.target, self.run)

        def work() -> RefreshTaskResult:
            worker = _Worker(self, number, writer, signals)
            with worker.open_function():
                worker.run(self.groups[number])
            return worker.finish()

        return run_task(signals, number, work, writer.abort)

    def with_groups(self, start: int, stop: int) -> Self:
        """Return the task for some of its groups."""
        return replace(self, groups=self.groups[start:stop])

    def dry_run(self) -> None:
        """Load the function; a call for a few rows of a partition would prove little."""
        from pennon.functions.envelope import read_envelope
        from pennon.functions.loader import load
        from pennon.pipeline.function_execution import has_crashed_before

        if not has_crashed_before():  # otherwise the sandbox loads it
            load(read_envelope(self.function))


class _Worker:
    """Does the work of one task."""

    def __init__(self, task: PartitionTask, number: int, writer: FragmentWriter, signals: RunSignals) -> None:
        from pennon.functions.envelope import read_envelope
        from pennon.functions.error_policy import effective_policy

        definition, expansion = task.definition, task.definition.expansion
        assert expansion is not None  # noqa: S101 (a table function has one)
        envelope = read_envelope(task.function)
        self._task = task
        self._number = number
        self._writer = writer
        self._dataset = task.source.open()
        self._expansion = expansion
        self._name = envelope.name or "function"
        self._policy: ErrorPolicy = effective_policy(
            expansion.error_handling if envelope.form != "geneva" else None, envelope.error_policy
        )
        self._columns = {column.name: column.expression for column in definition.columns}
        self._inputs = list(expansion.inputs) if expansion.inputs is not None else list(self._columns)
        self._schema = self._dataset.scanner(columns=self._input_columns(), limit=0).to_table().schema
        self._metrics = TaskMetrics()
        self._signals = signals
        self._errors: list[SourceError] = []
        self._take_rows = _FIRST_ROWS
        self._function: TableFunction | SandboxedTableFunction

    @contextmanager
    def open_function(self) -> Iterator[None]:
        """Load the function, into a sandbox process if an earlier attempt crashed."""
        from pennon.functions.envelope import read_envelope
        from pennon.functions.loader import load
        from pennon.functions.sandbox.udtf_calls import SandboxedTableFunction
        from pennon.functions.udtf_calls import TableFunction
        from pennon.pipeline.function_execution import has_crashed_before

        content, outputs = self._task.function, self._writer.schema
        if has_crashed_before():
            with SandboxedTableFunction(content, self._schema, outputs, self._policy) as self._function:
                yield
        else:
            self._function = TableFunction(load(read_envelope(content)), outputs, self._policy)
            yield

    def run(self, bucket: int) -> None:
        """Run the function over the partitions of a bucket."""
        if self._expansion.partition_by is not None:
            found = self._by_value(self._expansion.partition_by, bucket)
        elif self._expansion.partition_by_indexed_column is not None:
            found = self._by_index(self._expansion.partition_by_indexed_column, bucket)
        else:
            self._run_partition(_Partition("the whole source", None, None, self._scan))
            return
        for partition in self._readable(found):
            self._run_partition(partition)

    def finish(self) -> RefreshTaskResult:
        """Complete the files, and return the result."""
        return finish_task(self._writer, self._signals, self._metrics, errors=self._errors)

    # One partition.

    def _run_partition(self, partition: _Partition) -> None:
        """Run the function over one partition; the error policy decides about retries, and a failure leaves no rows."""
        from pennon.functions.udtf_calls import PartitionFailedError

        attempt = 1
        while True:
            began = time.perf_counter()
            try:
                self._stream(partition)
            except PartitionFailedError as failure:
                rule = failure.rule
                if rule is not None and attempt < rule.attempts:
                    time.sleep(rule.delay(attempt))
                    attempt += 1
                    continue
                if self._policy.on_error == "fail":
                    raise self._failed(failure, partition.name, attempt) from failure
                self._add_error(failure, partition, attempt)
            finally:
                self._metrics.udf_seconds += time.perf_counter() - began
            return

    def _stream(self, partition: _Partition) -> None:
        """Write the rows of a partition: batch by batch if a failure ends the job, otherwise when it has succeeded."""
        fails_job = self._policy.on_error == "fail" and not self._policy.retries
        made = self._function.run(self._schema, self._rows(partition))
        if fails_job:
            for batch in made:
                self._write(batch)
            return
        with _BatchBuffer() as buffer:
            for batch in made:
                buffer.add(batch)
                self._signals.report_progress(self._number, self._metrics.rows_computed)
            for batch in buffer.batches():
                self._write(batch)

    def _add_error(self, failure: PartitionFailedError, partition: _Partition, attempt: int) -> None:
        rows = partition.rows
        self._metrics.rows_failed += self._dataset.count_rows(self._task.definition.where) if rows is None else rows
        if len(self._errors) < MOST_ERRORS:
            self._errors.append(
                {
                    "column": self._expansion.outputs[0],
                    "row": None,
                    "partition": partition.value,
                    "error_type": failure.type,
                    "error_message": failure.message,
                    "attempt": attempt,
                }
            )

    def _failed(self, failure: PartitionFailedError, partition: str, attempt: int) -> FunctionFailedError:
        from pennon.functions.failures import FunctionFailedError, RowError

        failed = FunctionFailedError(self._name, RowError(0, failure.type, failure.message, attempt), row_known=False)
        failed.location = partition
        return failed

    def _write(self, batch: pa.RecordBatch) -> None:
        began = time.perf_counter()
        self._writer.write(batch)
        self._metrics.write_seconds += time.perf_counter() - began
        self._signals.report_progress(self._number, self._metrics.rows_computed)

    # Reading.

    def _input_columns(self) -> dict[str, str]:
        return {name: self._columns[name] for name in self._inputs}

    def _rows(self, partition: _Partition) -> Iterator[pa.RecordBatch]:
        for batch in partition.read():
            self._metrics.rows_computed += batch.num_rows
            self._metrics.bytes_read += batch.nbytes
            self._signals.report_progress(self._number, self._metrics.rows_computed)
            yield batch

    def _scan(self) -> Iterator[pa.RecordBatch]:
        definition, limits = self._task.definition, self._task.limits
        scanner = self._dataset.scanner(
            columns=self._input_columns(),
            filter=definition.where,
            limit=definition.limit,
            offset=definition.offset,
            batch_size=limits.batch_rows,
            batch_size_bytes=limits.batch_bytes,
            batch_readahead=2,
        )
        yield from scanner.to_batches()

    def _take(self, ids: Ids) -> Iterator[pa.RecordBatch]:
        while len(ids):
            rows, ids = ids[: self._take_rows], ids[self._take_rows :]
            yield from self._take_table(rows).to_batches()

    def _take_table(self, ids: Ids) -> pa.Table:
        """Take rows by their ids; their size decides how many are taken next time."""
        import pyarrow as pa

        limits, chosen = self._task.limits, pa.array(ids.astype("uint64"))
        table: pa.Table = self._dataset._take_rows(chosen, columns=self._input_columns()).combine_chunks()  # noqa: SLF001
        fitting = max(limits.batch_bytes * len(ids) // max(table.nbytes, 1), 1)
        self._take_rows = min(fitting, limits.batch_rows, len(ids) * 8)
        return table

    # Partitions.

    def _readable(self, found: Iterable[_Found]) -> Iterator[_Partition]:
        """Return partitions that can be read: large ones are read one by one, small ones many at a time."""
        import numpy as np

        for group in self._groups(found):
            if len(group) == 1:
                ((name, value, ids),) = group
                yield _Partition(name, value, len(ids), partial(self._take, ids))
                continue
            began, start = time.perf_counter(), 0
            table = self._take_table(np.concatenate([ids for _, _, ids in group]))
            self._metrics.read_seconds += time.perf_counter() - began
            for name, value, ids in group:
                yield _Partition(name, value, len(ids), table.slice(start, len(ids)).to_batches)
                start += len(ids)

    def _groups(self, found: Iterable[_Found]) -> Iterator[list[_Found]]:
        """Return partitions in groups: a large one alone, or several small ones that are read together."""
        group: list[_Found] = []
        rows = 0
        for partition in found:
            if group and rows + len(partition[2]) > self._take_rows:
                yield group
                group, rows = [], 0
            group.append(partition)
            rows += len(partition[2])
        if group:
            yield group

    def _by_value(self, column: str, bucket: int) -> Iterator[_Found]:
        """Return the values of a column that belong to a bucket, with the ids of their rows."""
        from pennon.pipeline.refresh.buckets import Bucket
        from pennon.tables.field_paths import path_expression

        definition = self._task.definition
        expression = self._columns.get(column) or path_expression(column)
        scanner = self._dataset.scanner(
            columns={_KEY: expression, "_rowid": "_rowid"},
            filter=definition.where,
            limit=definition.limit,
            offset=definition.offset,
        )
        values = Bucket(bucket, self._task.buckets)
        for batch in scanner.to_batches():
            values.add(batch.column(_KEY), batch.column("_rowid").to_numpy())
        for key, ids in values.rows():
            yield f"the partition {column} = {key!r}", str(key), ids

    def _by_index(self, column: str, bucket: int) -> Iterator[_Found]:
        """Return the partitions of an IVF index that belong to a bucket, with the ids of their rows."""
        from pennon.pipeline.refresh.ivf_partitions import IndexPartitions

        os.environ["LANCE_INCLUDE_VECTOR_CENTROIDS"] = "true"  # Lance then adds the centroids to the statistics
        partitions = IndexPartitions(self._dataset, column, self._task.definition.where)
        for number in range(bucket, partitions.count, self._task.buckets):
            ids = partitions.rows(number)
            if len(ids):
                yield f"the partition {number} of the index", str(number), ids


class _BatchBuffer:
    """Keeps the batches of a partition until it has succeeded: in memory, or in a file if they are large."""

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0
        self._file: IOBase | None = None
        self._writer: pa.ipc.RecordBatchStreamWriter | None = None

    def __enter__(self) -> _BatchBuffer:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, batch: pa.RecordBatch) -> None:
        """Keep a batch."""
        if self._writer is not None:
            self._writer.write_batch(batch)
            return
        self._batches.append(batch)
        self._bytes += batch.nbytes
        if self._bytes > _BUFFER_BYTES:
            self._spill(batch.schema)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Return all batches, in order."""
        import pyarrow as pa

        if self._writer is None or self._file is None:
            yield from self._batches
            return
        self._writer.close()
        self._file.seek(0)
        yield from pa.ipc.open_stream(self._file)

    def _spill(self, schema: pa.Schema) -> None:
        import tempfile

        import pyarrow as pa

        self._file = cast("IOBase", tempfile.TemporaryFile())  # noqa: SIM115 (closed at the end of the context)
        self._writer = pa.ipc.new_stream(self._file, schema)
        for batch in self._batches:
            self._writer.write_batch(batch)
        self._batches.clear()
