"""Calling a UDF on batches: calls, retries, failed rows, and results of the declared types."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat, starmap
from typing import TYPE_CHECKING, TypedDict, TypeVar, Unpack, cast

import pyarrow as pa

from pennon.functions.bisection import Attempt, compute_ranges, first_failure
from pennon.functions.call_timeout import CallTimedOut, Deadline
from pennon.functions.error_policy import ErrorPolicy
from pennon.functions.failures import NO_ROW, FunctionFailedError, RangeFailedError, RowError, range_failed
from pennon.functions.loader import Loaded, missing_package
from pennon.functions.results import ResultColumn, ResultConverter, WrongLengthError, concat_batches, null_batch

if TYPE_CHECKING:
    from pennon.core.arrow_typing import AnyArray
    from pennon.functions.outputs import Output

__all__ = ["Applied", "Applier", "FunctionFailedError", "RowError"]

GRACE_SECONDS = 5.0

T = TypeVar("T")


@dataclass
class Applied:
    """The values of a batch, null where the function failed, and the errors of the failed rows."""

    values: pa.RecordBatch
    errors: list[RowError] = field(default_factory=list)
    calls: int = 0


class ApplierOptions(TypedDict, total=False):
    """How calls are limited and retried."""

    #: What happens when a call fails; by default the function's own policy.
    policy: ErrorPolicy | None
    #: Time limit of a call, in seconds; by default the function's own.
    timeout: float | None
    #: Seconds after the timeout at which a call that cannot be interrupted ends the process.
    grace: float
    #: Waits between two attempts.
    sleep: Callable[[float], None]
    #: Shared memory that holds the row being computed, or NO_ROW; the parent reads it if this process dies.
    current_row: memoryview | None


class Applier:
    """Calls a UDF on batches whose columns are its inputs, in order."""

    def __init__(
        self,
        loaded: Loaded,
        input_paths: Sequence[str],
        outputs: pa.Schema,
        struct_fields: Sequence[str] | None = None,
        **options: Unpack[ApplierOptions],
    ) -> None:
        """Bind a function to columns.

        Args:
            loaded: The function.
            input_paths: The paths of its inputs, which name the columns of a record batch it gets.
            outputs: The columns that its results are written to.
            struct_fields: For each output column the field of the result it takes, "" for the whole result. By
                default a single column takes the whole result, and several take the fields of the same name.
            options: Limits and retries.
        """
        envelope = loaded.envelope
        policy, timeout = options.get("policy"), options.get("timeout")
        self._loaded = loaded
        self._input_paths = list(input_paths)
        self._options = envelope.options
        self._policy = envelope.error_policy if policy is None else policy
        self._deadline = Deadline(
            envelope.options.timeout if timeout is None else timeout, options.get("grace", GRACE_SECONDS)
        )
        self._call = self._deadline.limit(loaded.call)
        self._results = ResultConverter(_output_columns(outputs, struct_fields, envelope.outputs))
        self._sleep = options.get("sleep", time.sleep)
        self._current_row = options.get("current_row")
        self._has_succeeded = False  # whether any call ever returned a result
        self._calls = 0

    def apply(self, batch: pa.RecordBatch) -> Applied:
        """Return the values of a batch; raise FunctionFailedError if the policy is to fail."""
        if batch.num_columns != len(self._input_paths):
            raise ValueError(f"The batch has {batch.num_columns} columns for {len(self._input_paths)} inputs.")
        self._calls = 0
        by_row = self._loaded.envelope.kind == "scalar"
        errors: list[RowError] = []
        with self._deadline:
            pieces = [self._apply_rows(batch, errors)] if by_row else list(self._apply_batch(batch, errors))
        return Applied(concat_batches(pieces, self._results.schema), errors, self._calls)

    # One call per row.

    def _apply_rows(self, batch: pa.RecordBatch, errors: list[RowError]) -> pa.RecordBatch:
        values = self._call_rows([python_values(column) for column in batch.columns], batch.num_rows, errors)
        try:
            return self._results.from_rows(values)
        except Exception:  # noqa: BLE001 - an error while a result is converted is the function's error
            return concat_batches(list(self._convert_rows(values, errors)), self._results.schema)

    def _call_rows(self, columns: Sequence[Sequence[object]], rows: int, errors: list[RowError]) -> list[object]:
        try:
            values = self._compute_rows(columns, rows, errors)
        finally:
            if self._current_row is not None:
                self._current_row[0] = NO_ROW
        self._calls += rows
        self._has_succeeded = self._has_succeeded or len(errors) < rows
        return values

    def _compute_rows(self, columns: Sequence[Sequence[object]], rows: int, errors: list[RowError]) -> list[object]:
        calls = self._call_each(columns, rows)
        values: list[object] = []
        while len(values) < rows:
            try:
                # The fastest loop there is. When a call raises, the values before it are kept, and the iterator
                # continues with the row after it.
                values.extend(calls)
                raised: BaseException = StopIteration()
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # noqa: BLE001 - also SystemExit fails a row, not the process
                raised = error
            if len(values) < rows:
                row = len(values)
                arguments = [column[row] for column in columns]
                values.append(self._retry_row(row, arguments, raised, errors))
        return values

    def _call_each(self, columns: Sequence[Sequence[object]], rows: int) -> Iterator[object]:
        """Call the function for one row after the other, lazily."""
        current_row = self._current_row
        if current_row is None:
            return map(self._call, *columns) if columns else starmap(self._call, repeat((), rows))

        def call(row: int, *arguments: object) -> object:
            current_row[0] = row
            return self._call(*arguments)

        return map(call, range(rows), *columns)

    def _retry_row(self, row: int, arguments: list[object], raised: BaseException, errors: list[RowError]) -> object:
        """Return the value of a row whose first call raised, after the retries of the policy."""

        def call_again() -> object:
            self._calls += 1
            return self._call(*arguments)

        self._has_succeeded = self._has_succeeded or row > len(errors)
        try:
            return self._retry(call_again, raised)
        except RangeFailedError as failure:
            error = failure.at(row)
            if self._policy.on_error == "fail":
                raise FunctionFailedError(self._loaded.name, error) from failure.__cause__
            errors.append(error)
            return None

    def _convert_rows(self, values: list[object], errors: list[RowError]) -> Iterator[pa.RecordBatch]:
        """Yield the results of the rows in pieces, null where a result does not have the declared type."""
        attempt = attempt_conversion(lambda start, stop: self._results.from_rows(values[start:stop]))
        yield from self._with_nulls(self._compute(attempt, len(values), 0, errors))
        errors.sort(key=lambda error: error.row)

    # One call per batch.

    def _apply_batch(self, batch: pa.RecordBatch, errors: list[RowError]) -> Iterator[pa.RecordBatch]:
        for offset, rows in self._slices(batch):
            attempt = self._attempt_calls(rows, lambda piece, _: self._call_batch(piece))
            yield from self._with_nulls(self._compute(attempt, rows.num_rows, offset, errors))

    def _slices(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the rows of each call with their offset: within batch_size and batch_bytes, but at least one row."""
        size, max_bytes = self._options.batch_size or max(batch.num_rows, 1), self._options.batch_bytes
        waiting = [(offset, batch.slice(offset, size)) for offset in range(0, batch.num_rows, size)][::-1]
        while waiting:
            offset, rows = waiting.pop()
            half = rows.num_rows // 2
            if max_bytes and half and rows.nbytes > max_bytes:
                waiting += [(offset + half, rows.slice(half)), (offset, rows.slice(0, half))]
            else:
                yield offset, rows

    def _attempt_calls(self, batch: pa.RecordBatch, call: Callable[[pa.RecordBatch, int], T]) -> Attempt[T]:
        """Return an attempt that calls the function for ranges of a batch; ``call`` gets the rows and their start."""

        def attempt(start: int, stop: int) -> T:
            rows = batch.slice(start, stop - start)
            try:
                return call(rows, start)
            except RangeFailedError as failure:
                # Ranges between the whole batch and single rows only serve the bisection, and are not retried.
                if failure.__cause__ is None or 1 < stop - start < batch.num_rows:
                    raise
                return self._retry(lambda: call(rows, start), failure.__cause__)

        return attempt

    def _call_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self._calls += 1
        takes_batch = self._loaded.envelope.kind == "record_batch"
        arguments: Sequence[object] = [batch.rename_columns(self._input_paths)] if takes_batch else batch.columns
        try:
            result = self._call(*arguments)
            self._has_succeeded = True
            return self._results.from_batch(result, batch.num_rows)
        except KeyboardInterrupt:
            raise
        except WrongLengthError as error:
            # Single rows might get results of the right length by chance, and wrong values.
            raise RangeFailedError("ValueError", str(error), divisible=False) from None
        except BaseException as error:
            raise self._failure(error) from error

    # Shared by both.

    def _compute(
        self, attempt: Attempt[T], rows: int, offset: int, errors: list[RowError]
    ) -> Iterator[tuple[int, int, T | None]]:
        return compute_by_policy(attempt, rows, self._policy, self._loaded.name, errors, offset)

    def _with_nulls(self, ranges: Iterator[tuple[int, int, pa.RecordBatch | None]]) -> Iterator[pa.RecordBatch]:
        for start, stop, piece in ranges:
            yield null_batch(stop - start, self._results.schema) if piece is None else piece

    def _retry(self, call: Callable[[], T], raised: BaseException) -> T:
        """Repeat a call that has failed once, as often as the policy says, and return its result."""
        attempt = 1
        while True:
            failure = self._failure(raised, attempt)
            rule = self._policy.rule_for(_as_matched(raised))
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
        if isinstance(error, ModuleNotFoundError) and not self._has_succeeded:
            raise missing_package(self._loaded.envelope, error) from error
        if isinstance(error, CallTimedOut):
            message = f"The call took longer than {self._deadline.seconds} s."
            return RangeFailedError("Timeout", message, attempt=attempt)
        return range_failed(error, attempt)


