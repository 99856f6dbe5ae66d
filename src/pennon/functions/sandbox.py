"""Applying a function in a child process, so that code which kills its process, or never returns, costs only that.

The child is this module run as a program. Frames of a length and so many bytes go both ways through its standard
input and output: settings, envelope and schema once, then batches and what became of them.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import struct
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from pennon.functions.applying import GRACE_SECONDS, Applied, Applier, settle
from pennon.functions.deadlines import HUNG_EXIT
from pennon.functions.envelope import read_envelope
from pennon.functions.failures import FunctionFailedError, RangeFailedError, RowError
from pennon.functions.loading import EnvironmentMismatchError, LoadingFailedError, load
from pennon.functions.policy import ErrorPolicy

_LENGTH = struct.Struct(">Q")
_SECONDS_TO_LEAVE = 5.0
_PR_SET_PDEATHSIG = 1


class SandboxedApplier:
    """Applies a function like an Applier, in a child process that is started again whenever it dies."""

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
        """Tie a function, given as the bytes of its envelope, to columns; the rest is as for an Applier."""
        envelope = read_envelope(content)
        self._name = envelope.name or "function"
        self._policy = envelope.error_policy if policy is None else policy
        self._timeout = envelope.options.timeout if timeout is None else timeout
        self._outputs = outputs
        settings = {
            "input_paths": list(input_paths),
            "struct_fields": None if struct_fields is None else list(struct_fields),
            "policy": self._policy.to_json(),
            "timeout": self._timeout,
            "grace": grace,
        }
        self._opening = [json.dumps(settings).encode(), content, outputs.serialize().to_pybytes()]
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> SandboxedApplier:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the child."""
        child, self._child = self._child, None
        if child is None:
            return
        _close_pipes(child)
        try:
            child.wait(_SECONDS_TO_LEAVE)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()

    def apply(self, batch: pa.RecordBatch) -> Applied:
        """Return the values of a batch; rows that kill the child, or hang it, have failed."""
        pieces: list[pa.RecordBatch] = []
        errors: list[RowError] = []
        calls = 0

        def attempt(start: int, stop: int) -> Applied:
            return self._apply_in_child(batch.slice(start, stop - start), start)

        for start, stop, outcome in settle(attempt, batch.num_rows, 0, self._policy, self._name):
            if isinstance(outcome, RangeFailedError):
                errors.extend(outcome.at(row) for row in range(start, stop))
                pieces.append(self._nulls(stop - start))
                continue
            errors.extend(error.at(start + error.row) for error in outcome.errors)
            pieces.append(outcome.values)
            calls += outcome.calls
        return Applied(self._joined(pieces), errors, calls)

    def _joined(self, pieces: list[pa.RecordBatch]) -> pa.RecordBatch:
        if len(pieces) == 1:
            return pieces[0]
        return (
            pa.Table.from_batches(pieces, self._outputs).combine_chunks().to_batches()[0] if pieces else self._nulls(0)
        )

    def _nulls(self, rows: int) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([pa.nulls(rows, kind) for kind in self._outputs.types], schema=self._outputs)

    def _apply_in_child(self, batch: pa.RecordBatch, offset: int) -> Applied:
        child = self._running_child()
        asked = time.monotonic()
        try:
            _write_frame(child.stdin, _batch_to_bytes(batch))
            report = json.loads(_read_frame(child.stdout))
            if report["outcome"] == "applied":
                values = _batch_from_bytes(_read_frame(child.stdout))
                return Applied(values, [RowError(**error) for error in report["errors"]], report["calls"])
        except (EOFError, BrokenPipeError):
            raise self._death(child, time.monotonic() - asked) from None
        raise self._reported(report, offset)

    def _running_child(self) -> subprocess.Popen[bytes]:
        if self._child is not None and self._child.poll() is None:
            return self._child
        self.close()
        paths = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
        child = self._child = subprocess.Popen(  # noqa: S603 - this very interpreter
            [sys.executable, "-m", "pennon.functions.sandbox", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": paths},
        )
        try:
            for frame in self._opening:
                _write_frame(child.stdin, frame)
            report = json.loads(_read_frame(child.stdout))
        except (EOFError, BrokenPipeError):
            death = self._death(child, 0.0)
            raise LoadingFailedError(f"The function {self._name!r} cannot be loaded: {death.message}") from None
        if report["outcome"] != "ready":
            raise self._reported(report, 0)
        return child

    def _death(self, child: subprocess.Popen[bytes], seconds: float) -> RangeFailedError:
        """Return the death of the child as the failure of the rows that it had."""
        self.close()
        code = child.returncode
        # Code that held the interpreter was ended by faulthandler, whose exit code is not ours to choose.
        hung = code == HUNG_EXIT or (code == 1 and seconds > (self._timeout or 0))
        if hung and self._timeout is not None:
            return RangeFailedError("Timeout", f"The call did not come back within {self._timeout:g} s.")
        end = f"by signal {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        return RangeFailedError("ProcessDied", f"The function's process ended {end}.")

    def _reported(self, report: dict[str, Any], offset: int) -> Exception:
        """Return what went wrong in the child as the exception it would have been here."""
        message = report.get("message", "")
        match report["outcome"]:
            case "failed":
                error = RowError(**report["error"])
                return FunctionFailedError(self._name, error.at(offset + error.row), row_known=report["row_known"])
            case "mismatch":
                return EnvironmentMismatchError(message)
            case "unloadable":
                return LoadingFailedError(message)
        return RuntimeError(f"The sandbox itself failed.\n{message}")


def _close_pipes(child: subprocess.Popen[bytes]) -> None:
    for pipe in (child.stdin, child.stdout):
        try:
            pipe.close()  # type: ignore[union-attr]  # both are pipes
        except BrokenPipeError:  # what was not flushed is of no use to a dead child
            continue


def _write_frame(stream: IO[bytes] | None, content: bytes | pa.Buffer) -> None:
    assert stream is not None  # noqa: S101 - a pipe
    stream.write(_LENGTH.pack(len(content)))
    stream.write(content)
    stream.flush()


def _read_frame(stream: IO[bytes] | None) -> bytes:
    assert stream is not None  # noqa: S101 - a pipe
    (length,) = _LENGTH.unpack(_read_exactly(stream, _LENGTH.size))
    return _read_exactly(stream, length)


def _read_exactly(stream: IO[bytes], length: int) -> bytes:
    content = stream.read(length)
    if len(content) < length:
        raise EOFError
    return content


def _batch_to_bytes(batch: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _batch_from_bytes(content: bytes) -> pa.RecordBatch:
    return pa.ipc.open_stream(pa.py_buffer(content)).read_next_batch()


# The child.


def main() -> None:
    """Load a function and apply it to what comes in, until the parent leaves."""
    _die_with_parent(int(sys.argv[1]))
    requests, replies = _take_pipes()
    try:
        for report in _reports(requests):
            for frame in report:
                _write_frame(replies, frame)
    except (EOFError, BrokenPipeError):
        return


def _reports(requests: IO[bytes]) -> Iterator[list[bytes | pa.Buffer]]:
    try:
        applier = _open(requests)
    except (EnvironmentMismatchError, LoadingFailedError) as error:
        outcome = "mismatch" if isinstance(error, EnvironmentMismatchError) else "unloadable"
        yield [_as_report(outcome, message=str(error))]
        return
    yield [_as_report("ready")]
    while True:
        batch = _batch_from_bytes(_read_frame(requests))
        try:
            applied = applier.apply(batch)
        except FunctionFailedError as error:
            yield [_as_report("failed", error=asdict(error.error), row_known=error.row is not None)]
        except EnvironmentMismatchError as error:
            yield [_as_report("mismatch", message=str(error))]
        except Exception:  # noqa: BLE001 - the parent raises it
            yield [_as_report("broken", message=traceback.format_exc())]
        else:
            errors = [asdict(error) for error in applied.errors]
            yield [_as_report("applied", errors=errors, calls=applied.calls), _batch_to_bytes(applied.values)]


def _open(requests: IO[bytes]) -> Applier:
    settings = json.loads(_read_frame(requests))
    content = _read_frame(requests)
    outputs = pa.ipc.read_schema(pa.py_buffer(_read_frame(requests)))
    return Applier(
        load(read_envelope(content)),
        settings["input_paths"],
        outputs,
        settings["struct_fields"],
        policy=ErrorPolicy.from_json(settings["policy"]),
        timeout=settings["timeout"],
        grace=settings["grace"],
    )


def _as_report(outcome: str, **details: Any) -> bytes:
    return json.dumps({"outcome": outcome, **details}).encode()


def _take_pipes() -> tuple[IO[bytes], IO[bytes]]:
    """Return the parent's pipes, and leave the function a standard output that it may print to."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    return requests, replies


def _die_with_parent(parent: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


if __name__ == "__main__":
    main()
