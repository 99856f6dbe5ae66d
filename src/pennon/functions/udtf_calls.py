"""Calling a UDTF: record batches in, record batches of the declared columns out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from pennon.functions.call_timeout import CallTimedOut, Deadline
from pennon.functions.error_policy import ErrorPolicy, Retry
from pennon.functions.failures import name_of, text_of
from pennon.functions.loader import Loaded, missing_package
from pennon.functions.results import to_arrow
from pennon.functions.udf_calls import GRACE_SECONDS

if TYPE_CHECKING:
    from pennon.core.arrow_typing import AnyArray

Batches = Iterator[pa.RecordBatch]


class PartitionFailedError(Exception):
    """A UDTF failed for a partition; ``rule`` is the retry rule of its policy that applies, if any."""

    def __init__(self, type_: str, message: str, rule: Retry | None = None) -> None:
        super().__init__(f"{type_}: {message}")
        self.type = type_
        self.message = message
        self.rule = rule


class TableFunction:
    """A loaded UDTF, ready to be called on partitions."""

    def __init__(
        self, loaded: Loaded, outputs: pa.Schema, policy: ErrorPolicy | None = None, grace: float = GRACE_SECONDS
    ) -> None:
        self._loaded = loaded
        self._outputs = outputs
        self._policy = loaded.envelope.error_policy if policy is None else policy
        self._grace = grace
        pa.array(
            []
        )  # the first array of Python values imports pandas, which must not count against the first call's timeout

    def run(self, schema: pa.Schema, batches: Batches) -> Batches:
        """Yield the output of a partition; the timeout applies to each output batch, without the time spent reading.

        Errors of the function are raised as PartitionFailedError, errors of reading as they are.
        """
        deadline = Deadline(self._loaded.envelope.options.timeout, self._grace)
        reader = _InputReader(batches, deadline)
        stream = self._stream(schema, iter(reader))
        next_batch = deadline.limit(lambda: next(stream, None))
        while True:
            try:
                with deadline:
                    batch = next_batch()
            except (KeyboardInterrupt, GeneratorExit):
                raise
            except BaseException as error:
                if reader.error is error:
                    raise
                raise self._failed(error) from error
            if batch is None:
                return
            yield batch

    def _stream(self, schema: pa.Schema, batches: Batches) -> Batches:
        takes_table = self._loaded.envelope.options.whole
        result = self._loaded.call(pa.Table.from_batches(batches, schema) if takes_table else batches)
        for piece in _pieces(result):
            yield from self._batches(piece)

    def _failed(self, error: BaseException) -> Exception:
        if isinstance(error, ModuleNotFoundError):
            return missing_package(self._loaded.envelope, error)
        if isinstance(error, CallTimedOut):
            message = f"A batch took longer than {self._loaded.envelope.options.timeout:g} s."
            return PartitionFailedError("Timeout", message, self._policy.rule_for(TimeoutError(message)))
        return PartitionFailedError(name_of(type(error)), text_of(error), self._policy.rule_for(error))

    def _batches(self, piece: object) -> Batches:
        if isinstance(piece, pa.Table):
            for batch in piece.to_batches():
                yield self._conform(batch)
        elif isinstance(piece, pa.RecordBatch):
            yield self._conform(piece)
        elif isinstance(piece, Mapping):
            yield self._conform(_from_columns(piece, self._outputs))
        elif isinstance(piece, list) and all(isinstance(row, Mapping) for row in piece):
            yield self._conform(pa.RecordBatch.from_pylist(piece, schema=self._outputs))
        else:
            raise TypeError(
                f"The UDTF returned a {type(piece).__name__}, not a record batch, a table, or a dictionary of columns."
            )

    def _conform(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch with the declared columns, in the declared order and types."""
        missing = [name for name in self._outputs.names if name not in batch.schema.names]
        unknown = [name for name in batch.schema.names if name not in self._outputs.names]
        if missing or unknown:
            wrong = f"without {', '.join(map(repr, missing))}" if missing else f"with {', '.join(map(repr, unknown))}"
            raise ValueError(f"The UDTF returned rows {wrong}, unlike its output_schema.")
        columns = [to_arrow(batch.column(field.name), field.type) for field in self._outputs]
        for field, column in zip(self._outputs, columns, strict=True):
            if not field.nullable and column.null_count:
                raise ValueError(f"The UDTF returned nulls for {field.name!r}, which is not nullable.")
        return pa.RecordBatch.from_arrays(columns, schema=self._outputs)


class _InputReader:
    """The input of a function; neither errors nor time of reading are attributed to the function."""

    def __init__(self, batches: Batches, deadline: Deadline) -> None:
        self._batches = batches
        self._deadline = deadline
        self.error: BaseException | None = None

    def __iter__(self) -> Batches:
        while (batch := self._next()) is not None:
            yield batch

    def _next(self) -> pa.RecordBatch | None:
        with self._deadline.paused():
            try:
                return next(self._batches, None)
            except Exception as error:
                self.error = error
                raise


def _pieces(result: object) -> Iterable[object]:
    if result is None:
        return ()
    if isinstance(result, pa.Table | pa.RecordBatch | Mapping) or (
        isinstance(result, list) and all(isinstance(row, Mapping) for row in result)
    ):
        return (result,)
    if isinstance(result, Iterable) and not isinstance(result, str | bytes):
        return result
    raise TypeError(f"The UDTF returned a {type(result).__name__}, not rows.")


def _from_columns(columns: Mapping[str, object], outputs: pa.Schema) -> pa.RecordBatch:
    arrays: dict[str, AnyArray] = {
        name: to_arrow(values, outputs.field(name).type)
        if name in outputs.names
        else pa.array(cast("list[Any]", values))
        for name, values in columns.items()
    }
    return pa.RecordBatch.from_pydict(arrays)
