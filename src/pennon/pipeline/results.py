"""The results of a fragment put together: what checkpoints kept, what was just computed, and what was there before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pennon.lake.field_paths import split_path
from pennon.lake.spans import mask_of
from pennon.pipeline.checkpoints import ATTEMPT, ERROR_MESSAGE, ERROR_TYPE, OFFSET

if TYPE_CHECKING:
    from pennon.pipeline.filling import Fragment, Target

_MOST_ERRORS = 1000
#: Results are kept when they took so many times longer than keeping them: what is cheap to compute is computed again.
_WORTH = 20
_BYTES_PER_SECOND = 1e9


def with_errors(
    values: pa.RecordBatch, offsets: np.ndarray[Any, Any], errors: list[tuple[int, str, str, int]]
) -> pa.RecordBatch:
    """Return results with the number of each row, and what went wrong with it."""
    kinds: list[str | None] = [None] * (len(offsets) if errors else 0)
    messages, attempts = kinds.copy(), [0] * len(kinds)
    for row, kind, message, attempt in errors:
        kinds[row], messages[row], attempts[row] = kind, message, attempt
    rows = len(offsets)
    columns = {
        OFFSET: pa.array(offsets, pa.uint32()),
        ERROR_TYPE: pa.array(kinds, pa.string()) if errors else pa.nulls(rows, pa.string()),
        ERROR_MESSAGE: pa.array(messages, pa.string()) if errors else pa.nulls(rows, pa.string()),
        ATTEMPT: pa.array(attempts, pa.int32()) if errors else pa.nulls(rows, pa.int32()),
    }
    names = [*columns, *(f"out{index}" for index in range(values.num_columns))]
    return pa.RecordBatch.from_arrays([*columns.values(), *values.columns], names=names)


class Results:
    """What was computed of a fragment: before, as its checkpoints tell, and now."""

    def __init__(self, fragment: Fragment) -> None:
        self._fragment = fragment
        unit = fragment.unit
        self._todo = mask_of(unit.todo, unit.rows)
        self.failed = np.zeros(unit.rows, dtype=np.bool_)
        self.errors: list[list[Any]] = []
        self._kept = fragment.checkpoints.load(unit.input_signature)
        self._known = np.zeros(unit.rows, dtype=np.bool_)
        if self._kept is not None:
            self._known[self._kept.column(OFFSET).to_numpy()] = True
            self._known &= self._todo
            self._note_errors(self._kept)
        #: Which rows are still to be computed.
        self.missing = self._todo & ~self._known
        self._fresh: list[pa.RecordBatch] = []
        self._pending: list[pa.RecordBatch] = []
        self._at_risk = 0.0

    def add(self, results: pa.RecordBatch, seconds: float) -> None:
        """Take in results and how long they took, and keep a checkpoint when losing them would cost more."""
        self._fresh.append(results)
        self._note_errors(results)
        self._pending.append(results)
        self._at_risk += seconds
        rows = sum(batch.num_rows for batch in self._pending)
        size = sum(batch.nbytes for batch in self._pending)
        sizes = self._fragment.sizes
        price = _WORTH * size / _BYTES_PER_SECOND if sizes.checkpoint_seconds else 0.0
        worth = self._at_risk >= max(sizes.checkpoint_seconds, price)
        if (worth and rows >= sizes.least_checkpoint_rows) or rows >= sizes.most_checkpoint_rows:
            self._keep()
        elif size > sizes.batch_bytes:
            self._pending, self._at_risk = [], 0.0

    def _keep(self) -> None:
        whole = pa.Table.from_batches(self._pending).combine_chunks().to_batches()
        for batch in whole:
            failed = batch.num_rows - batch.column(ERROR_TYPE).null_count
            self._fragment.checkpoints.save(self._fragment.unit.input_signature, batch, failed)
        self._pending = []
        self._at_risk = 0.0

    def _note_errors(self, results: Any) -> None:
        types = results.column(ERROR_TYPE)
        if types.null_count == results.num_rows:
            return
        for row in results.select([OFFSET, ERROR_TYPE, ERROR_MESSAGE, ATTEMPT]).to_pylist():
            if row[ERROR_TYPE] is not None and self._todo[row[OFFSET]]:
                self.failed[row[OFFSET]] = True
                if len(self.errors) < _MOST_ERRORS:
                    self.errors.append(list(row.values()))

    def blank(self, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """Return the content of rows of which nothing is read: what checkpoints hold, and nulls."""
        step = self._fragment.sizes.batch_rows
        for at in range(start, stop, step):
            yield self.column(at, min(at + step, stop), None)

    def column(self, start: int, stop: int, kept: pa.RecordBatch | None) -> pa.RecordBatch:
        """Return the new content of the top-level columns for a range of rows."""
        sources = [batch for batch in (*self._stored(start, stop), *self._fresh) if batch.num_rows]
        self._fresh = []
        values = [self._values(index, start, stop, sources, kept) for index in range(len(self._fragment.targets))]
        return _assemble(self._fragment, values, kept, stop - start)

    def _stored(self, start: int, stop: int) -> list[Any]:
        """Return what checkpoints hold of a range of rows."""
        if self._kept is None:
            return []
        offsets = self._kept.column(OFFSET).to_numpy()
        first, last = np.searchsorted(offsets, [start, stop])
        piece = self._kept.slice(first, last - first)
        wanted = self._todo[offsets[first:last]]
        return [piece if wanted.all() else piece.filter(pa.array(wanted))]

    def _values(self, index: int, start: int, stop: int, sources: list[Any], kept: pa.RecordBatch | None) -> pa.Array:
        """Return the values of one target for a range of rows."""
        target = self._fragment.targets[index]
        arrays = [_one(source.column(f"out{index}")) for source in sources]
        if len(arrays) == 1 and len(arrays[0]) == stop - start:
            return arrays[0]
        present = _present(self._fragment, target, kept, stop - start)
        # Where each row comes from: what is there now comes first, then the results in turn.
        taken = np.arange(stop - start, dtype=np.int64)
        base = stop - start
        for source, array in zip(sources, arrays, strict=True):
            taken[source.column(OFFSET).to_numpy() - start] = np.arange(base, base + len(array))
            base += len(array)
        return pa.concat_arrays([present, *(array.cast(present.type) for array in arrays)]).take(pa.array(taken))


def _one(column: Any) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    return column


def _present(fragment: Fragment, target: Target, kept: pa.RecordBatch | None, rows: int) -> pa.Array:
    """Return what a target holds now."""
    if kept is None:
        return pa.nulls(rows, _type_of(fragment, target))
    array = kept.column(target.root)
    for name in split_path(target.path)[1:]:
        array = pa.compute.struct_field(array, name)
    return array


def _type_of(fragment: Fragment, target: Target) -> pa.DataType:
    kind = fragment.dataset.schema.field(target.root).type
    for name in split_path(target.path)[1:]:
        kind = kind.field(name).type
    return kind


def _assemble(fragment: Fragment, values: list[pa.Array], kept: pa.RecordBatch | None, rows: int) -> pa.RecordBatch:
    """Return the top-level columns: a target that is one, or the column around nested ones with these in place."""
    columns: dict[str, pa.Array] = {}
    for target, array in zip(fragment.targets, values, strict=True):
        if target.path == target.root:
            columns[target.root] = array
            continue
        whole = columns.get(target.root)
        if whole is None:
            whole = kept.column(target.root) if kept is not None else pa.nulls(rows, _root_type(fragment, target))
        columns[target.root] = _put(whole, split_path(target.path)[1:], array)
    return pa.RecordBatch.from_pydict(columns)


def _root_type(fragment: Fragment, target: Target) -> pa.DataType:
    return fragment.dataset.schema.field(target.root).type


def _put(struct: pa.StructArray, path: list[str], array: pa.Array) -> pa.StructArray:
    """Return a struct with one of its fields replaced; a null struct gets one when its field does."""
    names = [struct.type.field(index).name for index in range(struct.type.num_fields)]
    children = [pa.compute.struct_field(struct, name) for name in names]
    at = names.index(path[0])
    children[at] = array if len(path) == 1 else _put(children[at], path[1:], array)
    mask = pa.compute.and_(struct.is_null(), children[at].is_null())
    return pa.StructArray.from_arrays(children, fields=list(struct.type), mask=mask)
