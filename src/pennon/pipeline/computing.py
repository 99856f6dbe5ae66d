"""How a task computes: by a function in this process, in a child process once it has killed one, or by Lance itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pennon.functions.applying import Applier, FunctionFailedError
from pennon.functions.envelope import read_envelope
from pennon.functions.loading import EnvironmentMismatchError, LoadingFailedError, load
from pennon.functions.sandbox import SandboxedApplier
from pennon.lake.field_paths import find_field

if TYPE_CHECKING:
    from pennon.pipeline.fill_task import Work
    from pennon.pipeline.filling import Compute, Errors


@contextmanager
def computing(work: Work, schema: pa.Schema) -> Iterator[Compute]:
    """Lend what computes the outputs of a batch."""
    if work.function is None:
        yield _as_read
        return
    envelope = read_envelope(work.function)
    outputs = pa.schema([pa.field(f"out{at}", find_field(schema, t.path).type) for at, t in enumerate(work.targets)])
    struct_fields = [target.struct_field for target in work.targets]
    if _died_before():
        with SandboxedApplier(work.function, work.inputs, outputs, struct_fields) as sandbox:
            yield lambda batch: _outcome(sandbox.apply(batch))
        return
    applier = Applier(load(envelope), work.inputs, outputs, struct_fields)
    yield lambda batch: _outcome(applier.apply(batch))


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


def _died_before() -> bool:
    """Tell whether an earlier attempt of this task ended without a word."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return context is not None and context.attemptNumber() > 0
