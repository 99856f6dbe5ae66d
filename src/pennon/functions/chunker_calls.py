"""Calling a chunker on batches: the rows it makes of each input row, and the rows it fails for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias, Unpack

import numpy as np
import pyarrow as pa

from pennon.functions.decorators.chunker import PARENT_INDEX
from pennon.functions.failures import RangeFailedError, RowError
from pennon.functions.loader import Loaded
from pennon.functions.type_hints import is_record
from pennon.functions.udf_calls import Applier, ApplierOptions, attempt_conversion, python_values

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pennon.functions.bisection import Attempt

    _Integers: TypeAlias = NDArray[np.int64]


@dataclass
class Expanded:
    """Rows that a chunker made: for each its input row, and its index among that row's children."""

    values: pa.RecordBatch
    parent_rows: _Integers
    child_indexes: NDArray[np.int32]


class Expander(Applier):
    """Calls a chunker on batches whose columns are its inputs, in order."""

    def __init__(
        self, loaded: Loaded, input_paths: Sequence[str], outputs: pa.Schema, **options: Unpack[ApplierOptions]
    ) -> None:
        """Bind a chunker to columns; the options are those of an Applier."""
        self._is_batched = loaded.envelope.kind == "batched_chunker"
        # A generator does its work while its rows are taken: collect them inside the call, where its time is limited.
        complete = loaded if self._is_batched else replace(loaded, call=_collecting(loaded.call))
        declared = [output.struct_field for output in loaded.envelope.outputs]
        self._has_plain_values = len(outputs) == 1 and (not declared or declared == [loaded.envelope.name])
        struct_fields = [""] if self._has_plain_values else outputs.names
        super().__init__(complete, input_paths, outputs, struct_fields, **options)

    def expand(self, batch: pa.RecordBatch) -> tuple[list[Expanded], list[RowError]]:
        """Return the rows made of a batch, and its errors; raise FunctionFailedError if the policy is to fail."""
        self._calls = 0
        errors: list[RowError] = []
        with self._deadline:
            pieces = list(self._expand_batch(batch, errors) if self._is_batched else self._expand_rows(batch, errors))
        return pieces, errors

    def _expand_rows(self, batch: pa.RecordBatch, errors: list[RowError]) -> Iterator[Expanded]:
        columns = [python_values(column) for column in batch.columns]
        # Each call returns a list, see _collecting; a failed row has None.
        children: list[Sequence[object] | None] = self._call_rows(columns, batch.num_rows, errors)  # type: ignore[assignment]
        attempt = attempt_conversion(lambda start, stop: self._flatten(children[start:stop], start))
        yield from self._expanded(attempt, batch.num_rows, 0, errors)

    def _expand_batch(self, batch: pa.RecordBatch, errors: list[RowError]) -> Iterator[Expanded]:
        for offset, rows in self._slices(batch):

            def call(piece: pa.RecordBatch, start: int, offset: int = offset) -> Expanded:
                return self._call_piece(piece, offset + start)

            yield from self._expanded(self._attempt_calls(rows, call), rows.num_rows, offset, errors)

    def _expanded(
        self, attempt: Attempt[Expanded], rows: int, offset: int, errors: list[RowError]
    ) -> Iterator[Expanded]:
        """Yield the rows made of all input rows, in pieces; a skipped row has no children."""
        for _, _, piece in self._compute(attempt, rows, offset, errors):
            if piece is not None:
                yield piece

    def _call_piece(self, rows: pa.RecordBatch, first: int) -> Expanded:
        self._calls += 1
        try:
            result = self._call(*rows.columns)
            self._has_succeeded = True
            if isinstance(result, pa.Table | pa.RecordBatch):
                return self._from_table(result, rows.num_rows, first)
            if isinstance(result, pa.Array | pa.ChunkedArray):
                result = result.to_pylist()
            return self._flatten(_children_by_row(result, rows.num_rows), first)
        except (KeyboardInterrupt, RangeFailedError):
            raise
        except BaseException as error:
            raise self._failure(error) from error

    def _flatten(self, children: Sequence[Sequence[object] | None], first: int) -> Expanded:
        counts = np.array([len(of_row or ()) for of_row in children], dtype=np.int64)
        elements = [self._element(child) for of_row in children for child in of_row or ()]
        parents = np.repeat(np.arange(len(children)) + first, counts)
        return Expanded(self._results.from_rows(elements), parents, _child_indexes(counts))

    def _element(self, child: object) -> object:
        """Return the value of a child; if plain values are declared, a record of that one column is accepted, too."""
        (name, *_) = self._results.schema.names
        if self._has_plain_values and isinstance(child, Mapping) and list(child) == [name]:
            return child[name]
        return getattr(child, name) if self._has_plain_values and is_record(type(child)) else child

    def _from_table(self, table: pa.Table | pa.RecordBatch, rows: int, first: int) -> Expanded:
        if PARENT_INDEX not in table.schema.names:
            raise ValueError(f"The table has no column {PARENT_INDEX!r}, which names the input row of each output row.")
        parents = table.column(PARENT_INDEX).to_numpy(zero_copy_only=False).astype(np.int64)
        if len(parents) and (parents.min() < 0 or parents.max() >= rows):
            raise ValueError(f"{PARENT_INDEX!r} must be between 0 and {rows - 1}: the call had {rows} input rows.")
        order = np.argsort(parents, kind="stable")
        sorted_table = table.take(order)
        values = self._results.from_batch(sorted_table.select(self._results.schema.names), len(parents))
        counts = np.bincount(parents, minlength=rows)
        return Expanded(values, parents[order] + first, _child_indexes(counts))


def _children_by_row(result: object, rows: int) -> list[list[object]]:
    if not isinstance(result, Iterable):
        raise TypeError(f"The chunker returned a {type(result).__name__}, not a list of rows for each input row.")
    children = [_as_list(of_row) for of_row in result]
    if len(children) != rows:
        # Single rows might get results of the right length by chance, and wrong children.
        raise RangeFailedError(
            "ValueError", f"The chunker returned {len(children)} lists for {rows} rows.", divisible=False
        )
    return children


def _child_indexes(counts: _Integers) -> NDArray[np.int32]:
    """Return 0, 1, 2 … for each parent, concatenated."""
    ends = np.cumsum(counts)
    indexes = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts, counts)
    return indexes.astype(np.int32)


def _collecting(call: Callable[..., object]) -> Callable[..., object]:
    def collect(*arguments: object) -> list[object]:
        return _as_list(call(*arguments))

    return collect


def _as_list(result: object) -> list[object]:
    if result is None:
        return []
    if isinstance(result, str | bytes | Mapping) or not isinstance(result, Iterable):
        raise TypeError(f"The chunker returned a {type(result).__name__}, not a list or a generator of rows.")
    return list(result)
