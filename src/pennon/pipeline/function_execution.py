"""How a task computes rows: by a function in this process, by one in a sandbox process, or by Lance itself.

A function moves to the sandbox once it has killed the Python worker of an earlier attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from pennon.functions.chunker_calls import Expander
from pennon.functions.envelope import read_envelope
from pennon.functions.loader import EnvironmentMismatchError, LoadingFailedError, load
from pennon.functions.sandbox.calls import SandboxedApplier, SandboxedExpander
from pennon.functions.udf_calls import Applied, Applier, FunctionFailedError
from pennon.pipeline.refresh.fragments import SchemaMismatchError
from pennon.tables.field_paths import find_field

if TYPE_CHECKING:
    from pennon.pipeline.column_work import ColumnWork
    from pennon.pipeline.task_records import TaskFailure

#: The rows of a batch that failed: the index, the type of the error, its message and the number of the attempt.
Errors = list[tuple[int, str, str, int]]
#: Computes the outputs of a batch: a column for each target, and the errors.
Compute = Callable[[pa.RecordBatch], tuple[pa.RecordBatch, Errors]]
#: Turns one row into several.
AnyExpander = Expander | SandboxedExpander


@contextmanager
def open_compute(work: ColumnWork, schema: pa.Schema) -> Iterator[Compute]:
    """Yield what computes the outputs of a batch."""
    if work.function is None:
        yield _pass_through
        return
    envelope = read_envelope(work.function)
    outputs = pa.schema([pa.field(f"out{at}", find_field(schema, t.path).type) for at, t in enumerate(work.targets)])
    struct_fields = [target.struct_field for target in work.targets]
    with ExitStack() as opened:
        if has_crashed_before():
            sandbox = partial(SandboxedApplier, work.function, work.inputs, outputs, struct_fields)
            appliers = _ApplierPool(lambda: opened.enter_context(sandbox()))
        else:
            loaded = load(envelope)
            appliers = _ApplierPool(lambda: Applier(loaded, work.inputs, outputs, struct_fields))
        yield appliers.compute


@contextmanager
def open_expanders(
    content: bytes, inputs: Sequence[str], outputs: pa.Schema, count: int
) -> Iterator[Sequence[AnyExpander]]:
    """Yield ``count`` expanders, one for each thread: an expander makes one call at a time."""
    with ExitStack() as opened:
        if has_crashed_before():
            sandboxes = [SandboxedExpander(content, inputs, outputs) for _ in range(count)]
            yield [opened.enter_context(sandbox) for sandbox in sandboxes]
        else:
            loaded = load(read_envelope(content))
            yield [Expander(loaded, inputs, outputs) for _ in range(count)]


class _ApplierPool:
    """One applier for each thread that computes: an applier makes one call at a time."""

    def __init__(self, make: Callable[[], Applier | SandboxedApplier]) -> None:
        self._make = make
        self._idle: list[Applier | SandboxedApplier] = []

    def compute(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Errors]:
        """Compute the outputs of a batch."""
        try:
            applier = self._idle.pop()
        except IndexError:
            applier = self._make()
        try:
            return _outcome(applier.apply(batch))
        finally:
            self._idle.append(applier)


def call_in_threads(compute: Compute, inputs: pa.RecordBatch, threads: int) -> list[tuple[int, pa.RecordBatch, Errors]]:
    """Compute a batch in several threads, because a function may wait for more than the CPU.

    Returns the pieces of the batch, each with the index of its first row; a FunctionFailedError names the row of the
    batch, not of the piece.
    """
    size = -(-inputs.num_rows // threads)

    def call(start: int) -> tuple[int, pa.RecordBatch, Errors]:
        try:
            return start, *compute(inputs.slice(start, size))
        except FunctionFailedError as error:
            error.row = None if error.row is None else error.row + start
            raise

    if threads == 1:
        return [call(0)]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(call, range(0, inputs.num_rows, size)))


def find_failure(error: BaseException) -> TaskFailure | None:
    """Return the failure of the job that an error means; None if a second attempt may succeed."""
    if isinstance(error, FunctionFailedError):
        return {"type": error.error.type, "message": str(error)}
    if isinstance(error, (EnvironmentMismatchError, LoadingFailedError)):
        return {"type": type(error).__name__, "message": str(error)}
    if isinstance(error, SchemaMismatchError):
        return {"type": "TableSchemaValidationError", "message": str(error)}
    return None


def _outcome(applied: Applied) -> tuple[pa.RecordBatch, Errors]:
    return applied.values, [(error.row, error.type, error.message, error.attempt) for error in applied.errors]


def _pass_through(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Errors]:
    """Return what Lance computed while it read."""
    return batch, []


def has_crashed_before() -> bool:
    """Return whether an earlier attempt of this task failed: Spark counts it also when the Python worker died."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return context is not None and context.attemptNumber() > 0
