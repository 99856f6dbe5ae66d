"""How a task computes: by a function in this process, in a child process once it has killed one, or by Lance itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pennon.functions.chunker_calls import Expander
from pennon.functions.envelope import read_envelope
from pennon.functions.loader import EnvironmentMismatchError, LoadingFailedError, load
from pennon.functions.sandbox.calls import SandboxedApplier, SandboxedExpander
from pennon.functions.udf_calls import Applier, FunctionFailedError
from pennon.tables.field_paths import find_field

if TYPE_CHECKING:
    from pennon.pipeline.backfill.fragment import Compute, Errors
    from pennon.pipeline.backfill.task import Work

#: What makes several rows of one.
Expands = Expander | SandboxedExpander


@contextmanager
def computing(work: Work, schema: pa.Schema) -> Iterator[Compute]:
    """Lend what computes the outputs of a batch."""
    if work.function is None:
        yield _as_read
        return
    envelope = read_envelope(work.function)
    outputs = pa.schema([pa.field(f"out{at}", find_field(schema, t.path).type) for at, t in enumerate(work.targets)])
    struct_fields = [target.struct_field for target in work.targets]
    with ExitStack() as opened:
        if died_before():
            sandbox = partial(SandboxedApplier, work.function, work.inputs, outputs, struct_fields)
            appliers = _Appliers(lambda: opened.enter_context(sandbox()))
        else:
            loaded = load(envelope)
            appliers = _Appliers(lambda: Applier(loaded, work.inputs, outputs, struct_fields))
        yield appliers.compute


@contextmanager
def expanding(content: bytes, inputs: Sequence[str], outputs: pa.Schema, count: int) -> Iterator[list[Expands]]:
    """Lend so many of what makes several rows of one."""
    with ExitStack() as opened:
        if died_before():
            sandboxes = [SandboxedExpander(content, inputs, outputs) for _ in range(count)]
            yield [opened.enter_context(sandbox) for sandbox in sandboxes]
        else:
            loaded = load(read_envelope(content))
            yield [Expander(loaded, inputs, outputs) for _ in range(count)]


class _Appliers:
    """As many appliers as there are threads that compute at once: one can do one thing at a time."""

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


def failure_of(error: Exception) -> dict[str, str] | None:
    """Return what is wrong with a function, as a job tells it; none when the error is not its fault."""
    if isinstance(error, FunctionFailedError):
        return {"type": error.error.type, "message": str(error)}
    if isinstance(error, (EnvironmentMismatchError, LoadingFailedError)):
        return {"type": type(error).__name__, "message": str(error)}
    return None


def _outcome(applied: Any) -> tuple[pa.RecordBatch, Errors]:
    return applied.values, [(error.row, error.type, error.message, error.attempt) for error in applied.errors]


def _as_read(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Errors]:
    """Return what Lance computed while it read."""
    return batch, []


def died_before() -> bool:
    """Tell whether an earlier attempt of this task ended without a word."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return context is not None and context.attemptNumber() > 0
