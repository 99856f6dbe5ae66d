"""What runs on an executor: read the inputs of a fragment, compute, keep checkpoints, write the column's file."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pennon.columns.row_spans import Mask, runs_of, spans_of
from pennon.columns.state import row_numbers
from pennon.core.process import peak_memory_bytes
from pennon.functions.failures import FunctionFailedError
from pennon.pipeline.backfill.results import Computed, Results
from pennon.tables.blobs import is_blob, scan_with_blobs

if TYPE_CHECKING:
    from pennon.columns.plan import Unit
    from pennon.pipeline.backfill.checkpoints import Checkpoints

#: A gap between rows to compute is read along while it costs less than this.
_GAP_BYTES = 1024 * 1024
_WIDEST_GAP = 4096
_EXPRESSION = "computed"
_FIRST_ROWS = 8
_GROWTH = 8
_SHORTEST_CALL = 0.05
_LONGEST_CALL = 10.0
_BETTER = 1.25
_RESULT_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class Sizes:
    """How much is read, computed and kept at a time."""

    batch_rows: int = 32768
    batch_bytes: int = 32 * 1024 * 1024
    #: Results are kept when this much time went into them, and they are at least so many.
    checkpoint_seconds: float = 0.1
    least_checkpoint_rows: int = 1
    most_checkpoint_rows: int = 1024 * 1024
    threads: int = 1


@dataclass(frozen=True)
class Target:
    """A column to fill: its path, the top-level column it is in, and the field of the function's result it takes."""

    path: str
    root: str
    struct_field: str


#: Rows of a batch that failed: which, the type of the error, its message, and at which attempt.
Errors = list[tuple[int, str, str, int]]
#: Computes the outputs of rows: a batch with a column for each target, and what failed.
Compute = Callable[[pa.RecordBatch], tuple[pa.RecordBatch, Errors]]


@dataclass
class Meter:
    """What the work on fragments took."""

    rows_computed: int = 0
    rows_failed: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    read_seconds: float = 0.0
    udf_seconds: float = 0.0
    write_seconds: float = 0.0

    def counters(self) -> dict[str, float]:
        """Return it with the memory this process has used at most."""
        return {**self.__dict__, "peak_memory_bytes": peak_memory()}


def forget_peak() -> None:
    """Reset the peak of this process's memory: Python workers outlive the tasks they run. Does nothing off Linux."""
    with suppress(OSError), Path("/proc/self/clear_refs").open("w", encoding="ascii") as file:
        file.write("5")


