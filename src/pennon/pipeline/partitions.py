"""The task of a view that a table function makes: the partitions of one bucket, one after the other.

Executors import this module: nothing of Lance is imported before a Python worker forked.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pennon.lake.snapshots import Snapshot
from pennon.pipeline.derivation import guarded
from pennon.pipeline.filling import Meter, Sizes, forget_peak
from pennon.views.definition import Definition

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from pennon.functions.policy import ErrorPolicy
    from pennon.functions.streaming import TableFunction

_KEY = "__partition"
_FIRST_ROWS = 1024
_HELD_BYTES = 64 * 1024 * 1024


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
        from pennon.pipeline.fragments import FragmentWriter

        forget_peak()
        expansion = self.definition.expansion
        assert expansion is not None  # noqa: S101 - a table function has one
        writer = FragmentWriter(self.target, list(expansion.outputs), self.run, self.most_rows)

        def work() -> dict[str, Any]:
            worker = _Worker(self, number, writer)
            worker.work(self.groups[number])
            return {"fragments": [piece.to_json() for piece in writer.close()], **worker.answer()}

        return guarded(self.target, self.run, number, writer.abort, work)


class _Worker:
    """One task at work."""

    def __init__(self, task: PartitionTask, number: int, writer: Any) -> None:
        from pennon.functions.envelope import read_envelope
        from pennon.functions.loading import load
        from pennon.functions.policy import policy_of
        from pennon.functions.streaming import TableFunction
        from pennon.lake.places import open_folder
        from pennon.pipeline.notices import Notices

        definition, expansion = task.definition, task.definition.expansion
        assert expansion is not None  # noqa: S101 - a table function has one
        envelope = read_envelope(task.function)
        self._task = task
        self._number = number
        self._writer = writer
        self._dataset = task.source.open()
        self._expansion = expansion
        self._timeout = envelope.options.timeout
        self._function: TableFunction = TableFunction(load(envelope), writer.schema)
        self._policy: ErrorPolicy = policy_of(
            expansion.error_handling if envelope.form != "geneva" else None, envelope.error_policy
        )
        self._columns = {column.name: column.expression for column in definition.columns}
        self._given = list(expansion.inputs) if expansion.inputs is not None else list(self._columns)
        self._schema = self._dataset.scanner(columns=self._input_columns(), limit=0).to_table().schema
        self._meter = Meter()
        self._notices = Notices(open_folder(task.target.location, task.target.options), task.run)
        self._errors: list[tuple[None, str, str]] = []

    def work(self, bucket: int) -> None:
        """Run the function over the partitions of a bucket."""
        if self._expansion.partition_by is not None:
            for key, ids in self._by_value(self._expansion.partition_by, bucket):
                self._run_partition(f"the partition {self._expansion.partition_by} = {key!r}", ids)
        elif self._expansion.partition_by_indexed_column is not None:
            for number, ids in self._by_index(self._expansion.partition_by_indexed_column, bucket):
                self._run_partition(f"the partition {number} of the index", ids)
        else:
            self._run_partition("the whole source", None)

    def answer(self) -> dict[str, Any]:
        """Return what the driver is told beside the fragments."""
        self._meter.bytes_written = self._writer.bytes_written
        return {"counters": self._meter.counters(), "known": "", "errors": self._errors}

    # One partition.

    def _run_partition(self, name: str, ids: np.ndarray[Any, Any] | None) -> None:
        """Run the function over one partition, by the policy when it fails; what it made before does not stay then."""
        from pennon.functions.failures import name_of, text_of

        attempt = 1
        while True:
            began = time.perf_counter()
            try:
                self._stream(ids)
            except _FunctionRaised as raised:
                error = raised.error
                rule = self._policy.rule_for(error)
                if rule is not None and attempt < rule.attempts:
                    time.sleep(rule.delay(attempt))
                    attempt += 1
                    continue
                if self._policy.on_error == "fail":
                    raise self._function.failed(error, name, attempt) from error
                self._meter.rows_failed += 1 if ids is None else len(ids)
                self._errors.append((None, name_of(type(error)), f"{name}: {text_of(error)}"))
            finally:
                self._meter.udf_seconds += time.perf_counter() - began
            return

    def _stream(self, ids: np.ndarray[Any, Any] | None) -> None:
        """Write what the function makes of a partition: at once where a failure ends the job, else when it is all."""
        lasting = self._policy.on_error == "fail" and not self._policy.retries
        made = self._made(ids)
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

    def _made(self, ids: np.ndarray[Any, Any] | None) -> Iterator[pa.RecordBatch]:
        """Yield what the function makes of a partition; each batch has the time that its author gave a call."""
        from pennon.functions.applying import GRACE_SECONDS
        from pennon.functions.deadlines import CallTimedOut, Deadline

        batches = _Tracked(self._rows(ids))
        stream = self._function.stream(self._schema, iter(batches))
        deadline = Deadline(self._timeout, GRACE_SECONDS)
        following = deadline.limit(lambda: next(stream, None))
        while True:
            try:
                with deadline:
                    batch = following()
            except (KeyboardInterrupt, GeneratorExit):
                raise
            except CallTimedOut as error:
                raise _FunctionRaised(TimeoutError(f"A batch took longer than {self._timeout} s.")) from error
            except BaseException as error:
                if batches.error is error:
                    raise  # it comes from reading, not from the function
                raise _FunctionRaised(error) from error
            if batch is None:
                return
            yield batch

    def _write(self, batch: pa.RecordBatch) -> None:
        began = time.perf_counter()
        self._writer.write(batch)
        self._meter.write_seconds += time.perf_counter() - began
        self._notices.tell(self._number, self._meter.rows_computed)

    # Reading.

    def _input_columns(self) -> dict[str, str]:
        return {name: self._columns[name] for name in self._given}

    def _rows(self, ids: np.ndarray[Any, Any] | None) -> Iterator[pa.RecordBatch]:
        for batch in self._scan() if ids is None else self._take(ids):
            self._meter.rows_computed += batch.num_rows
            self._meter.bytes_read += batch.nbytes
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

    def _take(self, ids: np.ndarray[Any, Any]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        sizes, start, rows = self._task.sizes, 0, _FIRST_ROWS
        while start < len(ids):
            chosen = pa.array(ids[start : start + rows].astype("uint64"))
            table = self._dataset._take_rows(chosen, columns=self._input_columns())  # noqa: SLF001
            start += rows
            rows = int(min(max(sizes.batch_bytes * rows // max(table.nbytes, 1), 1), sizes.batch_rows, rows * 8))
            yield from table.combine_chunks().to_batches()

    # Partitions.

    def _by_value(self, column: str, bucket: int) -> Iterator[tuple[Any, np.ndarray[Any, Any]]]:
        """Return the values of a column that belong to a bucket, each with the ids of its rows."""
        import numpy as np

        from pennon.pipeline.derivation import path_expression

        definition = self._task.definition
        expression = self._columns.get(column) or path_expression(column)
        scanner = self._dataset.scanner(
            columns={_KEY: expression, "_rowid": "_rowid"},
            filter=definition.where,
            limit=definition.limit,
            offset=definition.offset,
        )
        found: dict[str, tuple[Any, list[Any]]] = {}
        for batch in scanner.to_batches():
            keys = batch.column(_KEY).dictionary_encode(null_encoding="encode")
            ids = batch.column("_rowid").to_numpy()
            codes = keys.indices.to_numpy()
            for code, key in enumerate(keys.dictionary.to_pylist()):
                text = repr(key)
                if zlib.crc32(text.encode()) % self._task.buckets == bucket:
                    found.setdefault(text, (key, []))[1].append(ids[codes == code])
        for text in sorted(found):
            key, parts = found[text]
            yield key, np.concatenate(parts)

    def _by_index(self, column: str, bucket: int) -> Iterator[tuple[int, np.ndarray[Any, Any]]]:
        """Return the partitions of an IVF index that belong to a bucket, each with the ids of its rows."""
        from pennon.pipeline.ivf import IndexPartitions

        os.environ["LANCE_INCLUDE_VECTOR_CENTROIDS"] = "true"  # of the index's statistics, which have them anyway
        partitions = IndexPartitions(self._dataset, column, self._task.definition.where)
        for number in range(bucket, partitions.count, self._task.buckets):
            ids = partitions.rows(number)
            if len(ids):
                yield number, ids


class _FunctionRaised(Exception):  # noqa: N818 - it carries an error
    """The function raised, not Pennon."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


class _Tracked:
    """An iterator that remembers what it raised, so that it is not taken for the function's fault."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self.error: BaseException | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._batches
        except Exception as error:
            self.error = error
            raise


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
