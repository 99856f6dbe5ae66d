"""A pool of query processes, for queries that may need a lot of memory or time.

A query whose result has no low bound (``query.expressions``) does not run in the API process. It runs in one of a few
processes with a memory limit. When such a process dies, exceeds its time or loses its client, only that query fails;
the next query gets a new process.
"""

from __future__ import annotations

import io
import json
import logging
import os
import select
import subprocess
import sys
import time
import weakref
from collections.abc import Callable
from contextlib import ExitStack, suppress
from threading import Condition, Lock
from typing import TYPE_CHECKING, Literal, Self, TypeVar

import pyarrow as pa
from lance_namespace.errors import InvalidInputError, ServiceUnavailableError, ThrottlingError, from_error_code

from pennon.core.cancellation import current_cancellation
from pennon.tables.lance_errors import LancePanicError
from pennon.tables.query.process import DATA, ERROR, FRAME, RESULT, QueryError, QueryRequest

if TYPE_CHECKING:
    from pennon.core.settings import Settings

logger = logging.getLogger("pennon.tables")

_T = TypeVar("_T")

#: Queries that may wait for each process; more are throttled, so that they cannot occupy all threads.
_WAITING_PER_PROCESS = 4
_WAIT_SECONDS = 30.0
_POLL_SECONDS = 0.1
#: A process whose peak memory is higher is replaced: allocators rarely return memory to the system.
_MAX_KEPT_BYTES = 1024**3


