"""Bytes between the event loop and the threads that work with them: bounded, so that the slower end sets the pace."""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from lance_namespace.errors import InternalError, InvalidInputError, LanceNamespaceError

from pennon.server.http.bodies import SMALL_BYTES, BodyBudget
from pennon.server.http.exchange import version_header
from pennon.tables.lance_errors import typed_errors
from pennon.tables.query.process_pool import BatchReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from pennon.namespace.extensions import BlobRange
    from pennon.namespace.queries import Answer

STREAM_TYPE = b"application/vnd.apache.arrow.stream"
FILE_TYPE = b"application/vnd.apache.arrow.file"
_PIECE_BYTES = 1024 * 1024
#: An answer that is the only large one can afford larger pieces: handing one over takes as long whatever its size.
_ALONE_BYTES = 4 * 1024 * 1024
_PIECE_SECONDS = 0.05
#: Arrow's defaults; left out, they are looked for in the environment by every answer.
_OPTIONS = pa.ipc.IpcWriteOptions()


class BodyPipe:
    """A request's body on its way from the event loop, which feeds it, to a thread, which reads it.

    What it buffers counts in a budget. While that is exceeded, little is buffered, but never nothing: so every reader
    goes on.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, limit: int, budget: BodyBudget) -> None:
        self._loop = loop
        self._limit = limit
        self._budget = budget
        self._abandoned = False
        self._chunks: deque[bytes] = deque()
        self._buffered = 0
        self._ended = False
        self._failure: LanceNamespaceError | None = None
        self._changed = threading.Condition()
        self._room = asyncio.Event()
        self._room.set()
        self._left = b""

    async def feed(self, chunk: bytes) -> None:
        """Add bytes; waits while the reader is behind by more than the limit."""
        if not chunk:
            return
        with self._changed:
            if self._abandoned:
                return
            self._chunks.append(chunk)
            self._buffered += len(chunk)
            self._budget.add(len(chunk))
            full = self._is_full()
            if full:
                self._room.clear()
            self._changed.notify()
        if full:
            await self._room.wait()

    def _is_full(self) -> bool:
        return self._buffered > (SMALL_BYTES if self._budget.is_exceeded else self._limit)

    def end(self, failure: LanceNamespaceError | None = None) -> None:
        """Tell the reader that nothing more comes, and whether that is how it should be."""
        with self._changed:
            self._ended = True
            self._failure = failure
            self._changed.notify()

    def abandon(self) -> None:
        """Drop what is buffered and let the feeder go on: nobody reads any more."""
        with self._changed:
            self._abandoned = True
            self._chunks.clear()
            self._budget.remove(self._buffered)
            self._buffered = 0
        self._loop.call_soon_threadsafe(self._room.set)

    def read(self, size: int = -1) -> bytes:
        """Return up to ``size`` bytes, fewer only at the end; all that is left without a size."""
        parts = [self._left]
        have = len(self._left)
        self._left = b""
        while size < 0 or have < size:
            chunk = self._take()
            if chunk is None:
                break
            if size < 0:
                # The rest is of no interest but for its end.
                parts, have = [parts[-1][-8:] + chunk], 0
                continue
            parts.append(chunk)
            have += len(chunk)
        content = b"".join(parts)
        if 0 <= size < len(content):
            content, self._left = content[:size], content[size:]
        return content

    def _take(self) -> bytes | None:
        with self._changed:
            while not self._chunks and not self._ended:
                self._changed.wait()
            if self._chunks:
                chunk = self._chunks.popleft()
                self._buffered -= len(chunk)
                self._budget.remove(len(chunk))
                if not self._room.is_set() and not self._is_full():
                    self._loop.call_soon_threadsafe(self._room.set)
                return chunk
            if self._failure is not None:
                raise self._failure
            return None


def cut_off() -> InvalidInputError:
    """Return the error for a body that ended before it was complete."""
    return InvalidInputError("The connection ended before the body was complete.")


class _Sink:
    """Where an Arrow writer puts its bytes, to be taken away piece by piece."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[Any] = []

    def write(self, data: Any) -> int:
        # Either bytes or a buffer of the batch itself, which is copied only when it is taken.
        self._parts.append(data)
        return len(data)

    def flush(self) -> None:
        """Do nothing: what was written is there to be taken."""

    def close(self) -> None:
        self.closed = True

    def take(self) -> bytes:
        content = b"".join(self._parts)
        self._parts.clear()
        return content


