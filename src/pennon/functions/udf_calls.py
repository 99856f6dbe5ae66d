"""Applying a function to batches: calls, retries, the rows it fails for, and results of the declared types."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat, starmap
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pennon.functions.bisection import first_failure, salvage
from pennon.functions.call_timeout import HUNG_EXIT, CallTimedOut, Deadline
from pennon.functions.error_policy import ErrorPolicy
from pennon.functions.failures import NOBODY, FunctionFailedError, RangeFailedError, RowError, range_failed
from pennon.functions.loader import Loaded, missing_package
from pennon.functions.results import Results, Target, WrongLengthError, join, nulls

if TYPE_CHECKING:
    from pennon.functions.outputs import Output

__all__ = ["HUNG_EXIT", "Applied", "Applier", "FunctionFailedError", "RowError"]

GRACE_SECONDS = 5.0


@dataclass
class Applied:
    """The values of a batch, null where the function failed, and why it did."""

    values: pa.RecordBatch
    errors: list[RowError] = field(default_factory=list)
    calls: int = 0


class Applier:
    """Applies a function to batches whose columns are its inputs, in order."""

    def __init__(
        self,
        loaded: Loaded,
        input_paths: Sequence[str],
        outputs: pa.Schema,
        struct_fields: Sequence[str] | None = None,
        *,
        policy: ErrorPolicy | None = None,
        timeout: float | None = None,
        grace: float = GRACE_SECONDS,
        sleep: Callable[[float], None] = time.sleep,
        suspect: memoryview | None = None,
    ) -> None:
        """Tie a function to columns.

        Args:
            loaded: The function.
            input_paths: The paths of its inputs, which name the columns of a record batch it gets.
            outputs: The columns that its results become.
            struct_fields: For each output column the field of the result it takes, "" for the whole result. By
                default one column takes the whole, and several take the fields that are called like them.
            policy: What happens when it fails; by default what its author said, as with the timeout.
            timeout: The seconds a call may take.
            grace: The seconds after which a call that cannot be interrupted ends the process.
            sleep: Waits between two attempts.
            suspect: Holds the row that is being computed, or NOBODY, for who wants to know should this process die.
        """
        envelope = loaded.envelope
        self._loaded = loaded
        self._input_paths = list(input_paths)
        self._options = envelope.options
        self._policy = envelope.error_policy if policy is None else policy
        self._deadline = Deadline(envelope.options.timeout if timeout is None else timeout, grace)
        self._call = self._deadline.limit(loaded.call)
        self._results = Results(_targets(outputs, struct_fields, envelope.outputs))
        self._sleep = sleep
        self._suspect = suspect
        self._answered = False  # whether any call ever came back with a result
        self._calls = 0

    def apply(self, batch: pa.RecordBatch) -> Applied:
        """Return the values of a batch; raise FunctionFailedError when the policy is to fail."""
        if batch.num_columns != len(self._input_paths):
            raise ValueError(f"The batch has {batch.num_columns} columns for {len(self._input_paths)} inputs.")
        self._calls = 0
        by_row = self._loaded.envelope.kind == "scalar"
        errors: list[RowError] = []
        with self._deadline:
            pieces = [self._by_row(batch, errors)] if by_row else list(self._by_batch(batch, errors))
        return Applied(join(pieces, self._results.schema), errors, self._calls)

    # One call for each row.

    def _by_row(self, batch: pa.RecordBatch, errors: list[RowError]) -> pa.RecordBatch:
        values = self._call_rows([python_values(column) for column in batch.columns], batch.num_rows, errors)
        try:
            return self._results.from_rows(values)
        except Exception:  # noqa: BLE001 - whatever a result does while it is converted is the function's fault
            return join(list(self._convert_rows(values, errors)), self._results.schema)

    def _call_rows(self, columns: Sequence[Sequence[Any]], rows: int, errors: list[RowError]) -> list[Any]:
        try:
            values = self._settle_rows(columns, rows, errors)
        finally:
            if self._suspect is not None:
                self._suspect[0] = NOBODY
        self._calls += rows
        self._answered = self._answered or len(errors) < rows
        return values

    def _settle_rows(self, columns: Sequence[Sequence[Any]], rows: int, errors: list[RowError]) -> list[Any]:
        calls = self._call_each(columns, rows)
        values: list[Any] = []
        while len(values) < rows:
            try:
                # As fast as a loop gets. When a call raises, the values before it are kept, and the iterator goes on
                # with the row after it.
                values.extend(calls)
                raised: BaseException = StopIteration()
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # noqa: BLE001 - also SystemExit fails a row, not the process
                raised = error
            if len(values) < rows:
                row = len(values)
                arguments = [column[row] for column in columns]
                values.append(self._settle_row(row, arguments, raised, errors))
        return values

    def _call_each(self, columns: Sequence[Sequence[Any]], rows: int) -> Iterator[Any]:
        """Call the function for one row after the other, as they are asked for."""
        suspect = self._suspect
        if suspect is None:
            return map(self._call, *columns) if columns else starmap(self._call, repeat((), rows))

        def call(row: int, *arguments: Any) -> Any:
            suspect[0] = row
            return self._call(*arguments)

        return map(call, range(rows), *columns)

    def _settle_row(self, row: int, arguments: list[Any], raised: BaseException, errors: list[RowError]) -> Any:
        """Return the value of a row whose first call raised, by the policy."""

        def again() -> Any:
            self._calls += 1
            return self._call(*arguments)

        self._answered = self._answered or row > len(errors)
        try:
            return self._retried(again, raised)
        except RangeFailedError as failure:
            error = failure.at(row)
            if self._policy.on_error == "fail":
                raise FunctionFailedError(self._loaded.name, error) from failure.__cause__
            errors.append(error)
            return None

    def _convert_rows(self, values: list[Any], errors: list[RowError]) -> Iterator[pa.RecordBatch]:
        """Yield the results of the rows in pieces, null where a result does not have the declared type."""

        def convert(start: int, stop: int) -> pa.RecordBatch:
            try:
                return self._results.from_rows(values[start:stop])
            except Exception as error:
                raise range_failed(error) from error

        yield from self._settle(convert, len(values), 0, errors)
        errors.sort(key=lambda error: error.row)

    # One call for each batch.

    def _by_batch(self, batch: pa.RecordBatch, errors: list[RowError]) -> Iterator[pa.RecordBatch]:
        for offset, rows in self._portions(batch):
            yield from self._settle_batch(rows, offset, errors)

    def _portions(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield what calls get, and where it begins: no more rows or bytes than the function wants, but one row."""
        size, most = self._options.batch_size or max(batch.num_rows, 1), self._options.batch_bytes
        waiting = [(offset, batch.slice(offset, size)) for offset in range(0, batch.num_rows, size)][::-1]
        while waiting:
            offset, rows = waiting.pop()
            half = rows.num_rows // 2
            if most and half and rows.nbytes > most:
                waiting += [(offset + half, rows.slice(half)), (offset, rows.slice(0, half))]
            else:
                yield offset, rows

    def _settle_batch(self, batch: pa.RecordBatch, offset: int, errors: list[RowError]) -> Iterator[pa.RecordBatch]:
        def attempt(start: int, stop: int) -> pa.RecordBatch:
            rows = batch.slice(start, stop - start)
            try:
                return self._call_batch(rows)
            except RangeFailedError as failure:
                # Ranges between the whole batch and single rows are only there to find the rows.
                if failure.__cause__ is None or 1 < stop - start < batch.num_rows:
                    raise
                return self._retried(lambda: self._call_batch(rows), failure.__cause__)

        yield from self._settle(attempt, batch.num_rows, offset, errors)

    def _call_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self._calls += 1
        whole = self._loaded.envelope.kind == "record_batch"
        arguments = [batch.rename_columns(self._input_paths)] if whole else batch.columns
        try:
            result = self._call(*arguments)
            self._answered = True
            return self._results.from_batch(result, batch.num_rows)
        except KeyboardInterrupt:
            raise
        except WrongLengthError as error:
            # Single rows would then have "right" lengths, and values nobody meant.
            raise RangeFailedError("ValueError", str(error), divisible=False) from None
        except BaseException as error:
            raise self._failure(error) from error

    # What both have in common.

    def _settle(
        self, attempt: Callable[[int, int], pa.RecordBatch], rows: int, offset: int, errors: list[RowError]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the values of all rows in pieces, by the policy for those that fail."""
        for start, stop, piece in self._settled(attempt, rows, offset):
            if isinstance(piece, RangeFailedError):
                errors.extend(piece.at(offset + row) for row in range(start, stop))
                yield nulls(stop - start, self._results.schema)
            else:
                yield piece

    def _settled(self, attempt: Callable[[int, int], Any], rows: int, offset: int) -> Iterator[tuple[int, int, Any]]:
        return settle(attempt, rows, offset, self._policy, self._loaded.name)

    def _retried(self, call: Callable[[], Any], raised: BaseException) -> Any:
        """Return what a call that has failed once returns when it is made again, as often as the policy says."""
        attempt = 1
        while True:
            failure = self._failure(raised, attempt)
            rule = self._policy.rule_for(_seen_by_rules(raised))
            if rule is None or attempt >= rule.attempts:
                raise failure from raised
            self._sleep(rule.delay(attempt))
            attempt += 1
            try:
                return call()
            except KeyboardInterrupt:
                raise
            except RangeFailedError as error:
                if error.__cause__ is None:
                    raise
                raised = error.__cause__
            except BaseException as error:  # noqa: BLE001 - also SystemExit fails a row, not the process
                raised = error

    def _failure(self, error: BaseException, attempt: int = 1) -> RangeFailedError:
        if isinstance(error, ModuleNotFoundError) and not self._answered:
            raise missing_package(self._loaded.envelope, error) from error
        if isinstance(error, CallTimedOut):
            message = f"The call took longer than {self._deadline.seconds} s."
            return RangeFailedError("Timeout", message, attempt=attempt)
        return range_failed(error, attempt)


def settle(
    attempt: Callable[[int, int], Any], rows: int, offset: int, policy: ErrorPolicy, name: str
) -> Iterator[tuple[int, int, Any]]:
    """Yield consecutive ranges with their result or failure; raise for the first failure if the policy is to fail."""
    if policy.on_error == "skip":
        yield from salvage(attempt, rows)
        return
    if rows:
        try:
            yield 0, rows, attempt(0, rows)
        except RangeFailedError as failure:
            row, nearest = first_failure(attempt, rows, failure)
            error = nearest.at(offset + (row or 0))
            raise FunctionFailedError(name, error, row_known=row is not None) from nearest.__cause__


def _targets(outputs: pa.Schema, struct_fields: Sequence[str] | None, declared: Sequence[Output]) -> list[Target]:
    if struct_fields is None:
        struct_fields = [""] if len(outputs) == 1 else outputs.names
    names = [output.struct_field for output in declared]
    return [
        Target(column, name, names.index(name) if name in names else position)
        for position, (column, name) in enumerate(zip(outputs, struct_fields, strict=True))
    ]


def python_values(column: pa.Array) -> Sequence[Any]:
    """Return the values of a column as Python's own."""
    if column.null_count == 0 and _is_number(column.type):
        # A number comes into being when it is asked for, and its memory serves for the next: faster than a list of all.
        return memoryview(column.to_numpy())
    values: list[Any] = column.to_pylist()
    return values


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind))


def _seen_by_rules(error: BaseException) -> BaseException:
    return TimeoutError("The call took too long.") if isinstance(error, CallTimedOut) else error
