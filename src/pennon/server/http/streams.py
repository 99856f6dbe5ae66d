"""Streams between the event loop and threads, bounded so that the slower end sets the pace."""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING

import pyarrow as pa
from lance_namespace.errors import InternalError, InvalidInputError, LanceNamespaceError

from pennon.server.http.bodies import SMALL_BYTES, BodyBudget
from pennon.server.http.exchange import version_header
from pennon.tables.lance_errors import typed_errors
from pennon.tables.query.process_pool import BatchReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from pennon.namespace.blobs import BlobRange
    from pennon.namespace.queries import QueryResult

STREAM_TYPE = b"application/vnd.apache.arrow.stream"
FILE_TYPE = b"application/vnd.apache.arrow.file"
# None of these was measured on its own; benchmarks/data.py ran with these values.
_PIECE_BYTES = 1024 * 1024
#: The only large response in progress uses larger pieces: handing one over takes the same time at any size.
_SINGLE_PIECE_BYTES = 4 * 1024 * 1024
#: A piece is sent after this time at the latest, so that a slow query shows its first rows.
_PIECE_SECONDS = 0.05
#: Arrow's defaults; without this, every response looks them up in the environment.
_OPTIONS = pa.ipc.IpcWriteOptions()


class BodyPipe:
    """Passes a request body from the event loop, which feeds it, to a thread, which reads it.

    Buffered bytes count in a budget. While it is exceeded, each pipe buffers little, but enough for its reader to
    progress.
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
        """Add bytes; waits while more than the limit is buffered."""
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
        """End the body, or make its reader raise a failure."""
        with self._changed:
            self._ended = True
            self._failure = failure
            self._changed.notify()

    def abandon(self) -> None:
        """Drop the buffer and stop blocking the feeder, because the reader has stopped."""
        with self._changed:
            self._abandoned = True
            self._chunks.clear()
            self._budget.remove(self._buffered)
            self._buffered = 0
        self._loop.call_soon_threadsafe(self._room.set)

    def read(self, size: int = -1) -> bytes:
        """Return ``size`` bytes, fewer at the end; without a size, the last bytes of the body."""
        parts = [self._left]
        have = len(self._left)
        self._left = b""
        while size < 0 or have < size:
            chunk = self._take()
            if chunk is None:
                break
            if size < 0:
                # Without a size, the reader only checks how the body ends.
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


def connection_ended() -> InvalidInputError:
    """Return the error for a body that ended before it was complete."""
    return InvalidInputError("The connection ended before the body was complete.")


class _Sink:
    """Collects the bytes of an Arrow writer, to be taken piece by piece."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes | memoryview] = []

    def write(self, data: bytes | memoryview) -> int:
        # Either bytes or a buffer of the batch, which is copied only by take().
        self._parts.append(data)
        return len(data)

    def flush(self) -> None:
        """Do nothing: written bytes can be taken already."""

    def close(self) -> None:
        self.closed = True

    def take(self) -> bytes:
        content = b"".join(self._parts)
        self._parts.clear()
        return content


_active: weakref.WeakSet[ArrowResponse] = weakref.WeakSet()


class ArrowResponse:
    """Arrow batches encoded in pieces of a size worth sending; the first is made on construction."""

    status = 200
    #: The number of bytes: unknown before the end.
    length: int | None = None

    def __init__(self, answer: QueryResult, *, as_file: bool) -> None:
        self.headers = version_header(answer.version)
        self.media_type = FILE_TYPE if as_file else STREAM_TYPE
        self._reader = answer.reader
        #: Whether the last piece was read.
        self.ended = False
        self._release: Callable[[], object] = bool
        new = pa.ipc.new_file if as_file else pa.ipc.new_stream
        batches = self._read_batches()
        if self.ended:
            # The usual case: Arrow writes into its own memory, without a call into Python for each part.
            whole = pa.BufferOutputStream()
            self._writer = new(whole, answer.reader.schema, options=_OPTIONS)
            self._write(batches)
            self.first: bytes = whole.getvalue().to_pybytes()
        else:
            _active.add(self)
            if answer.hold is not None:
                self._release = weakref.finalize(self, answer.hold())
            self._sink = _Sink()
            file = pa.PythonFile(self._sink, mode="w")  # type: ignore[arg-type]  # any object with these methods will do
            self._writer = new(file, answer.reader.schema, options=_OPTIONS)
            self._write(batches)
            self.first = self._sink.take()

    def read(self) -> bytes:
        """Return the next piece."""
        self._write(self._read_batches())
        return self._sink.take()

    def close(self) -> None:
        """Release the files that are read; otherwise the garbage collector does."""
        if not self.ended and isinstance(self._reader, BatchReader):
            self._reader.close()
        self._release()

    def _read_batches(self) -> list[pa.RecordBatch]:
        """Return the batches of the next piece: as many as fit, read for a short time at most."""
        deadline = time.monotonic() + _PIECE_SECONDS
        batches, size, enough = [], 0, _SINGLE_PIECE_BYTES if len(_active) == 1 else _PIECE_BYTES
        with typed_errors():
            while size < enough and time.monotonic() <= deadline:
                batch = next(self._reader, None)
                if batch is None:
                    self.ended = True
                    break
                batches.append(batch)
                # The exact size of a slice of larger buffers takes longer to compute than a small response.
                whole = batch.get_total_buffer_size()
                size += whole if whole < _PIECE_BYTES else batch.nbytes
        return batches

    def _write(self, batches: list[pa.RecordBatch]) -> None:
        for batch in batches:
            self._writer.write_batch(batch)
        if self.ended:
            self._writer.close()


class BlobStream:
    """A range of a blob in pieces; the first is read on construction."""

    status = 206
    media_type = b"application/octet-stream"

    def __init__(self, found: BlobRange) -> None:
        self.length = self._left = found.end - found.start
        span = f"bytes {found.start}-{found.end - 1}/{found.size}"
        self.headers = (*version_header(found.version), (b"content-range", span.encode()))
        assert found.file is not None  # noqa: S101 (a null blob has no stream)
        self._file = found.file
        self._release: Callable[[], object] = bool
        self.first = self.read()
        if not self.ended and found.hold is not None:
            self._release = weakref.finalize(self, found.hold())

    @property
    def ended(self) -> bool:
        """Whether the last piece was read."""
        return not self._left

    def read(self) -> bytes:
        """Return the next piece."""
        with typed_errors():
            piece = bytes(self._file.read(min(self._left, _SINGLE_PIECE_BYTES)))
        if not piece:
            raise InternalError("The blob has fewer bytes than its descriptor says.")
        self._left -= len(piece)
        return piece

    def close(self) -> None:
        """Release the files that are read; otherwise the garbage collector does."""
        self._file.close()
        self._release()
