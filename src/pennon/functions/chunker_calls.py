"""Applying a chunker to batches: the rows it makes of each row, and the rows it fails for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from pennon.functions.decorators.chunker import PARENT
from pennon.functions.failures import RangeFailedError, RowError, range_failed
from pennon.functions.loader import Loaded
from pennon.functions.type_hints import is_record
from pennon.functions.udf_calls import Applier, python_values


@dataclass
class Expanded:
    """Rows that a chunker made: of which row of its input each comes, and the how manyth of it that is."""

    values: pa.RecordBatch
    parents: np.ndarray[Any, np.dtype[np.int64]]
    children: np.ndarray[Any, np.dtype[np.int32]]


class Expander(Applier):
    """Applies a chunker to batches whose columns are its inputs, in order."""

    def __init__(self, loaded: Loaded, input_paths: Sequence[str], outputs: pa.Schema, **settings: Any) -> None:
        """Tie a chunker to columns; the rest is as for an Applier."""
        self._batched = loaded.envelope.kind == "batched_chunker"
        # What a generator does happens while its rows are taken: inside the call, where its time is limited.
        complete = loaded if self._batched else replace(loaded, call=_collecting(loaded.call))
        declared = [output.struct_field for output in loaded.envelope.outputs]
        plain = len(outputs) == 1 and (not declared or declared == [loaded.envelope.name])
        super().__init__(complete, input_paths, outputs, [""] if plain else outputs.names, **settings)
        self._plain = plain

    def expand(self, batch: pa.RecordBatch) -> tuple[list[Expanded], list[RowError]]:
        """Return what becomes of a batch; raise FunctionFailedError when the policy is to fail."""
        self._calls = 0
        errors: list[RowError] = []
        with self._deadline:
            pieces = list(self._expand_batch(batch, errors) if self._batched else self._expand_rows(batch, errors))
        return pieces, errors

    def _expand_rows(self, batch: pa.RecordBatch, errors: list[RowError]) -> Iterator[Expanded]:
        columns = [python_values(column) for column in batch.columns]
        families = self._call_rows(columns, batch.num_rows, errors)

        def convert(start: int, stop: int) -> Expanded:
            try:
                return self._flatten(families[start:stop], start)
            except Exception as error:
                raise range_failed(error) from error

        yield from self._pieces(convert, batch.num_rows, 0, errors)

    def _expand_batch(self, batch: pa.RecordBatch, errors: list[RowError]) -> Iterator[Expanded]:
        for offset, rows in self._portions(batch):

            def attempt(start: int, stop: int, rows: pa.RecordBatch = rows, offset: int = offset) -> Expanded:
                piece = rows.slice(start, stop - start)
                try:
                    return self._call_piece(piece, offset + start)
                except RangeFailedError as failure:
                    if failure.__cause__ is None or 1 < stop - start < rows.num_rows:
                        raise
                    found: Expanded = self._retried(lambda: self._call_piece(piece, offset + start), failure.__cause__)
                    return found

            yield from self._pieces(attempt, rows.num_rows, offset, errors)

    def _pieces(
        self, attempt: Callable[[int, int], Expanded], rows: int, offset: int, errors: list[RowError]
    ) -> Iterator[Expanded]:
        """Yield what becomes of all rows in pieces; a row that fails, where the policy lets it, has no children."""
        for start, stop, piece in self._settled(attempt, rows, offset):
            if isinstance(piece, RangeFailedError):
                errors.extend(piece.at(offset + row) for row in range(start, stop))
            else:
                yield piece

    def _call_piece(self, rows: pa.RecordBatch, first: int) -> Expanded:
        self._calls += 1
        try:
            result = self._call(*rows.columns)
            self._answered = True
            if isinstance(result, pa.Table | pa.RecordBatch):
                return self._from_table(result, rows.num_rows, first)
            if isinstance(result, pa.Array | pa.ChunkedArray):
                result = result.to_pylist()
            return self._flatten(_families(result, rows.num_rows), first)
        except (KeyboardInterrupt, RangeFailedError):
            raise
        except BaseException as error:
            raise self._failure(error) from error

    def _flatten(self, families: Sequence[Sequence[Any] | None], first: int) -> Expanded:
        counts = np.array([len(family or ()) for family in families], dtype=np.int64)
        elements = [self._element(child) for family in families for child in family or ()]
        return self._expanded(
            self._results.from_rows(elements), np.repeat(np.arange(len(families)) + first, counts), _numbered(counts)
        )

    def _element(self, child: Any) -> Any:
        """Return the one value of a child that is a record of one column all the same."""
        (name, *_) = self._results.schema.names
        if self._plain and isinstance(child, Mapping) and list(child) == [name]:
            return child[name]
        return getattr(child, name) if self._plain and is_record(type(child)) else child

    def _from_table(self, table: Any, rows: int, first: int) -> Expanded:
        if PARENT not in table.schema.names:
            raise ValueError(f"The table has no column {PARENT!r} that says which row each of its rows comes from.")
        parents = table.column(PARENT).to_numpy(zero_copy_only=False).astype(np.int64)
        if len(parents) and (parents.min() < 0 or parents.max() >= rows):
            raise ValueError(f"{PARENT!r} counts the rows of the call from 0; there were {rows} of them.")
        order = np.argsort(parents, kind="stable")
        sorted_table = table.take(pa.array(order))
        values = self._results.from_batch(sorted_table.select(self._results.schema.names), len(parents))
        counts = np.bincount(parents, minlength=rows)
        return self._expanded(values, parents[order] + first, _numbered(counts))

    def _expanded(self, values: pa.RecordBatch, parents: Any, children: Any) -> Expanded:
        return Expanded(values, parents, children.astype(np.int32))


def _families(result: Any, rows: int) -> list[list[Any]]:
    families = [_many(family) for family in result]
    if len(families) != rows:
        # Single rows would then have "right" lengths, and children nobody meant.
        raise RangeFailedError(
            "ValueError", f"The chunker returned {len(families)} lists for {rows} rows.", divisible=False
        )
    return families


def _numbered(counts: Any) -> Any:
    """Return 0, 1, 2 … for each family, one after the other."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts, counts)


def _collecting(call: Callable[..., Any]) -> Callable[..., Any]:
    def collect(*arguments: Any) -> list[Any]:
        return _many(call(*arguments))

    return collect


def _many(result: Any) -> list[Any]:
    if result is None:
        return []
    if isinstance(result, str | bytes | Mapping) or not isinstance(result, Iterable):
        raise TypeError(f"The chunker returned a {type(result).__name__}, not a list or a generator of rows.")
    return list(result)
