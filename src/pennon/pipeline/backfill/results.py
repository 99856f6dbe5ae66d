"""The results of a fragment: merged from checkpoints, from what was just computed, and from the present content."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pennon.columns.row_spans import mask_of
from pennon.pipeline.backfill.checkpoints import ATTEMPT, ERROR_MESSAGE, ERROR_TYPE, OFFSET
from pennon.tables.field_paths import split_path

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pennon.core.arrow_typing import AnyArray, AnyChunkedArray
    from pennon.pipeline.backfill.checkpoints import CheckpointFile, ErrorRecord
    from pennon.pipeline.backfill.fragment import FragmentBackfill
    from pennon.pipeline.column_work import TargetColumn
    from pennon.pipeline.function_execution import Errors

#: A receipt lists this many errors of a fragment at most; all of them are counted.
_MOST_ERRORS = 1000
#: Results are checkpointed when computing them took this many times longer than writing them: cheap rows are rather
#: computed again. Neither the factor nor the speed of storage was measured.
_WORTH = 20
_BYTES_PER_SECOND = 1e9
#: In place of the index of a part: no part has the row.
_NO_PART = -1
#: The columns of a checkpoint that describe the error of a row.
_ERROR_COLUMNS = [OFFSET, ERROR_TYPE, ERROR_MESSAGE, ATTEMPT]


#: Offsets of rows, and their values: a column for each target.
Source = tuple["NDArray[np.int64]", "pa.RecordBatch | pa.Table"]


@dataclass(frozen=True)
class ComputedRows:
    """Results of some rows: their offsets in ascending order, a column for each target, and the errors."""

    offsets: NDArray[np.int64]
    values: pa.RecordBatch
    errors: Errors

    def to_checkpoint(self) -> pa.RecordBatch:
        """Return them as one batch, with the offset and the error of each row."""
        rows = len(self.offsets)
        kinds: list[str | None] = [None] * (rows if self.errors else 0)
        messages, attempts = kinds.copy(), [0] * len(kinds)
        for row, kind, message, attempt in self.errors:
            kinds[row], messages[row], attempts[row] = kind, message, attempt
        columns: dict[str, AnyArray] = {
            OFFSET: pa.array(self.offsets, pa.uint32()),
            ERROR_TYPE: pa.array(kinds, pa.string()) if kinds else pa.nulls(rows, pa.string()),
            ERROR_MESSAGE: pa.array(messages, pa.string()) if kinds else pa.nulls(rows, pa.string()),
            ATTEMPT: pa.array(attempts, pa.int32()) if kinds else pa.nulls(rows, pa.int32()),
        }
        names = [*columns, *(f"out{index}" for index in range(self.values.num_columns))]
        return pa.RecordBatch.from_arrays([*columns.values(), *self.values.columns], names=names)


@dataclass
class _LoadedPart:
    """A part of an earlier run, and its results while its rows are being merged."""

    part: CheckpointFile
    index: int
    results: pa.Table | None = None


class Results:
    """The results of a fragment: those that its checkpoints hold, and new ones.

    With ``saves_all``, all new results are saved; otherwise only those that cost more than a checkpoint does.
    """

    def __init__(self, fragment: FragmentBackfill, *, saves_all: bool = False) -> None:
        self._fragment = fragment
        self._saves_all = saves_all
        unit = fragment.unit
        self._todo = mask_of(unit.todo, unit.rows)
        self.failed = np.zeros(unit.rows, dtype=np.bool_)
        self.errors: list[ErrorRecord] = []
        #: The parts of earlier runs, in row order, and for each row the index of the part that has it.
        self._parts: list[_LoadedPart] = []
        self._part_of = np.full(unit.rows, _NO_PART, dtype=np.int32)
        first, last = unit.todo[0][0], unit.todo[-1][1]
        for part in sorted(fragment.checkpoints.parts(unit.input_signature), key=lambda part: part.start):
            if part.start < last and part.stop > first:
                self._add_part(part)
        #: The rows that are still to be computed.
        self.missing = self._todo & (self._part_of == _NO_PART)
        self._fresh: list[ComputedRows] = []
        self._pending: list[ComputedRows] = []
        self._pending_rows = self._pending_bytes = 0
        self._at_risk = 0.0
        #: How many checkpoints were worth their cost, and whether results were not saved because theirs was not.
        self.worthy_checkpoints = 0
        self.has_unsaved = False

    def _add_part(self, part: CheckpointFile) -> None:
        """Record which rows a part has; their values may be many megabytes, and are read again when they are merged."""
        try:
            loaded = self._fragment.checkpoints.load(part)
        except (pa.ArrowInvalid, FileNotFoundError):
            return  # damaged, or removed since: its rows are computed again
        offsets = loaded.column(OFFSET).to_numpy()
        new = self._todo[offsets] & (self._part_of[offsets] == _NO_PART)
        if new.any():
            self._part_of[offsets[new]] = len(self._parts)
            self._parts.append(_LoadedPart(part, len(self._parts)))
            self._add_saved_errors(loaded.select(_ERROR_COLUMNS).filter(pa.array(new)))

    def add(self, computed: ComputedRows, seconds: float) -> None:
        """Add results and the seconds they took; save a checkpoint when computing them again would cost more."""
        self._fresh.append(computed)
        for row, kind, message, attempt in computed.errors:
            self._add_error(int(computed.offsets[row]), kind, message, attempt)
        self._pending.append(computed)
        self._pending_rows += computed.values.num_rows
        self._pending_bytes += computed.values.nbytes
        self._at_risk += seconds
        limits = self._fragment.limits
        write_cost = _WORTH * self._pending_bytes / _BYTES_PER_SECOND if limits.checkpoint_seconds else 0.0
        is_worth_it = self._at_risk >= max(limits.checkpoint_seconds, write_cost)
        has_enough_rows = self._pending_rows >= limits.least_checkpoint_rows
        if (is_worth_it and has_enough_rows) or self._pending_rows >= limits.most_checkpoint_rows:
            self.worthy_checkpoints += is_worth_it
            self.save()
        elif self._pending_bytes > limits.batch_bytes:
            if self._saves_all:
                self.save()
            else:
                self.has_unsaved = True
                self._reset_pending()

    def save(self) -> None:
        """Save the results that no checkpoint has yet."""
        if not self._pending:
            return
        whole = pa.Table.from_batches([computed.to_checkpoint() for computed in self._pending])
        for batch in whole.combine_chunks().to_batches():
            failed = batch.num_rows - batch.column(ERROR_TYPE).null_count
            self._fragment.checkpoints.save(self._fragment.unit.input_signature, batch, failed)
        self._reset_pending()

    def _reset_pending(self) -> None:
        self._pending = []
        self._pending_rows = self._pending_bytes = 0
        self._at_risk = 0.0

    def _add_saved_errors(self, rows: pa.Table) -> None:
        failed = rows.filter(rows.column(ERROR_TYPE).is_valid())
        for row in failed.to_pylist():
            self._add_error(row[OFFSET], row[ERROR_TYPE], row[ERROR_MESSAGE], row[ATTEMPT])

    def _add_error(self, offset: int, kind: str, message: str, attempt: int) -> None:
        self.failed[offset] = True
        if len(self.errors) < _MOST_ERRORS:
            self.errors.append((offset, kind, message, attempt))

    def discard(self) -> None:
        """Forget new results; the column file is written from their parts."""
        self._fresh = []

    def without_reading(self, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """Return the columns of rows that need not be read: results from checkpoints, and nulls."""
        # One part at a time: all of them may not fit into memory.
        edges = {kept.part.start for kept in self._parts if start < kept.part.start < stop}
        edges.update(range(start, stop, self._fragment.limits.batch_rows))
        for at, end in pairwise([*sorted(edges), stop]):
            yield self.column(at, end, None)

    def column(self, start: int, stop: int, kept: pa.RecordBatch | None) -> pa.RecordBatch:
        """Return the new content of the top-level columns for a range of rows; ranges come in row order."""
        fresh, self._fresh = self._fresh, []
        sources = [*self._stored(start, stop), *((computed.offsets, computed.values) for computed in fresh)]
        values = [self._values(index, start, stop, sources, kept) for index in range(len(self._fragment.targets))]
        return _assemble(self._fragment, values, kept, stop - start)

    def _stored(self, start: int, stop: int) -> Iterator[Source]:
        """Return what checkpoints have of a range of rows."""
        self._parts = [kept for kept in self._parts if kept.part.stop > start]
        for kept in self._parts:
            if kept.part.start >= stop:
                return
            if kept.results is None:
                kept.results = self._fragment.checkpoints.load(kept.part)
            offsets = kept.results.column(OFFSET).to_numpy()
            first, last = np.searchsorted(offsets, [start, stop])
            wanted = self._part_of[offsets[first:last]] == kept.index
            if wanted.any():
                names = [f"out{index}" for index in range(len(self._fragment.targets))]
                values = kept.results.slice(first, last - first).select(names)
                yield offsets[first:last][wanted], values if wanted.all() else values.filter(pa.array(wanted))

    def _values(
        self, index: int, start: int, stop: int, sources: list[Source], kept: pa.RecordBatch | None
    ) -> AnyArray:
        """Return the values of one target for a range of rows."""
        target = self._fragment.targets[index]
        arrays = [_combine(values.column(index)) for _, values in sources]
        if len(arrays) == 1 and len(arrays[0]) == stop - start:
            return arrays[0]
        present = _present(self._fragment, target, kept, stop - start)
        # Each row comes from the present content, or from the last source that has it.
        taken = np.arange(stop - start, dtype=np.int64)
        base = stop - start
        for (offsets, _), array in zip(sources, arrays, strict=True):
            taken[offsets - start] = np.arange(base, base + len(array))
            base += len(array)
        return pa.concat_arrays([present, *(array.cast(present.type) for array in arrays)]).take(taken)


def _combine(column: AnyArray | AnyChunkedArray) -> AnyArray:
    if isinstance(column, pa.ChunkedArray):
        # The stubs allow for a chunked array; pyarrow returns one array.
        return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)  # type: ignore[return-value]
    return column


def _present(fragment: FragmentBackfill, target: TargetColumn, kept: pa.RecordBatch | None, rows: int) -> AnyArray:
    """Return the present content of a target."""
    if kept is None:
        return _nulls(rows, _type_of(fragment, target))
    array: AnyArray = kept.column(target.root)
    for name in split_path(target.path)[1:]:
        array = pc.struct_field(array, name)
    return array


def _type_of(fragment: FragmentBackfill, target: TargetColumn) -> pa.DataType:
    kind = fragment.dataset.schema.field(target.root).type
    for name in split_path(target.path)[1:]:
        kind = cast("pa.StructType", kind).field(name).type
    return cast("pa.DataType", kind)


def _nulls(rows: int, kind: pa.DataType) -> AnyArray:
    # The stubs have an overload for each type, and none for types in general.
    return cast("AnyArray", pa.nulls(rows, kind))  # type: ignore[call-overload]


def _assemble(
    fragment: FragmentBackfill, values: list[AnyArray], kept: pa.RecordBatch | None, rows: int
) -> pa.RecordBatch:
    """Return the top-level columns: a target itself, or the struct around nested targets with these replaced."""
    columns: dict[str, AnyArray] = {}
    for target, array in zip(fragment.targets, values, strict=True):
        if target.path == target.root:
            columns[target.root] = array
            continue
        whole = columns.get(target.root)
        if whole is None and kept is not None:
            whole = kept.column(target.root)
        elif whole is None:
            whole = _nulls(rows, fragment.dataset.schema.field(target.root).type)
        columns[target.root] = _replace_field(cast("pa.StructArray", whole), split_path(target.path)[1:], array)
    return pa.RecordBatch.from_pydict(columns)


def _replace_field(struct: pa.StructArray, path: list[str], array: AnyArray) -> pa.StructArray:
    """Return a struct with one of its fields replaced; a null struct becomes non-null where the new field is."""
    names = [struct.type.field(index).name for index in range(struct.type.num_fields)]
    children: list[AnyArray] = [pc.struct_field(struct, name) for name in names]
    at = names.index(path[0])
    if len(path) > 1:
        array = _replace_field(cast("pa.StructArray", children[at]), path[1:], array)
    children[at] = array
    mask = pc.and_(struct.is_null(), array.is_null())
    return pa.StructArray.from_arrays(children, fields=list(struct.type), mask=mask)
