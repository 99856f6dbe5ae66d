"""Child processes that run user code, so that code which kills its process, or never returns, costs only the child.

A child is a module of Pennon run as a program. Parent and child exchange length-prefixed frames through the child's
standard input and output: the opening frames once, then requests and reports.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Required, TypedDict, TypeVar

import pyarrow as pa

from pennon.core.process import exit_with_parent
from pennon.functions.call_timeout import TIMEOUT_EXIT_CODE
from pennon.functions.failures import NO_ROW, RangeFailedError
from pennon.functions.loader import EnvironmentMismatchError, LoadingFailedError

_LENGTH = struct.Struct(">Q")
_CURRENT_ROW = struct.Struct("q")  # the format of the child's memoryview
_EXIT_SECONDS = 5.0


class Report(TypedDict, total=False):
    """What a child reports: always an outcome, and the details that belong to it."""

    outcome: Required[str]
    type: str
    message: str
    #: The index of the retry rule that applies to a failed partition.
    rule: int | None
    #: Of a batch: the errors of its rows, or the error that fails the job, and the number of calls.
    errors: list[dict[str, Any]]
    error: dict[str, Any]
    row_known: bool
    calls: int


class Child:
    """A child process with a loaded function: started on first use, and restarted when it has died."""

    def __init__(self, module: str, opening: Sequence[bytes], name: str, timeout: float | None) -> None:
        """Describe the child without starting it.

        Args:
            module: The module that runs as its program.
            opening: The frames that it is started with; it answers them with a report.
            name: The name of the function, for messages.
            timeout: Time limit of a call, in seconds.
        """
        self._module = module
        self._opening = opening
        self._name = name
        self._timeout = timeout
        self._process: subprocess.Popen[bytes] | None = None
        #: The file, mapped by the child, that holds the row being computed.
        self._current_row: IO[bytes] | None = None
        self._sent_at = 0.0

    def send(self, frame: bytes | pa.Buffer) -> None:
        """Send a frame; raise RangeFailedError if the process has died."""
        process = self._running()
        self._sent_at = time.monotonic()
        try:
            write_frame(process.stdin, frame)
        except BrokenPipeError:
            raise self._death(process) from None

    def receive(self) -> bytes:
        """Return the next frame; raise RangeFailedError if the process dies first."""
        process = self._process
        assert process is not None  # noqa: S101 - something was sent
        try:
            return read_frame(process.stdout)
        except EOFError:
            raise self._death(process) from None

    def report(self) -> Report:
        """Return the next frame as a report."""
        report: Report = json.loads(self.receive())
        return report

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is None:
            return
        assert self._current_row is not None  # noqa: S101 - it exists as long as the process
        self._current_row.close()
        _close_pipes(process)
        try:
            process.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self.close()
        paths = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
        self._current_row = TemporaryFile(buffering=0)  # noqa: SIM115 - closed with the process
        self._current_row.write(_CURRENT_ROW.pack(NO_ROW))
        shared = self._current_row.fileno()
        process = self._process = subprocess.Popen(  # noqa: S603 - this very interpreter
            [sys.executable, "-m", self._module, str(os.getpid()), str(shared)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": paths},
            pass_fds=[shared],
        )
        try:
            for frame in self._opening:
                write_frame(process.stdin, frame)
            report: Report = json.loads(read_frame(process.stdout))
        except (EOFError, BrokenPipeError):
            self._sent_at = time.monotonic()
            death = self._death(process)
            raise LoadingFailedError(f"The function {self._name!r} cannot be loaded: {death.message}") from None
        if report["outcome"] != "ready":
            raise error_of(report)
        return process

    def _death(self, process: subprocess.Popen[bytes]) -> RangeFailedError:
        """Return the death of the process as the failure of the rows it was computing."""
        seconds = time.monotonic() - self._sent_at
        assert self._current_row is not None  # noqa: S101 - it exists as long as the process
        (current_row,) = _CURRENT_ROW.unpack(os.pread(self._current_row.fileno(), _CURRENT_ROW.size, 0))
        row = None if current_row == NO_ROW else current_row
        self.close()
        code = process.returncode
        # Code that held the GIL was ended by faulthandler, which always exits with code 1.
        hung = code == TIMEOUT_EXIT_CODE or (code == 1 and seconds > (self._timeout or 0))
        if hung and self._timeout is not None:
            message = f"The call did not return within {self._timeout:g} s."
            return RangeFailedError("Timeout", message, current_row=row)
        return RangeFailedError("ProcessDied", f"The function's process ended {describe_exit(code)}.", current_row=row)


def describe_exit(code: int) -> str:
    """Describe how a process ended."""
    return f"by signal {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"


def error_of(report: Report) -> Exception:
    """Return the error of a child that is not the function's own, as it would be raised without a child."""
    match report["outcome"]:
        case "mismatch":
            return EnvironmentMismatchError(report["message"])
        case "unloadable":
            return LoadingFailedError(report["message"])
    return RuntimeError(f"The sandbox itself failed.\n{report.get('message', '')}")