_under_way: weakref.WeakSet[Outgoing] = weakref.WeakSet()


class Outgoing:
    """An answer of batches as bytes: pieces worth sending, the first of them made at once."""

    status = 200
    #: How many bytes it has; not known before all are made.
    length: int | None = None

    def __init__(self, answer: Answer, *, as_file: bool) -> None:
        self.headers = version_header(answer.version)
        self.media_type = FILE_TYPE if as_file else STREAM_TYPE
        self._reader = answer.reader
        #: Whether the piece that was read last is the end.
        self.ended = False
        self._let_go: Callable[[], object] = bool
        new = pa.ipc.new_file if as_file else pa.ipc.new_stream
        batches = self._read_batches()
        if self.ended:
            # As most answers are: Arrow writes it into its own memory, without a call of Python for each part of it.
            whole = pa.BufferOutputStream()
            self._writer = new(whole, answer.reader.schema, options=_OPTIONS)
            self._write(batches)
            self.first: bytes = whole.getvalue().to_pybytes()
        else:
            _under_way.add(self)
            if answer.hold is not None:
                self._let_go = weakref.finalize(self, answer.hold())
            self._sink = _Sink()
            self._writer = new(pa.PythonFile(self._sink, mode="w"), answer.reader.schema, options=_OPTIONS)
            self._write(batches)
            self.first = self._sink.take()

    def read(self) -> bytes:
        """Return the next piece."""
        self._write(self._read_batches())
        return self._sink.take()

    def close(self) -> None:
        """Let go of what is read; without that, it happens when nobody has the answer any more."""
        if not self.ended and isinstance(self._reader, BatchReader):
            self._reader.close()
        self._let_go()

    def _read_batches(self) -> list[Any]:
        """Return the batches of the next piece: many small ones, but none that keeps its client waiting for long."""
        deadline = time.monotonic() + _PIECE_SECONDS
        batches, size, enough = [], 0, _ALONE_BYTES if len(_under_way) == 1 else _PIECE_BYTES
        with typed_errors():
            while size < enough and time.monotonic() <= deadline:
                batch = next(self._reader, None)
                if batch is None:
                    self.ended = True
                    break
                batches.append(batch)
                # What a batch has of larger buffers takes longer to tell than a small answer to make.
                whole = batch.get_total_buffer_size()
                size += whole if whole < _PIECE_BYTES else batch.nbytes
        return batches

    def _write(self, batches: list[Any]) -> None:
        for batch in batches:
            self._writer.write_batch(batch)
        if self.ended:
            self._writer.close()


class BlobStream:
    """A range of a blob as bytes: in pieces, the first of them read at once."""

    status = 206
    media_type = b"application/octet-stream"

    def __init__(self, found: BlobRange) -> None:
        self.length = self._left = found.end - found.start
        span = f"bytes {found.start}-{found.end - 1}/{found.size}"
        self.headers = (*version_header(found.version), (b"content-range", span.encode()))
        self._file: Any = found.file
        self._let_go: Callable[[], object] = bool
        self.first = self.read()
        if not self.ended and found.hold is not None:
            self._let_go = weakref.finalize(self, found.hold())

    @property
    def ended(self) -> bool:
        """Whether the piece that was read last is the end."""
        return not self._left

    def read(self) -> bytes:
        """Return the next piece."""
        with typed_errors():
            piece = bytes(self._file.read(min(self._left, _ALONE_BYTES)))
        if not piece:
            raise InternalError("A blob ends before it should.")
        self._left -= len(piece)
        return piece

    def close(self) -> None:
        """Let go of what is read; without that, it happens when nobody has the answer any more."""
        self._file.close()
        self._let_go()
