"""Calling UDFs and chunkers in a child process: rows that kill the process, or hang it, have failed."""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import IO, Self, TypedDict

import pyarrow as pa

from pennon.functions.chunker_calls import Expanded, Expander
from pennon.functions.envelope import read_envelope
from pennon.functions.error_policy import ErrorPolicy
from pennon.functions.failures import FunctionFailedError, RowError
from pennon.functions.loader import EnvironmentMismatchError, load
from pennon.functions.results import concat_batches, null_batch
from pennon.functions.sandbox.child_process import (
    Child,
    batch_from_bytes,
    batch_to_bytes,
    encode_report,
    error_of,
    open_function,
    read_frame,
    run_child,
    shared_current_row,
    write_frame,
)
from pennon.functions.udf_calls import GRACE_SECONDS, Applied, Applier, ApplierOptions, compute_by_policy

#: Columns beside those of a chunker: the input row of each output row, and its index among that row's children.
_PARENT, _CHILD = pa.field("__parent", pa.int64()), pa.field("__child", pa.int32())


class _Settings(TypedDict):
    expands: bool
    input_paths: list[str]
    struct_fields: list[str] | None
    policy: dict[str, object]
    timeout: float | None
    grace: float


class SandboxedApplier:
    """Calls a UDF like an Applier, in a child process that is restarted when it dies."""

    _expands = False

    def __init__(
        self,
        content: bytes,
        input_paths: Sequence[str],
        outputs: pa.Schema,
        struct_fields: Sequence[str] | None = None,
        *,
        policy: ErrorPolicy | None = None,
        timeout: float | None = None,
        grace: float = GRACE_SECONDS,
    ) -> None:
        """Bind a function, given as an envelope, to columns; the options are those of an Applier."""
        envelope = read_envelope(content)
        self._name = envelope.name or "function"
        self._policy = envelope.error_policy if policy is None else policy
        self._outputs = outputs
        limit = envelope.options.timeout if timeout is None else timeout
        settings: _Settings = {
            "expands": self._expands,
            "input_paths": list(input_paths),
            "struct_fields": None if struct_fields is None else list(struct_fields),
            "policy": self._policy.to_json(),
            "timeout": limit,
            "grace": grace,
        }
        opening = [json.dumps(settings).encode(), content, outputs.serialize().to_pybytes()]
        self._child = Child("pennon.functions.sandbox.calls", opening, self._name, limit)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the child process."""
        self._child.close()

    def apply(self, batch: pa.RecordBatch) -> Applied:
        """Return the values of a batch; rows that kill the child, or hang it, have failed."""
        pieces: list[pa.RecordBatch] = []
        errors: list[RowError] = []
        calls = 0
        for start, stop, outcome in self._outcomes(batch, errors):
            pieces.append(outcome.values if outcome is not None else null_batch(stop - start, self._outputs))
            calls += outcome.calls if outcome is not None else 0
        return Applied(concat_batches(pieces, self._outputs), errors, calls)

    def _outcomes(self, batch: pa.RecordBatch, errors: list[RowError]) -> Iterator[tuple[int, int, Applied | None]]:
        """Yield consecutive ranges of rows with their outcome, None if they killed the child; collect the errors."""

        def attempt(start: int, stop: int) -> Applied:
            return self._apply_in_child(batch.slice(start, stop - start), start)

        for start, stop, outcome in compute_by_policy(attempt, batch.num_rows, self._policy, self._name, errors):
            if outcome is not None:
                errors.extend(error.at(start + error.row) for error in outcome.errors)
            yield start, stop, outcome

    def _apply_in_child(self, batch: pa.RecordBatch, offset: int) -> Applied:
        self._child.send(batch_to_bytes(batch))
        report = self._child.report()
        if report["outcome"] == "applied":
            values = batch_from_bytes(self._child.receive())
            return Applied(values, [RowError(**error) for error in report["errors"]], report["calls"])
        if report["outcome"] == "failed":
            error = RowError(**report["error"])
            raise FunctionFailedError(self._name, error.at(offset + error.row), row_known=report["row_known"])
        raise error_of(report)


class SandboxedExpander(SandboxedApplier):
    """Calls a chunker like an Expander, in a child process that is restarted when it dies."""

    _expands = True

    def expand(self, batch: pa.RecordBatch) -> tuple[list[Expanded], list[RowError]]:
        """Return the rows made of a batch; rows that kill the child, or hang it, have failed."""
        errors: list[RowError] = []
        outcomes = self._outcomes(batch, errors)
        pieces = [self._expanded(outcome.values, start) for start, _, outcome in outcomes if outcome is not None]
        return pieces, errors

    def _expanded(self, rows: pa.RecordBatch, first: int) -> Expanded:
        parents, children = (rows.column(field.name).to_numpy() for field in (_PARENT, _CHILD))
        return Expanded(rows.select(self._outputs.names), parents + first, children)


# In the child process.


def _serve(requests: IO[bytes], replies: IO[bytes]) -> None:
    """Load a function and call it on the batches that the parent sends."""
    settings: _Settings = json.loads(read_frame(requests))
    content = read_frame(requests)
    outputs = pa.ipc.read_schema(pa.py_buffer(read_frame(requests)))
    applier = open_function(lambda: _open(settings, content, outputs), replies)
    while applier is not None:
        for frame in _report_on(applier, batch_from_bytes(read_frame(requests)), outputs):
            write_frame(replies, frame)


def _report_on(applier: Applier, batch: pa.RecordBatch, outputs: pa.Schema) -> list[bytes | pa.Buffer]:
    try:
        applied = _expanded_rows(applier, batch, outputs) if isinstance(applier, Expander) else applier.apply(batch)
    except FunctionFailedError as error:
        return [encode_report("failed", error=asdict(error.error), row_known=error.row is not None)]
    except EnvironmentMismatchError as error:
        return [encode_report("mismatch", message=str(error))]
    except Exception:  # noqa: BLE001 - the parent raises it
        return [encode_report("broken", message=traceback.format_exc())]
    errors = [asdict(error) for error in applied.errors]
    return [encode_report("applied", errors=errors, calls=applied.calls), batch_to_bytes(applied.values)]


def _expanded_rows(expander: Expander, batch: pa.RecordBatch, outputs: pa.Schema) -> Applied:
    pieces, errors = expander.expand(batch)
    schema = pa.schema([*outputs, _PARENT, _CHILD])
    rows = [
        pa.RecordBatch.from_arrays(
            [*piece.values.columns, pa.array(piece.parent_rows), pa.array(piece.child_indexes)], schema=schema
        )
        for piece in pieces
    ]
    return Applied(concat_batches(rows, schema), errors)


def _open(settings: _Settings, content: bytes, outputs: pa.Schema) -> Applier:
    options: ApplierOptions = {
        "policy": ErrorPolicy.from_json(settings["policy"]),
        "timeout": settings["timeout"],
        "grace": settings["grace"],
        "current_row": shared_current_row(),
    }
    loaded = load(read_envelope(content))
    if settings["expands"]:
        return Expander(loaded, settings["input_paths"], outputs, **options)
    return Applier(loaded, settings["input_paths"], outputs, settings["struct_fields"], **options)


if __name__ == "__main__":
    run_child(_serve)
