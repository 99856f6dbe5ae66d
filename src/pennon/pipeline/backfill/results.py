"""The results of a fragment put together: what checkpoints kept, what was just computed, and what was there before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pennon.columns.row_spans import mask_of
from pennon.pipeline.backfill.checkpoints import ATTEMPT, ERROR_MESSAGE, ERROR_TYPE, OFFSET
from pennon.tables.field_paths import split_path

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pennon.pipeline.backfill.checkpoints import Part
    from pennon.pipeline.backfill.fragment import Errors, Fragment, Target

_MOST_ERRORS = 1000
#: Results are kept when they took so many times longer than keeping them: what is cheap to compute is computed again.
_WORTH = 20
_BYTES_PER_SECOND = 1e9
#: In place of the number of a part: no part holds the row.
_NONE = -1
#: What a checkpoint tells of a row besides its values.
_TOLD = [OFFSET, ERROR_TYPE, ERROR_MESSAGE, ATTEMPT]


#: Numbers of rows, and their values: a column for each target.
Source = tuple["NDArray[Any]", "pa.RecordBatch | pa.Table"]


@dataclass(frozen=True)
class Computed:
    """What was computed of some rows: their numbers in rising order, a column for each target, and what failed."""

    offsets: NDArray[np.int64]
    values: pa.RecordBatch
    errors: Errors

    def to_checkpoint(self) -> pa.RecordBatch:
        """Return it as one batch, with the number of each row and what went wrong with it."""
        rows = len(self.offsets)
        kinds: list[str | None] = [None] * (rows if self.errors else 0)
        messages, attempts = kinds.copy(), [0] * len(kinds)
        for row, kind, message, attempt in self.errors:
            kinds[row], messages[row], attempts[row] = kind, message, attempt
        columns = {
            OFFSET: pa.array(self.offsets, pa.uint32()),
            ERROR_TYPE: pa.array(kinds, pa.string()) if kinds else pa.nulls(rows, pa.string()),
            ERROR_MESSAGE: pa.array(messages, pa.string()) if kinds else pa.nulls(rows, pa.string()),
            ATTEMPT: pa.array(attempts, pa.int32()) if kinds else pa.nulls(rows, pa.int32()),
        }
        names = [*columns, *(f"out{index}" for index in range(self.values.num_columns))]
        return pa.RecordBatch.from_arrays([*columns.values(), *self.values.columns], names=names)


@dataclass
class _Kept:
    """A part of what was computed before, and its results while rows of it are asked for."""

    part: Part
    number: int
    results: pa.Table | None = None


class Results:
    """What was computed of a fragment: before, as its checkpoints tell, and now."""

    def __init__(self, fragment: Fragment) -> None:
        self._fragment = fragment
        unit = fragment.unit
        self._todo = mask_of(unit.todo, unit.rows)
        self.failed = np.zeros(unit.rows, dtype=np.bool_)
        self.errors: list[list[Any]] = []
        #: Parts that were kept before, in the order of their rows, and for each row which of them holds it.
        self._kept: list[_Kept] = []
        self._holder = np.full(unit.rows, _NONE, dtype=np.int32)
        for part in sorted(fragment.checkpoints.parts(unit.input_signature), key=lambda part: part.start):
            self._take_up(part)
        #: Which rows are still to be computed.
        self.missing = self._todo & (self._holder == _NONE)
        self._fresh: list[Computed] = []
        self._pending: list[Computed] = []
        self._pending_rows = self._pending_bytes = 0
        self._at_risk = 0.0

    def _take_up(self, part: Part) -> None:
        """Note which rows a part holds; it is read again for their values, which may be many megabytes."""
        try:
            kept = self._fragment.checkpoints.load(part)
        except (pa.ArrowInvalid, FileNotFoundError):
            return  # torn or removed meanwhile: its rows are computed again
        offsets = kept.column(OFFSET).to_numpy()
        news = self._todo[offsets] & (self._holder[offsets] == _NONE)
        if news.any():
            self._holder[offsets[news]] = len(self._kept)
            self._kept.append(_Kept(part, len(self._kept)))
            self._note_kept_errors(kept.select(_TOLD).filter(pa.array(news)))

    def add(self, computed: Computed, seconds: float) -> None:
        """Take in results and how long they took, and keep a checkpoint when losing them would cost more."""
        self._fresh.append(computed)
        for row, kind, message, attempt in computed.errors:
            self._note_error(int(computed.offsets[row]), kind, message, attempt)
        self._pending.append(computed)
        self._pending_rows += computed.values.num_rows
        self._pending_bytes += computed.values.nbytes
        self._at_risk += seconds
        sizes = self._fragment.sizes
        price = _WORTH * self._pending_bytes / _BYTES_PER_SECOND if sizes.checkpoint_seconds else 0.0
        worth = self._at_risk >= max(sizes.checkpoint_seconds, price)
        enough = self._pending_rows >= sizes.least_checkpoint_rows
        if (worth and enough) or self._pending_rows >= sizes.most_checkpoint_rows:
            self._keep()
            self._forget_pending()
        elif self._pending_bytes > sizes.batch_bytes:
            self._forget_pending()

    def _keep(self) -> None:
        whole = pa.Table.from_batches([computed.to_checkpoint() for computed in self._pending])
        for batch in whole.combine_chunks().to_batches():
            failed = batch.num_rows - batch.column(ERROR_TYPE).null_count
            self._fragment.checkpoints.save(self._fragment.unit.input_signature, batch, failed)

    def _forget_pending(self) -> None:
        self._pending = []
        self._pending_rows = self._pending_bytes = 0
        self._at_risk = 0.0

    def _note_kept_errors(self, told: pa.Table) -> None:
        failed = told.filter(told.column(ERROR_TYPE).is_valid())
        for row in failed.to_pylist():
            self._note_error(*row.values())

    def _note_error(self, offset: int, kind: str, message: str, attempt: int) -> None:
        self.failed[offset] = True
        if len(self.errors) < _MOST_ERRORS:
            self.errors.append([offset, kind, message, attempt])

    def blank(self, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """Return the content of rows of which nothing is read: what checkpoints hold, and nulls."""
        # No more than one part at a time: all of them may be more than memory holds.
        edges = {kept.part.start for kept in self._kept if start < kept.part.start < stop}
        edges.update(range(start, stop, self._fragment.sizes.batch_rows))
        for at, end in pairwise([*sorted(edges), stop]):
            yield self.column(at, end, None)

    def column(self, start: int, stop: int, kept: pa.RecordBatch | None) -> pa.RecordBatch:
        """Return the new content of the top-level columns for a range of rows."""
        fresh, self._fresh = self._fresh, []
        sources = [*self._stored(start, stop), *((computed.offsets, computed.values) for computed in fresh)]
        values = [self._values(index, start, stop, sources, kept) for index in range(len(self._fragment.targets))]
        return _assemble(self._fragment, values, kept, stop - start)

    def _stored(self, start: int, stop: int) -> Iterator[Source]:
        """Return what checkpoints hold of a range of rows; ranges come in the order of the rows."""
        self._kept = [kept for kept in self._kept if kept.part.stop > start]
        for kept in self._kept:
            if kept.part.start >= stop:
                return
            if kept.results is None:
                kept.results = self._fragment.checkpoints.load(kept.part)
            offsets = kept.results.column(OFFSET).to_numpy()
            first, last = np.searchsorted(offsets, [start, stop])
            wanted = self._holder[offsets[first:last]] == kept.number
            if wanted.any():
                names = [f"out{index}" for index in range(len(self._fragment.targets))]
                values = kept.results.slice(first, last - first).select(names)
                yield offsets[first:last][wanted], values if wanted.all() else values.filter(pa.array(wanted))

    def _values(
        self, index: int, start: int, stop: int, sources: list[Source], kept: pa.RecordBatch | None
    ) -> pa.Array:
        """Return the values of one target for a range of rows."""
        target = self._fragment.targets[index]
        arrays = [_one(values.column(index)) for _, values in sources]
        if len(arrays) == 1 and len(arrays[0]) == stop - start:
            return arrays[0]
        present = _present(self._fragment, target, kept, stop - start)
        # Where each row comes from: what is there now comes first, then the results in turn.
        taken = np.arange(stop - start, dtype=np.int64)
        base = stop - start
        for (offsets, _), array in zip(sources, arrays, strict=True):
            taken[offsets - start] = np.arange(base, base + len(array))
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