def peak_memory() -> int:
    """Return the memory that this process has used at most, in bytes."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return peak_memory_bytes()


@dataclass
class Fragment:
    """One fragment on its way."""

    dataset: Any
    unit: Unit
    #: What is read for a row: columns by their paths, or one expression.
    inputs: list[str] | str
    targets: list[Target]
    sizes: Sizes
    checkpoints: Checkpoints
    compute: Compute
    pace: Pace
    meter: Meter = field(default_factory=Meter)

    def fill(self, uri: str, storage_options: dict[str, str] | None) -> None:
        """Compute what is to be computed, write the file, and file the receipt for it."""
        from lance.file import LanceFileWriter
        from lance.fragment import DataFile

        name = f"{uuid.uuid4().hex}.lance"
        schema = pa.schema([self.dataset.schema.field(root).remove_metadata() for root in self._roots()])
        results = Results(self)
        options: dict[str, Any] = {"storage_options": storage_options} if storage_options else {}
        version = self.dataset.data_storage_version
        with LanceFileWriter(f"{uri}/data/{name}", schema, version=version, **options) as writer:
            for block in self._blocks(results):
                began = time.perf_counter()
                writer.write_batch(block if block.schema == schema else block.cast(schema))
                self.meter.write_seconds += time.perf_counter() - began
        file = DataFile.create(self.dataset, name)
        self.meter.bytes_written += file.file_size_bytes or 0
        self.checkpoints.file_receipt(self.unit.input_signature, self._receipt(file, results))

    def _receipt(self, file: Any, results: Results) -> dict[str, Any]:
        return {
            "fragment_id": self.unit.fragment_id,
            "signature": self.unit.signature,
            "todo": self.unit.todo,
            "failed": spans_of(results.failed),
            "errors": results.errors,
            "row_ids": self._row_ids(),
            "file": {
                "path": file.path,
                "fields": list(file.fields),
                "column_indices": list(file.column_indices),
                "file_major_version": file.file_major_version,
                "file_minor_version": file.file_minor_version,
                "file_size_bytes": file.file_size_bytes,
            },
            "counters": self.meter.counters(),
        }

    def _roots(self) -> list[str]:
        return list(dict.fromkeys(target.root for target in self.targets))

    def _row_ids(self) -> list[list[int]]:
        if not self.dataset.has_stable_row_ids:
            return []
        ids = self._scan(0, self.unit.rows, [], with_row_id=True, batch_size=self.unit.rows).to_table()
        return runs_of(row_numbers(ids))

    def _scan(self, start: int, stop: int, columns: list[str] | dict[str, str], **options: Any) -> Any:
        """Scan rows by their numbers; deleted ones keep their place."""
        options.setdefault("batch_size", self._batch_rows())
        options.setdefault("batch_size_bytes", self.sizes.batch_bytes)
        if self.unit.has_deletions or not columns:
            options["include_deleted_rows"] = options["with_row_id"] = True
        if (start, stop) != (0, self.unit.rows):
            options["offset"], options["limit"] = start, stop - start
        fragment = self.dataset.get_fragment(self.unit.fragment_id)
        # Functions take the bytes of blobs; a plain scan reads their descriptors.
        return scan_with_blobs(self.dataset, columns, fragments=[fragment], batch_readahead=2, **options)

    def _batch_rows(self) -> int:
        by_bytes = self.sizes.batch_bytes // max(self._row_bytes, 1)
        return int(max(1, min(self.sizes.batch_rows, by_bytes, self.sizes.most_checkpoint_rows)))

    @cached_property
    def _row_bytes(self) -> int:
        """How many bytes a row has, about: blobs are not in the files that the unit counts."""
        blobs = [field.name for field in self.dataset.schema if is_blob(field) and field.name in self.inputs]
        size = self.unit.bytes // max(self.unit.count, 1)
        if not blobs:
            return size
        fragment = self.dataset.get_fragment(self.unit.fragment_id)
        told = self.dataset.scanner(fragments=[fragment], columns=blobs).to_table()  # where they are, and how long
        lengths: list[int] = [pc.sum(pc.struct_field(column, "size")).as_py() or 0 for column in told.columns]
        return size + sum(lengths) // max(int(told.num_rows), 1)

    def _blocks(self, results: Results) -> Iterator[pa.RecordBatch]:
        """Return the column's new content in the order of its rows."""
        keeps = self._roots() if self._keeps() else []
        for start, stop, computes in self._stretches(results.missing):
            if not keeps and not computes:
                yield from results.blank(start, stop)
                continue
            at = start
            for batch in self._read(start, stop, self._columns(computes, keeps)):
                missing = results.missing[at : at + batch.num_rows]
                for piece in self._pieces(batch, missing) if computes else [batch]:
                    if computes:
                        self._compute(at, piece, results)
                    yield results.column(at, at + piece.num_rows, piece.select(keeps) if keeps else None)
                    at += piece.num_rows

    def _pieces(self, batch: pa.RecordBatch, missing: Mask) -> Iterator[pa.RecordBatch]:
        """Cut a batch into pieces that each take about as long to compute as a checkpoint is worth."""
        wanted, cut, start = np.flatnonzero(missing), 0, 0
        while start < batch.num_rows:
            cut += self.pace.rows * self.sizes.threads
            stop = int(wanted[cut]) if cut < len(wanted) else batch.num_rows
            yield batch.slice(start, stop - start)
            start = stop

    def _columns(self, computes: bool, keeps: list[str]) -> list[str] | dict[str, str]:
        """Return what to read: the inputs first, if they are needed, then the present content."""
        if isinstance(self.inputs, str):
            name = _EXPRESSION
            while name in keeps:
                name += "_"
            return {**({name: self.inputs} if computes else {}), **{root: f"`{root}`" for root in keeps}}
        return list(dict.fromkeys([*(self.inputs if computes else []), *keeps]))

    def _keeps(self) -> bool:
        """Tell whether the present content is needed: for rows that are not computed, or beside a nested column."""
        return self.unit.keeps or any(target.path != target.root for target in self.targets)

    def _read(self, start: int, stop: int, columns: list[str] | dict[str, str]) -> Iterator[pa.RecordBatch]:
        reader = iter(self._scan(start, stop, columns).to_batches())
        while True:
            began = time.perf_counter()
            batch = next(reader, None)
            self.meter.read_seconds += time.perf_counter() - began
            if batch is None:
                return
            self.meter.bytes_read += batch.nbytes
            yield batch

    def _stretches(self, missing: Mask) -> Iterator[tuple[int, int, bool]]:
        """Return runs of rows: those that hold rows to compute, with the small gaps between them, and the others."""
        gap = max(1, min(_WIDEST_GAP, _GAP_BYTES // max(self._row_bytes, 1)))
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
        """Compute what is missing of some rows."""
        missing = results.missing[at : at + piece.num_rows]
        wanted = np.arange(piece.num_rows) if missing.all() else np.flatnonzero(missing)
        inputs = piece.select([0] if isinstance(self.inputs, str) else positions(self.inputs))
        if len(wanted) < piece.num_rows:
            inputs = inputs.take(pa.array(wanted))
        if not len(wanted):
            return
        began = time.perf_counter()
        try:
            computed = self._call(inputs)
        except FunctionFailedError as error:
            error.place = self._place(None if error.row is None else int(wanted[error.row]) + at)
            raise
        seconds = time.perf_counter() - began
        size = 0
        for start, (values, errors) in computed:
            size += values.nbytes
            self.meter.rows_computed += values.num_rows
            self.meter.rows_failed += len(errors)
            share = seconds * values.num_rows / len(wanted)
            offsets = wanted[start : start + values.num_rows] + at
            results.add(Computed(offsets, values, errors), share)
        self.meter.udf_seconds += seconds
        self.pace.learn(len(wanted) // self.sizes.threads, seconds, size)

    def _call(self, inputs: pa.RecordBatch) -> list[tuple[int, tuple[pa.RecordBatch, Errors]]]:
        """Call the function; several times at once, if asked to, because it waits for something else than this CPU."""
        if self.sizes.threads == 1:
            return [(0, self.compute(inputs))]
        size = -(-inputs.num_rows // self.sizes.threads)
        starts = range(0, inputs.num_rows, size)
        with ThreadPoolExecutor(self.sizes.threads) as threads:
            outcomes = threads.map(lambda start: self._call_piece(inputs.slice(start, size), start), starts)
            return list(zip(starts, outcomes, strict=True))

    def _call_piece(self, piece: pa.RecordBatch, start: int) -> tuple[pa.RecordBatch, Errors]:
        try:
            return self.compute(piece)
        except FunctionFailedError as error:
            error.row = None if error.row is None else error.row + start
            raise

    def _place(self, row: int | None) -> str:
        """Return where a row is, in words."""
        fragment = f"fragment {self.unit.fragment_id}"
        if row is None:
            return f"a batch of {fragment}"
        row_id = self._scan(row, row + 1, [], with_row_id=True).to_table().column("_rowid")[0]
        return f"row {row} of {fragment} (row id {row_id})"


def positions(inputs: list[str]) -> list[int]:
    """Return where the inputs of a function are among the columns that are read, each of them once."""
    read = list(dict.fromkeys(inputs))
    return [read.index(path) for path in inputs]


class Pace:
    """How many rows a function is given at once.

    A call should take about as long as a checkpoint is worth. One that takes longer, because a call costs something
    whatever it is given, gets more rows as long as that makes it faster. Its results are no larger than a cache holds.
    """

    def __init__(self, sizes: Sizes, least: int, most: int) -> None:
        self._seconds = max(sizes.checkpoint_seconds, _SHORTEST_CALL)
        self._bytes = min(sizes.batch_bytes, _RESULT_BYTES)
        self._least = least
        self._most = most
        self.rows = max(least, min(_FIRST_ROWS, most))
        self._tried: tuple[int, float] = (self.rows, 0.0)  # the size that was left for a larger one, and its speed

    def learn(self, rows: int, seconds: float, size: int) -> None:
        """Take in how long a call took, and how large its results were."""
        if rows < self.rows:
            return  # the end of a batch tells little
        speed = rows / max(seconds, 1e-6)
        if seconds < self._seconds:
            wanted = min(int(speed * self._seconds), rows * _GROWTH)
        elif seconds < _LONGEST_CALL and speed > _BETTER * self._tried[1]:
            self._tried, wanted = (rows, speed), 2 * rows
        else:
            wanted = min(rows, self._tried[0])
        in_size = rows * self._bytes // max(size, 1)
        self.rows = max(1, min(max(wanted, self._least), in_size, self._most))
