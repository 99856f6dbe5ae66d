"""The task of a view that a table function makes: the partitions of one bucket, one after the other.

Executors import this module: nothing of Lance is imported before a Python worker forked.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from pennon.pipeline.backfill.fragment import Meter, Sizes, forget_peak
from pennon.pipeline.refresh.row_task import MOST_ERRORS, error_of, guarded
from pennon.tables.snapshots import Snapshot
from pennon.views.model.definition import Definition

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from pennon.functions.error_policy import ErrorPolicy
    from pennon.functions.failures import FunctionFailedError
    from pennon.functions.sandbox.udtf_calls import SandboxedTableFunction
    from pennon.functions.udtf_calls import PartitionFailedError, TableFunction

    Ids = np.ndarray[Any, Any]
    #: A partition by its name, its value, and the ids of its rows.
    _Found = tuple[str, str, Ids]

_KEY = "__partition"
_FIRST_ROWS = 1024
_HELD_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class _Partition:
    """Rows that the function is given by one call."""

    #: For whoever is told that it failed, and for whoever looks for it.
    name: str
    value: str | None
    #: How many; none of the whole source, which nobody has counted.
    rows: int | None
    read: Callable[[], Iterable[pa.RecordBatch]]


@dataclass(frozen=True)
class PartitionTask:
    """Runs a table function over partitions of a source; each task has those of one bucket."""

    source: Snapshot
    target: Snapshot
    definition: Definition
    function: bytes = field(repr=False)
    sizes: Sizes
    run: str
    most_rows: int | None
    #: How many buckets there are, and those of this run of tasks.
    buckets: int
    groups: tuple[int, ...]

    def __call__(self, number: int) -> dict[str, Any]:
        """Run the function over a bucket; its failure is told, not raised: Spark would try it again."""
        from pennon.pipeline.refresh.fragments import FragmentWriter

        forget_peak()
        expansion = self.definition.expansion
        assert expansion is not None  # noqa: S101 - a table function has one
        writer = FragmentWriter(self.target, list(expansion.outputs), self.run, self.most_rows)

        def work() -> dict[str, Any]:
            worker = _Worker(self, number, writer)
            with worker.function():
                worker.work(self.groups[number])
            return {"fragments": [piece.to_json() for piece in writer.close()], **worker.answer()}

        return guarded(self.target, self.run, number, writer.abort, work)

    def try_out(self) -> None:
        """Load the function; what it makes of a few rows of a partition would tell little."""
        from pennon.functions.envelope import read_envelope
        from pennon.functions.loader import load
        from pennon.pipeline.computation import died_before

        if not died_before():  # else it is for the sandbox to tell
            load(read_envelope(self.function))


class _Worker:
    """One task at work."""

    def __init__(self, task: PartitionTask, number: int, writer: Any) -> None:
        from pennon.functions.envelope import read_envelope
        from pennon.functions.error_policy import policy_of
        from pennon.pipeline.refresh.run_signals import Notices
        from pennon.storage.root import open_file_io

        definition, expansion = task.definition, task.definition.expansion
        assert expansion is not None  # noqa: S101 - a table function has one
        envelope = read_envelope(task.function)
        self._task = task
        self._number = number
        self._writer = writer
        self._dataset = task.source.open()
        self._expansion = expansion
        self._name = envelope.name or "function"
        self._policy: ErrorPolicy = policy_of(
            expansion.error_handling if envelope.form != "geneva" else None, envelope.error_policy
        )
        self._columns = {column.name: column.expression for column in definition.columns}
        self._given = list(expansion.inputs) if expansion.inputs is not None else list(self._columns)
        self._schema = self._dataset.scanner(columns=self._input_columns(), limit=0).to_table().schema
        self._meter = Meter()
        self._notices = Notices(open_file_io(task.target.location, task.target.options), task.run)
        self._errors: list[dict[str, Any]] = []
        self._rows_at_once = _FIRST_ROWS
        self._function: TableFunction | SandboxedTableFunction

    @contextmanager
    def function(self) -> Iterator[None]:
        """Have the function ready: in a child process once it has killed this one."""
        from pennon.functions.envelope import read_envelope
        from pennon.functions.loader import load
        from pennon.functions.sandbox.udtf_calls import SandboxedTableFunction
        from pennon.functions.udtf_calls import TableFunction
        from pennon.pipeline.computation import died_before

        content, outputs = self._task.function, self._writer.schema
        if died_before():
            with SandboxedTableFunction(content, self._schema, outputs, self._policy) as self._function:
                yield
        else:
            self._function = TableFunction(load(read_envelope(content)), outputs, self._policy)
            yield

    def work(self, bucket: int) -> None:
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

    def answer(self) -> dict[str, Any]:
        """Return what the driver is told beside the fragments."""
        self._meter.bytes_written = self._writer.bytes_written
        return {"counters": self._meter.counters(), "known": "", "errors": self._errors}

    # One partition.

    def _run_partition(self, partition: _Partition) -> None:
        """Run the function over one partition, by the policy when it fails; what it made before does not stay then."""
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
                self._note_error(failure, partition, attempt)
            finally:
                self._meter.udf_seconds += time.perf_counter() - began
            return

    def _stream(self, partition: _Partition) -> None:
        """Write what the function makes of a partition: at once where a failure ends the job, else when it is all."""
        lasting = self._policy.on_error == "fail" and not self._policy.retries
        made = self._function.run(self._schema, self._rows(partition))
        if lasting:
            for batch in made:
                self._write(batch)
            return
        with _Held() as held:
            for batch in made:
                held.add(batch)
                self._notices.tell(self._number, self._meter.rows_computed)
            for batch in held.batches():
                self._write(batch)

    def _note_error(self, failure: PartitionFailedError, partition: _Partition, attempt: int) -> None:
        rows = partition.rows
        self._meter.rows_failed += self._dataset.count_rows(self._task.definition.where) if rows is None else rows
        if len(self._errors) < MOST_ERRORS:
            column = self._expansion.outputs[0]
            told = error_of(column, failure.type, failure.message, attempt, partition=partition.value)
            self._errors.append(told)

    def _failed(self, failure: PartitionFailedError, partition: str, attempt: int) -> FunctionFailedError:
        from pennon.functions.failures import FunctionFailedError, RowError

        failed = FunctionFailedError(self._name, RowError(0, failure.type, failure.message, attempt), row_known=False)
        failed.place = partition
        return failed

    def _write(self, batch: pa.RecordBatch) -> None:
        began = time.perf_counter()
        self._writer.write(batch)
        self._meter.write_seconds += time.perf_counter() - began
        self._notices.tell(self._number, self._meter.rows_computed)

    # Reading.

    def _input_columns(self) -> dict[str, str]:
        return {name: self._columns[name] for name in self._given}

    def _rows(self, partition: _Partition) -> Iterator[pa.RecordBatch]:
        for batch in partition.read():
            self._meter.rows_computed += batch.num_rows
            self._meter.bytes_read += batch.nbytes
            self._notices.tell(self._number, self._meter.rows_computed)
            yield batch

    def _scan(self) -> Iterator[pa.RecordBatch]:
        definition, sizes = self._task.definition, self._task.sizes
        scanner = self._dataset.scanner(
            columns=self._input_columns(),
            filter=definition.where,
            limit=definition.limit,
            offset=definition.offset,
            batch_size=sizes.batch_rows,
            batch_size_bytes=sizes.batch_bytes,
            batch_readahead=2,
        )
        yield from scanner.to_batches()

    def _take(self, ids: Ids) -> Iterator[pa.RecordBatch]:
        while len(ids):
            rows, ids = ids[: self._rows_at_once], ids[self._rows_at_once :]
            yield from self._take_at_once(rows).to_batches()

    def _take_at_once(self, ids: Ids) -> pa.Table:
        """Take rows by their ids; how many it is next time follows from how large they are."""
        import pyarrow as pa

        sizes, chosen = self._task.sizes, pa.array(ids.astype("uint64"))
        table = self._dataset._take_rows(chosen, columns=self._input_columns()).combine_chunks()  # noqa: SLF001
        fitting = max(sizes.batch_bytes * len(ids) // max(table.nbytes, 1), 1)
        self._rows_at_once = min(fitting, sizes.batch_rows, len(ids) * 8)
        return table

    # Partitions.

    def _readable(self, found: Iterable[_Found]) -> Iterator[_Partition]:
        """Return partitions with what reads their rows: a large one by itself, small ones many at a time."""
        import numpy as np

        for group in self._groups(found):
            if len(group) == 1:
                ((name, value, ids),) = group
                yield _Partition(name, value, len(ids), partial(self._take, ids))
                continue
            began, start = time.perf_counter(), 0
            table = self._take_at_once(np.concatenate([ids for _, _, ids in group]))
            self._meter.read_seconds += time.perf_counter() - began
            for name, value, ids in group:
                yield _Partition(name, value, len(ids), table.slice(start, len(ids)).to_batches)
                start += len(ids)

    def _groups(self, found: Iterable[_Found]) -> Iterator[list[_Found]]:
        """Return partitions in groups: one alone, or several with as many rows as are read at once."""
        group: list[_Found] = []
        rows = 0
        for partition in found:
            if group and rows + len(partition[2]) > self._rows_at_once:
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

        os.environ["LANCE_INCLUDE_VECTOR_CENTROIDS"] = "true"  # of the index's statistics, which have them anyway
        partitions = IndexPartitions(self._dataset, column, self._task.definition.where)
        for number in range(bucket, partitions.count, self._task.buckets):
            ids = partitions.rows(number)
            if len(ids):
                yield f"the partition {number} of the index", str(number), ids


class _Held:
    """Batches that are kept until it is known that they count: in memory, or in a file when they are many."""

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0
        self._file: Any = None
        self._writer: Any = None

    def __enter__(self) -> _Held:
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
        if self._bytes > _HELD_BYTES:
            self._spill(batch.schema)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Return what was kept, in its order."""
        import pyarrow as pa

        if self._writer is None:
            yield from self._batches
            return
        self._writer.close()
        self._file.seek(0)
        yield from pa.ipc.open_stream(self._file)

    def _spill(self, schema: pa.Schema) -> None:
        import tempfile

        import pyarrow as pa

        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed at the end of the context
        self._writer = pa.ipc.new_stream(self._file, schema)
        for batch in self._batches:
            self._writer.write_batch(batch)
        self._batches.clear()