def write_frame(stream: IO[bytes] | None, content: bytes | pa.Buffer) -> None:
    """Write a frame to a pipe."""
    assert stream is not None  # noqa: S101 - a pipe
    stream.write(_LENGTH.pack(len(content)))
    stream.write(content)
    stream.flush()


def read_frame(stream: IO[bytes] | None) -> bytes:
    """Read a frame from a pipe; raise EOFError if the other side has closed it."""
    assert stream is not None  # noqa: S101 - a pipe
    (length,) = _LENGTH.unpack(_read_exactly(stream, _LENGTH.size))
    return _read_exactly(stream, length)


def batch_to_bytes(batch: pa.RecordBatch) -> pa.Buffer:
    """Encode a batch as a frame."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def batch_from_bytes(content: bytes) -> pa.RecordBatch:
    """Decode the batch of a frame."""
    return pa.ipc.open_stream(pa.py_buffer(content)).read_next_batch()


def encode_report(outcome: str, **details: object) -> bytes:
    """Encode a report as a frame."""
    return json.dumps({"outcome": outcome, **details}).encode()


# In the child process.

_Opened = TypeVar("_Opened")


def run_child(serve: Callable[[IO[bytes], IO[bytes]], None]) -> None:
    """Run the child: serve requests from one pipe, reply through the other, until the parent closes them."""
    exit_with_parent(int(sys.argv[1]))
    requests, replies = _take_pipes()
    try:
        serve(requests, replies)
    except (EOFError, BrokenPipeError):
        return


def shared_current_row() -> memoryview:
    """Return the shared memory in which the parent finds the row being computed, if this process dies."""
    shared: memoryview = memoryview(mmap.mmap(int(sys.argv[2]), _CURRENT_ROW.size))
    return shared.cast("q")


def open_function(load: Callable[[], _Opened], replies: IO[bytes]) -> _Opened | None:
    """Load a function and report the outcome; return None if it cannot be loaded."""
    try:
        opened = load()
    except (EnvironmentMismatchError, LoadingFailedError) as error:
        outcome = "mismatch" if isinstance(error, EnvironmentMismatchError) else "unloadable"
        write_frame(replies, encode_report(outcome, message=str(error)))
        return None
    write_frame(replies, encode_report("ready"))
    return opened


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        try:
            pipe.close()  # type: ignore[union-attr]  # both are pipes
        except BrokenPipeError:  # a dead child does not need what was not flushed
            continue


def _read_exactly(stream: IO[bytes], length: int) -> bytes:
    content = stream.read(length)
    if len(content) < length:
        raise EOFError
    return content


def _take_pipes() -> tuple[IO[bytes], IO[bytes]]:
    """Return the parent's pipes; the function's own standard output goes to standard error."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    return requests, replies
