"""Child processes that run users' code, so that code which kills its process, or never returns, costs only that.

A child is a module of Pennon run as a program. Frames of a length and so many bytes go both ways through its standard
input and output: what it opens with once, then whatever the two have to tell each other.
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
from typing import IO, Any, TypeVar

import pyarrow as pa

from pennon.core.process import exit_with_parent
from pennon.functions.call_timeout import HUNG_EXIT
from pennon.functions.failures import NOBODY, RangeFailedError
from pennon.functions.loader import EnvironmentMismatchError, LoadingFailedError

_LENGTH = struct.Struct(">Q")
_SUSPECT = struct.Struct("q")  # as a memoryview has it too
_SECONDS_TO_LEAVE = 5.0


class Child:
    """A child process with a function in it: started when it is needed, and again whenever it died."""

    def __init__(self, module: str, opening: Sequence[bytes], name: str, timeout: float | None) -> None:
        """Describe the child.

        Args:
            module: The program.
            opening: The frames that it begins with; it answers them with a report.
            name: What people call the function.
            timeout: The seconds that a call of it may take.
        """
        self._module = module
        self._opening = opening
        self._name = name
        self._timeout = timeout
        self._process: subprocess.Popen[bytes] | None = None
        #: The memory in which the process says which row it computes.
        self._suspect: IO[bytes] | None = None
        self._asked = 0.0

    def send(self, frame: bytes | pa.Buffer) -> None:
        """Send a frame; raise RangeFailedError when the process is dead."""
        process = self._running()
        self._asked = time.monotonic()
        try:
            write_frame(process.stdin, frame)
        except BrokenPipeError:
            raise self._death(process) from None

    def receive(self) -> bytes:
        """Return the next frame that comes; raise RangeFailedError when the process died instead."""
        process = self._process
        assert process is not None  # noqa: S101 - something was sent
        try:
            return read_frame(process.stdout)
        except EOFError:
            raise self._death(process) from None

    def report(self) -> dict[str, Any]:
        """Return the next frame that comes as a report."""
        report: dict[str, Any] = json.loads(self.receive())
        return report

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is None:
            return
        assert self._suspect is not None  # noqa: S101 - it is there as long as the process is
        self._suspect.close()
        _close_pipes(process)
        try:
            process.wait(_SECONDS_TO_LEAVE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self.close()
        paths = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
        self._suspect = TemporaryFile(buffering=0)  # noqa: SIM115 - closed with the process
        self._suspect.write(_SUSPECT.pack(NOBODY))
        shared = self._suspect.fileno()
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
            report = json.loads(read_frame(process.stdout))
        except (EOFError, BrokenPipeError):
            self._asked = time.monotonic()
            death = self._death(process)
            raise LoadingFailedError(f"The function {self._name!r} cannot be loaded: {death.message}") from None
        if report["outcome"] != "ready":
            raise refusal(report)
        return process

    def _death(self, process: subprocess.Popen[bytes]) -> RangeFailedError:
        """Return the death of the process as the failure of the rows that it had."""
        seconds = time.monotonic() - self._asked
        assert self._suspect is not None  # noqa: S101 - it is there as long as the process is
        (suspect,) = _SUSPECT.unpack(os.pread(self._suspect.fileno(), _SUSPECT.size, 0))
        row = None if suspect == NOBODY else suspect
        self.close()
        code = process.returncode
        # Code that held the interpreter was ended by faulthandler, whose exit code is not ours to choose.
        hung = code == HUNG_EXIT or (code == 1 and seconds > (self._timeout or 0))
        if hung and self._timeout is not None:
            message = f"The call did not come back within {self._timeout:g} s."
            return RangeFailedError("Timeout", message, suspect=row)
        return RangeFailedError("ProcessDied", f"The function's process ended {end_of(code)}.", suspect=row)


def end_of(code: int) -> str:
    """Return how a process ended, in words."""
    return f"by signal {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"


def refusal(report: dict[str, Any]) -> Exception:
    """Return what went wrong in a child, other than by the function's own doing, as it would have been raised here."""
    match report["outcome"]:
        case "mismatch":
            return EnvironmentMismatchError(report["message"])
        case "unloadable":
            return LoadingFailedError(report["message"])
    return RuntimeError(f"The sandbox itself failed.\n{report.get('message', '')}")


def write_frame(stream: IO[bytes] | None, content: bytes | pa.Buffer) -> None:
    """Write a frame into a pipe."""
    assert stream is not None  # noqa: S101 - a pipe
    stream.write(_LENGTH.pack(len(content)))
    stream.write(content)
    stream.flush()


def read_frame(stream: IO[bytes] | None) -> bytes:
    """Read a frame from a pipe; raises EOFError when the other side is gone."""
    assert stream is not None  # noqa: S101 - a pipe
    (length,) = _LENGTH.unpack(_read_exactly(stream, _LENGTH.size))
    return _read_exactly(stream, length)


def batch_to_bytes(batch: pa.RecordBatch) -> pa.Buffer:
    """Return a batch as a frame."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def batch_from_bytes(content: bytes) -> pa.RecordBatch:
    """Return the batch that a frame holds."""
    return pa.ipc.open_stream(pa.py_buffer(content)).read_next_batch()


def as_report(outcome: str, **details: Any) -> bytes:
    """Return a report as a frame."""
    return json.dumps({"outcome": outcome, **details}).encode()


# In the child.

_Opened = TypeVar("_Opened")


def run_child(serve: Callable[[IO[bytes], IO[bytes]], None]) -> None:
    """Be a child: serve what comes in through the one pipe and reply through the other, until the parent leaves."""
    exit_with_parent(int(sys.argv[1]))
    requests, replies = _take_pipes()
    try:
        serve(requests, replies)
    except (EOFError, BrokenPipeError):
        return


def shared_suspect() -> memoryview:
    """Return the memory in which the parent looks for the row that was computed, should this process die."""
    shared: memoryview = memoryview(mmap.mmap(int(sys.argv[2]), _SUSPECT.size))
    return shared.cast("q")


def open_function(load: Callable[[], _Opened], replies: IO[bytes]) -> _Opened | None:
    """Load a function and report how that went; return none when it went wrong."""
    try:
        opened = load()
    except (EnvironmentMismatchError, LoadingFailedError) as error:
        outcome = "mismatch" if isinstance(error, EnvironmentMismatchError) else "unloadable"
        write_frame(replies, as_report(outcome, message=str(error)))
        return None
    write_frame(replies, as_report("ready"))
    return opened


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        try:
            pipe.close()  # type: ignore[union-attr]  # both are pipes
        except BrokenPipeError:  # what was not flushed is of no use to a dead child
            continue


def _read_exactly(stream: IO[bytes], length: int) -> bytes:
    content = stream.read(length)
    if len(content) < length:
        raise EOFError
    return content


def _take_pipes() -> tuple[IO[bytes], IO[bytes]]:
    """Return the parent's pipes, and leave the function a standard output that it may print to."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    return requests, replies