class _Process:
    """A query process and its pipes."""

    def __init__(self, memory_bytes: int) -> None:
        # The server's secrets stay out of the process; Lance needs the credentials of storage.
        env = {name: value for name, value in os.environ.items() if not name.startswith("PENNON_")}
        self._child = subprocess.Popen(  # noqa: S603 (this very program)
            [sys.executable, "-m", "pennon.tables.query.process", str(memory_bytes), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Few arenas and threads: their address space counts towards the limit, and one query runs at a time.
            env={**env, "MALLOC_ARENA_MAX": "2", "TOKIO_WORKER_THREADS": "2", "RUST_BACKTRACE": "0"},
            start_new_session=True,
            bufsize=0,
        )
        assert self._child.stdin is not None  # noqa: S101 (requested above)
        assert self._child.stdout is not None  # noqa: S101 (requested above)
        self._input = self._child.stdin
        self._output = self._child.stdout.fileno()
        self._poll = select.poll()
        self._poll.register(self._output, select.POLLIN)
        #: Whether any frame was read since the last request.
        self.has_responded = False
        #: The exit code after ``stop``.
        self.exit_code: int | None = None

    @property
    def is_alive(self) -> bool:
        return self._child.poll() is None

    def send(self, request: bytes) -> None:
        self.has_responded = False
        rest = memoryview(request)
        while rest:
            rest = rest[self._input.write(rest) :]

    def read_frame(self, deadline: float) -> tuple[int, bytes]:
        """Return the next frame; raises ``EOFError`` if the process exited, ``TimeoutError`` after the deadline."""
        kind, length = FRAME.unpack(self._read(FRAME.size, deadline))
        content = self._read(length, deadline)
        self.has_responded = True
        return kind, content

    def _read(self, size: int, deadline: float) -> bytes:
        parts = []
        while size:
            left = deadline - time.monotonic()
            if left <= 0 or not self._poll.poll(left * 1000):
                raise TimeoutError
            part = os.read(self._output, size)
            if not part:
                raise EOFError
            parts.append(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def kill(self) -> None:
        self._child.kill()

    def stop(self) -> int:
        """Kill the process if it is running, and return its exit code."""
        self._child.kill()
        self.exit_code = self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        return self.exit_code


class _Lease:
    """The use of a process for one query."""

    def __init__(self, pool: QueryPool, process: _Process, deadline: float) -> None:
        self._pool = pool
        self._process = process
        self._deadline = deadline
        self._open = ExitStack()
        self._cancellation = current_cancellation()
        self._ended = False
        self._lock = Lock()
        self._open.enter_context(self._cancellation.on_cancel(self._kill))

    def next_frame(self) -> bytes | None:
        """Return the content of the next frame, None after the last one; raises the query's error."""
        if self._ended:
            return None
        try:
            kind, content = self._process.read_frame(self._deadline)
        except (EOFError, TimeoutError) as error:
            raise self._failure(timed_out=isinstance(error, TimeoutError)) from error
        if kind in {DATA, RESULT}:
            return content
        if kind == ERROR:
            self._finish(keep=True)
            raise _error_from(json.loads(content))
        self._finish(keep=int(content) < _MAX_KEPT_BYTES)
        return None

    def abandon(self) -> None:
        """Cancel the query if it is still running."""
        if not self._ended:
            self._finish(keep=False)

    def _kill(self) -> None:
        with self._lock:
            if not self._ended:
                self._process.kill()

    def _finish(self, *, keep: bool) -> int | None:
        with self._lock:
            self._ended = True
        self._open.close()
        return self._pool.release(self._process, keep=keep)

    def _failure(self, *, timed_out: bool) -> Exception:
        code = self._finish(keep=False)
        if self._cancellation.is_cancelled:
            return InvalidInputError("The client disconnected before its query finished.")
        if timed_out:
            return InvalidInputError(
                "The query timed out after the server's query_timeout_seconds. Read fewer rows, or simplify its SQL."
            )
        logger.warning("a query process exited with code %s", code)
        if code is not None and code >= 0:  # it exited, for example during its start; a signal's code is negative
            return ServiceUnavailableError("The query process exited unexpectedly; the server's log has the cause.")
        return InvalidInputError(
            "The query was stopped: it needed more memory than the server's query_process_memory_bytes, or crashed "
            "while it was evaluated. Use smaller arguments in its SQL, or read fewer rows."
        )


class BatchReader:
    """The result of a query in a query process, batch by batch."""

    def __init__(self, lease: _Lease) -> None:
        self._lease = lease
        self._finalizer = weakref.finalize(self, lease.abandon)
        self._reader = pa.ipc.open_stream(pa.PythonFile(_Pipe(lease), mode="r"))
        self.schema: pa.Schema = self._reader.schema

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pa.RecordBatch:
        try:
            return self._reader.read_next_batch()
        except StopIteration:
            while self._lease.next_frame() is not None:  # up to the end of the response
                pass
            raise

    def close(self) -> None:
        """Cancel the query if it is still running."""
        self._finalizer()


class _Pipe(io.RawIOBase):
    """The output of a process as a file."""

    def __init__(self, lease: _Lease) -> None:
        self._lease = lease
        self._buffer = memoryview(b"")

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        parts: list[memoryview] = []
        while size:
            if not self._buffer:
                frame = self._lease.next_frame()
                if frame is None:
                    break
                self._buffer = memoryview(frame)
            part = self._buffer[:size] if size > 0 else self._buffer
            self._buffer = self._buffer[len(part) :]
            parts.append(part)
            size -= len(part) if size > 0 else 0
        return b"".join(parts)


class QueryPool:
    """The query processes of one API process, started on demand."""

    def __init__(self, settings: Settings) -> None:
        self._size = settings.query_processes
        self._memory_bytes = settings.query_process_memory_bytes
        self._seconds = settings.query_timeout_seconds
        self._changed = Condition()
        self._idle: list[_Process] = []
        self._busy: set[_Process] = set()
        self._starting = 0
        self._waiting = 0
        self._closed = False

    def query(self, request: QueryRequest) -> BatchReader:
        """Run a query and return its batches; raises an error that occurs before the first one."""
        return self._run({**request, "action": "query"}, BatchReader)

    def count(self, request: QueryRequest, condition: str) -> int:
        """Count the rows that satisfy a condition."""
        return int(self._run({**request, "action": "count", "filter": condition}, _read_result))

    def describe_plan(self, request: QueryRequest, action: Literal["explain", "analyze"], *, verbose: bool) -> str:
        """Return the plan of a query; ``analyze`` runs it, and adds the metrics of each step."""
        return str(self._run({**request, "action": action, "verbose": verbose}, _read_result))

    def close(self) -> None:
        """Stop all processes."""
        with self._changed:
            self._closed = True
            idle, self._idle = self._idle, []
            for process in self._busy:
                process.kill()  # its reader gets the end of the stream
            self._changed.notify_all()
        for process in idle:
            process.stop()

    def release(self, process: _Process, *, keep: bool) -> int | None:
        """Take back a process after a query; returns the exit code of a process that is not kept."""
        with self._changed:
            self._busy.discard(process)
            keep = keep and not self._closed and process.is_alive
            if keep:
                self._idle.append(process)
            self._changed.notify()
        return None if keep else process.stop()

    def _run(self, request: QueryRequest, read: Callable[[_Lease], _T]) -> _T:
        line = json.dumps(request).encode() + b"\n"
        deadline = time.monotonic() + self._seconds
        while True:
            process, is_new = self._acquire()
            lease = _Lease(self, process, deadline)
            try:
                process.send(line)
                return read(lease)
            except BrokenPipeError:
                lease.abandon()
                if is_new:
                    raise
            except BaseException:
                lease.abandon()
                # An idle process may have exited just before the request.
                if is_new or process.has_responded or process.exit_code != 0:
                    raise

    def _acquire(self) -> tuple[_Process, bool]:
        """Return a process, and whether it is new."""
        if not self._size:
            raise InvalidInputError(
                "This SQL must run in a query process, and the server's query_processes is 0. Use smaller literal "
                "arguments and fewer literals."
            )
        with self._changed:
            if self._waiting >= _WAITING_PER_PROCESS * self._size:
                raise ThrottlingError("Too many queries are waiting for a query process; try again in a moment.")
            self._waiting += 1
            try:
                self._wait_for_slot()
            finally:
                self._waiting -= 1
            if self._idle:
                process = self._idle.pop()
                self._busy.add(process)
                return process, False
            self._starting += 1
        try:
            process = _Process(self._memory_bytes)
        finally:
            with self._changed:
                self._starting -= 1
        with self._changed:
            self._busy.add(process)
        return process, True

    def _wait_for_slot(self) -> None:
        cancellation, deadline = current_cancellation(), time.monotonic() + _WAIT_SECONDS
        while self._closed or len(self._busy) + self._starting >= self._size:
            if cancellation.is_cancelled or self._closed:
                raise InvalidInputError("The query was cancelled while it waited for a query process.")
            if time.monotonic() >= deadline:
                raise ThrottlingError("All query processes are busy; try again in a moment.")
            self._changed.wait(_POLL_SECONDS)


def _read_result(lease: _Lease) -> int | str:
    """Return the JSON value of a response without batches."""
    content = lease.next_frame()
    while lease.next_frame() is not None:
        pass
    result: int | str = json.loads(content or b"null")
    return result


def _error_from(error: QueryError) -> Exception:
    """Return the exception for an error that a process reports."""
    if error["code"] is not None:
        return from_error_code(error["code"], error["message"])
    if error["is_storage"]:
        return OSError(error["message"])
    logger.error("a query process failed: %s", error["message"])
    return LancePanicError()