def compute_by_policy(
    attempt: Attempt[T], rows: int, policy: ErrorPolicy, name: str, errors: list[RowError], offset: int = 0
) -> Iterator[tuple[int, int, T | None]]:
    """Yield consecutive ranges of rows with their results; raise FunctionFailedError if the policy is to fail.

    If the policy is to skip, a range that failed has no result (None), and the errors of its rows are added to
    ``errors``.
    """
    if policy.on_error == "skip":
        for start, stop, result in compute_ranges(attempt, rows):
            if isinstance(result, RangeFailedError):
                errors.extend(result.at(offset + row) for row in range(start, stop))
                yield start, stop, None
            else:
                yield start, stop, result
    elif rows:
        try:
            yield 0, rows, attempt(0, rows)
        except RangeFailedError as failure:
            row, nearest = first_failure(attempt, rows, failure)
            error = nearest.at(offset + (row or 0))
            raise FunctionFailedError(name, error, row_known=row is not None) from nearest.__cause__


def attempt_conversion(convert: Callable[[int, int], T]) -> Attempt[T]:
    """Return an attempt that converts ranges of results; an error is the failure of the range."""

    def attempt(start: int, stop: int) -> T:
        try:
            return convert(start, stop)
        except Exception as error:
            raise range_failed(error) from error

    return attempt


def python_values(column: AnyArray) -> Sequence[object]:
    """Return the values of a column as Python objects."""
    if column.null_count == 0 and _is_number(column.type):
        # Creates each number when it is read, in memory that is then reused: faster than a list of all.
        return memoryview(cast(bytes, column.to_numpy()))  # an array is a buffer; mypy's numpy does not say so
    return cast("list[object]", column.to_pylist())


def _output_columns(
    outputs: pa.Schema, struct_fields: Sequence[str] | None, declared: Sequence[Output]
) -> list[ResultColumn]:
    if struct_fields is None:
        struct_fields = [""] if len(outputs) == 1 else outputs.names
    names = [output.struct_field for output in declared]
    return [
        ResultColumn(column, name, names.index(name) if name in names else position)
        for position, (column, name) in enumerate(zip(outputs, struct_fields, strict=True))
    ]


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind))


def _as_matched(error: BaseException) -> BaseException:
    """Return the error that retry rules are matched with: a TimeoutError for a timeout."""
    return TimeoutError("The call took too long.") if isinstance(error, CallTimedOut) else error
