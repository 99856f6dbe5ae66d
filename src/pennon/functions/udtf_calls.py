"""Applying a table function: batches in, batches of the declared columns out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from pennon.functions.call_timeout import CallTimedOut, Deadline
from pennon.functions.error_policy import ErrorPolicy, Retry
from pennon.functions.failures import name_of, text_of
from pennon.functions.loader import Loaded, missing_package
from pennon.functions.results import to_arrow
from pennon.functions.udf_calls import GRACE_SECONDS

Batches = Iterator[pa.RecordBatch]


class PartitionFailedError(Exception):
    """A table function failed for a partition; with the rule of its policy that says how it is called again."""

    def __init__(self, type_: str, message: str, rule: Retry | None = None) -> None:
        super().__init__(f"{type_}: {message}")
        self.type = type_
        self.message = message
        self.rule = rule


class TableFunction:
    """A table function, ready to be given the rows of a partition."""

    def __init__(
        self, loaded: Loaded, outputs: pa.Schema, policy: ErrorPolicy | None = None, grace: float = GRACE_SECONDS
    ) -> None:
        self._loaded = loaded
        self._outputs = outputs
        self._policy = loaded.envelope.error_policy if policy is None else policy
        self._grace = grace
        pa.array([])  # for the first array of Python's values Arrow loads pandas: not on the time of the first call

    def run(self, schema: pa.Schema, batches: Batches) -> Batches:
        """Yield what becomes of batches; each batch has the time that the author gave a call, reading apart.

        What the function raises comes as a PartitionFailedError, what the batches raise as it is.
        """
        deadline = Deadline(self._loaded.envelope.options.timeout, self._grace)
        read = _Read(batches, deadline)
        stream = self.stream(schema, iter(read))
        following = deadline.limit(lambda: next(stream, None))
        while True:
            try:
                with deadline:
                    batch = following()
            except (KeyboardInterrupt, GeneratorExit):
                raise
            except BaseException as error:
                if read.error is error:
                    raise
                raise self._failed(error) from error
            if batch is None:
                return
            yield batch

    def stream(self, schema: pa.Schema, batches: Batches) -> Batches:
        """Yield what becomes of batches of a schema, in the declared types; raise what the function raises."""
        whole = self._loaded.envelope.options.whole
        result = self._loaded.call(pa.Table.from_batches(batches, schema) if whole else batches)
        for piece in _pieces(result):
            yield from self._batches(piece)

    def _failed(self, error: BaseException) -> Exception:
        if isinstance(error, ModuleNotFoundError):
            return missing_package(self._loaded.envelope, error)
        if isinstance(error, CallTimedOut):
            message = f"A batch took longer than {self._loaded.envelope.options.timeout:g} s."
            return PartitionFailedError("Timeout", message, self._policy.rule_for(TimeoutError(message)))
        return PartitionFailedError(name_of(type(error)), text_of(error), self._policy.rule_for(error))

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


class _Read:
    """What a function reads: neither what reading raises nor how long it takes is taken for the function's fault."""

    def __init__(self, batches: Batches, deadline: Deadline) -> None:
        self._batches = batches
        self._deadline = deadline
        self.error: BaseException | None = None

    def __iter__(self) -> Batches:
        while (batch := self._next()) is not None:
            yield batch

    def _next(self) -> pa.RecordBatch | None:
        with self._deadline.waiting():
            try:
                return next(self._batches, None)
            except Exception as error:
                self.error = error
                raise


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
