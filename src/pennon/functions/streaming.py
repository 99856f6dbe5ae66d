"""Applying a table function: batches in, batches of the declared columns out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from pennon.functions.failures import FunctionFailedError, RowError, name_of, text_of
from pennon.functions.loading import Loaded
from pennon.functions.results import to_arrow

Batches = Iterator[pa.RecordBatch]


class TableFunction:
    """A table function, ready to be given the rows of a partition."""

    def __init__(self, loaded: Loaded, outputs: pa.Schema) -> None:
        self._loaded = loaded
        self._outputs = outputs

    @property
    def name(self) -> str:
        """Its name."""
        return self._loaded.name

    def stream(self, schema: pa.Schema, batches: Batches) -> Batches:
        """Yield what becomes of batches of a schema, in the declared types; raise what the function raises."""
        whole = self._loaded.envelope.options.whole
        result = self._loaded.call(pa.Table.from_batches(batches, schema) if whole else batches)
        for piece in _pieces(result):
            yield from self._batches(piece)

    def failed(self, error: BaseException, partition: str, attempt: int = 1) -> FunctionFailedError:
        """Return what the function raised as the failure of a partition."""
        failure = FunctionFailedError(
            self.name, RowError(0, name_of(type(error)), text_of(error), attempt), row_known=False
        )
        failure.place = partition
        return failure

    def _batches(self, piece: Any) -> Batches:
        if isinstance(piece, pa.Table):
            for batch in piece.to_batches():
                yield self._fitted(batch)
        elif isinstance(piece, pa.RecordBatch):
            yield self._fitted(piece)
        elif isinstance(piece, Mapping):
            yield self._fitted(_of_columns(piece, self._outputs))
        elif isinstance(piece, list) and all(isinstance(row, Mapping) for row in piece):
            yield self._fitted(pa.RecordBatch.from_pylist(piece, schema=self._outputs))
        else:
            raise TypeError(
                f"The table function returned a {type(piece).__name__}, not a record batch, a table, or a dictionary "
                "of columns."
            )

    def _fitted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch with the declared columns, in their order and types."""
        missing = [name for name in self._outputs.names if name not in batch.schema.names]
        unknown = [name for name in batch.schema.names if name not in self._outputs.names]
        if missing or unknown:
            wrong = f"without {', '.join(map(repr, missing))}" if missing else f"with {', '.join(map(repr, unknown))}"
            raise ValueError(f"The table function returned rows {wrong}; its output_schema says otherwise.")
        columns = [to_arrow(batch.column(field.name), field.type) for field in self._outputs]
        for field, column in zip(self._outputs, columns, strict=True):
            if not field.nullable and column.null_count:
                raise ValueError(f"The table function returned nulls for {field.name!r}, which is not nullable.")
        return pa.RecordBatch.from_arrays(columns, schema=self._outputs)


def _pieces(result: Any) -> Iterable[Any]:
    if result is None:
        return ()
    if isinstance(result, pa.Table | pa.RecordBatch | Mapping) or (
        isinstance(result, list) and all(isinstance(row, Mapping) for row in result)
    ):
        return (result,)
    if isinstance(result, Iterable) and not isinstance(result, str | bytes):
        return result
    raise TypeError(f"The table function returned a {type(result).__name__}, not rows.")


def _of_columns(columns: Mapping[str, Any], outputs: pa.Schema) -> pa.RecordBatch:
    arrays = {
        name: to_arrow(values, outputs.field(name).type) if name in outputs.names else pa.array(values)
        for name, values in columns.items()
    }
    return pa.RecordBatch.from_pydict(arrays)
