"""Processes for queries that may need a lot of memory or time: the end of one costs one query.

A query whose SQL has no low bound on its results (``query.expressions``) does not run inside the API process.
It is sent to one of a few processes with a limit on their memory. When one dies, takes too long or its client
leaves, that one query ends, and the next one gets a new process.
"""

from __future__ import annotations

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
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
from lance_namespace.errors import InvalidInputError, ServiceUnavailableError, ThrottlingError, from_error_code

from pennon.core.cancellation import current_cancellation
from pennon.tables.lance_errors import LancePanicError
from pennon.tables.query.process import DATA, ERROR, FRAME, RESULT

if TYPE_CHECKING:
    from pennon.core.settings import Settings

logger = logging.getLogger("pennon.tables")

#: Queries that may wait for each process; others are turned away, so that they do not take all threads.
_WAITING_PER_PROCESS = 4
_WAIT_SECONDS = 30.0
_LOOK_SECONDS = 0.1
#: A process that has taken more than this is replaced: memory is rarely given back.
_LARGE_BYTES = 1024**3


class _Process:
    """One process, and its pipes."""

    def __init__(self, memory_bytes: int) -> None:
        # Secrets of the server are none of its business; Lance needs those of storage.
        env = {name: value for name, value in os.environ.items() if not name.startswith("PENNON_")}
        self._child = subprocess.Popen(  # noqa: S603 (this very program)
            [sys.executable, "-m", "pennon.tables.query.process", str(memory_bytes), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Fewer arenas and threads: their address space counts, and one query runs at a time.
            env={**env, "MALLOC_ARENA_MAX": "2", "TOKIO_WORKER_THREADS": "2", "RUST_BACKTRACE": "0"},
            start_new_session=True,
            bufsize=0,
        )
        assert self._child.stdin is not None  # noqa: S101 (asked for above)
        assert self._child.stdout is not None  # noqa: S101 (asked for above)
        self._input = self._child.stdin
        self._output = self._child.stdout.fileno()
        self._poll = select.poll()
        self._poll.register(self._output, select.POLLIN)
        #: Whether anything was read since the last request.
        self.answered = False
        #: What it ended with, once it was ended.
        self.exit_code: int | None = None

    @property
    def is_alive(self) -> bool:
        return self._child.poll() is None

    def send(self, request: bytes) -> None:
        self.answered = False
        rest = memoryview(request)
        while rest:
            rest = rest[self._input.write(rest) :]

    def read_frame(self, deadline: float) -> tuple[int, bytes]:
        """Return the next frame; raises ``EOFError`` when the process ended, ``TimeoutError`` when it is too late."""
        kind, length = FRAME.unpack(self._read(FRAME.size, deadline))
        content = self._read(length, deadline)
        self.answered = True
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

    def end(self) -> int:
        """Kill the process, if it runs, and return its exit code."""
        self._child.kill()
        self.exit_code = self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        return self.exit_code


class _Lease:
    """A process that is used for one query."""

    def __init__(self, pool: QueryPool, process: _Process, deadline: float) -> None:
        self._pool = pool
        self._process = process
        self._deadline = deadline
        self._open = ExitStack()
        self._cancellation = current_cancellation()
        self._ended = False
        self._lock = Lock()
        self._open.enter_context(self._cancellation.calling(self._kill))

    def next_frame(self) -> bytes | None:
        """Return what the next frame holds; none after the last. Raises the error that the query ended with."""
        if self._ended:
            return None
        try:
            kind, content = self._process.read_frame(self._deadline)
        except (EOFError, TimeoutError) as error:
            raise self._failed(late=isinstance(error, TimeoutError)) from error
        if kind in {DATA, RESULT}:
            return content
        if kind == ERROR:
            self._finish(keep=True)
            raise _error_of(json.loads(content))
        self._finish(keep=int(content) < _LARGE_BYTES)
        return None

    def abandon(self) -> None:
        """End the query, if it has not ended."""
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
        return self._pool.give_back(self._process, keep=keep)

    def _failed(self, *, late: bool) -> Exception:
        code = self._finish(keep=False)
        if self._cancellation.is_cancelled:
            return InvalidInputError("The client went away before its query was answered.")
        if late:
            return InvalidInputError(
                "The query timed out after the server's query_process_seconds. Read fewer rows, or simplify its SQL."
            )
        logger.warning("a query process ended with %s", code)
        if code is not None and code >= 0:  # not by a signal: of its own accord, for example while it started
            return ServiceUnavailableError("The process for this query ended; the server's log says why.")
        return InvalidInputError(
            "The query was stopped: it needed more memory than the server's query_process_memory_bytes allow, or could "
            "not be evaluated. Use smaller arguments in its SQL, or read fewer rows."
        )


class BatchReader:
    """The batches that a process answers, as they come."""

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
            while self._lease.next_frame() is not None:  # up to the end of the answer
                pass
            raise

    def close(self) -> None:
        """End the query, if it has not ended."""
        self._finalizer()


class _Pipe:
    """What a process sends, as a file."""

    closed = False

    def __init__(self, lease: _Lease) -> None:
        self._lease = lease
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        parts: list[Any] = []
        while size:
            if not self._left:
                frame = self._lease.next_frame()
                if frame is None:
                    break
                self._left = memoryview(frame)
            part = self._left[:size] if size > 0 else self._left
            self._left = self._left[len(part) :]
            parts.append(part)
            size -= len(part) if size > 0 else 0
        return b"".join(parts)

    def close(self) -> None:
        self.closed = True


class QueryPool:
    """The processes of one server process; they are started when they are needed."""

    def __init__(self, settings: Settings) -> None:
        self._size = settings.query_processes
        self._memory_bytes = settings.query_process_memory_bytes
        self._seconds = settings.query_process_seconds
        self._changed = Condition()
        self._idle: list[_Process] = []
        self._used: set[_Process] = set()
        self._starting = 0
        self._waiting = 0
        self._closed = False

    def query(self, request: dict[str, Any]) -> BatchReader:
        """Return the batches that answer a query; raises the error that it ended with before the first one."""
        reader: BatchReader = self._run({**request, "action": "query"}, BatchReader)
        return reader

    def ask(self, request: dict[str, Any]) -> Any:
        """Return the JSON value that answers a request."""

        def read(lease: _Lease) -> Any:
            content = lease.next_frame()
            while lease.next_frame() is not None:
                pass
            return json.loads(content or b"null")

        return self._run(request, read)

    def close(self) -> None:
        """End all processes."""
        with self._changed:
            self._closed = True
            idle, self._idle = self._idle, []
            for process in self._used:
                process.kill()  # who reads from it sees its end
            self._changed.notify_all()
        for process in idle:
            process.end()

    def give_back(self, process: _Process, *, keep: bool) -> int | None:
        """Take back a process after a query; returns the exit code of one that is not kept."""
        with self._changed:
            self._used.discard(process)
            keep = keep and not self._closed and process.is_alive
            if keep:
                self._idle.append(process)
            self._changed.notify()
        return None if keep else process.end()

    def _run(self, request: dict[str, Any], read: Callable[[_Lease], Any]) -> Any:
        line = json.dumps(request).encode() + b"\n"
        deadline = time.monotonic() + self._seconds
        while True:
            process, fresh = self._acquire()
            lease = _Lease(self, process, deadline)
            try:
                process.send(line)
                return read(lease)
            except BrokenPipeError:
                lease.abandon()
                if fresh:
                    raise
            except BaseException:
                lease.abandon()
                # One that was idle may have ended just before it was asked.
                if fresh or process.answered or process.exit_code != 0:
                    raise

    def _acquire(self) -> tuple[_Process, bool]:
        """Return a process, and whether it is new."""
        if not self._size:
            raise InvalidInputError("This SQL needs a process of its own, and the server's query_processes allow none.")
        with self._changed:
            if self._waiting >= _WAITING_PER_PROCESS * self._size:
                raise ThrottlingError("Too many queries with demanding SQL are waiting; try again in a moment.")
            self._waiting += 1
            try:
                self._wait_for_turn()
            finally:
                self._waiting -= 1
            if self._idle:
                process = self._idle.pop()
                self._used.add(process)
                return process, False
            self._starting += 1
        try:
            process = _Process(self._memory_bytes)
        finally:
            with self._changed:
                self._starting -= 1
        with self._changed:
            self._used.add(process)
        return process, True

    def _wait_for_turn(self) -> None:
        cancellation, deadline = current_cancellation(), time.monotonic() + _WAIT_SECONDS
        while self._closed or len(self._used) + self._starting >= self._size:
            if cancellation.is_cancelled or self._closed:
                raise InvalidInputError("The query was cancelled before there was a process for it.")
            if time.monotonic() >= deadline:
                raise ThrottlingError("All processes for demanding SQL are busy; try again in a moment.")
            self._changed.wait(_LOOK_SECONDS)


def _error_of(error: dict[str, Any]) -> Exception:
    """Return the error that a process reports."""
    if error["code"] is not None:
        return from_error_code(error["code"], error["message"])
    if error["storage"]:
        return OSError(error["message"])
    logger.error("a query process failed: %s", error["message"])
    return LancePanicError()
