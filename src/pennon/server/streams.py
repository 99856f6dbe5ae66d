"""Bytes between the event loop and the threads that work with them: bounded, so that the slower end sets the pace."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from lance_namespace.errors import InvalidInputError, LanceNamespaceError

from pennon.lake.problems import typed_errors

STREAM_TYPE = b"application/vnd.apache.arrow.stream"
FILE_TYPE = b"application/vnd.apache.arrow.file"
_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"


class BodyPipe:
    """A request's body on its way from the event loop, which feeds it, to a thread, which reads it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limit: int) -> None:
        self._loop = loop
        self._limit = limit
        self._chunks: deque[bytes] = deque()
        self._buffered = 0
        self._ended = False
        self._failure: LanceNamespaceError | None = None
        self._changed = threading.Condition()
        self._room = asyncio.Event()
        self._left = b""

    async def feed(self, chunk: bytes) -> None:
        """Add bytes; waits while the reader is behind by more than the limit."""
        if not chunk:
            return
        with self._changed:
            self._chunks.append(chunk)
            self._buffered += len(chunk)
            full = self._buffered > self._limit
            if full:
                self._room.clear()
            self._changed.notify()
        if full:
            await self._room.wait()

    def end(self, failure: LanceNamespaceError | None = None) -> None:
        """Tell the reader that nothing more comes, and whether that is how it should be."""
        with self._changed:
            self._ended = True
            self._failure = failure
            self._changed.notify()

    def abandon(self) -> None:
        """Let the feeder go on: nobody reads any more."""
        self._limit = 2**62
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
                was_full = self._buffered > self._limit
                self._buffered -= len(chunk)
                if was_full and self._buffered <= self._limit:
                    self._loop.call_soon_threadsafe(self._room.set)
                return chunk
            if self._failure is not None:
                raise self._failure
            return None


def cut_off() -> InvalidInputError:
    """Return the error for a body that ended before it was complete."""
    return InvalidInputError("The connection ended before the body was complete.")


class _Sink:
    """Where an Arrow writer puts its bytes, to be taken away batch by batch."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Do nothing: what was written is there to be taken."""

    def close(self) -> None:
        self.closed = True

    def take(self) -> bytes:
        content = b"".join(self._parts)
        self._parts.clear()
        return content


def encode(reader: Any, *, as_file: bool) -> Callable[[], bytes | None]:
    """Return a function that gives the next bytes of an answer each time it is called, and none at its end."""
    schema: pa.Schema = reader.schema
    plain = not any(_holds_dictionary(field.type) for field in schema)
    return _encode_plainly(reader, schema) if plain and not as_file else _encode_by_writer(reader, schema, as_file)


def _encode_plainly(reader: Any, schema: pa.Schema) -> Callable[[], bytes | None]:
    """Encode a stream whose messages stand for themselves: without dictionaries, no writer is needed."""
    pending: list[Any] = [schema.serialize()]
    ended = False

    def following() -> bytes | None:
        nonlocal ended
        if ended:
            return None
        with typed_errors():
            batch = next(reader, None)
        if batch is None:
            ended = True
            pending.append(_END_OF_STREAM)
        else:
            pending.append(batch.serialize())
        content = b"".join(pending) if len(pending) > 1 else memoryview(pending[0])
        pending.clear()
        return content  # type: ignore[return-value]

    return following


def _encode_by_writer(reader: Any, schema: pa.Schema, as_file: bool) -> Callable[[], bytes | None]:
    sink = _Sink()
    writer = (pa.ipc.new_file if as_file else pa.ipc.new_stream)(pa.PythonFile(sink, mode="w"), schema)
    ended = False

    def following() -> bytes | None:
        nonlocal ended
        while not ended:
            with typed_errors():
                batch = next(reader, None)
            if batch is None:
                ended = True
                writer.close()
            else:
                writer.write_batch(batch)
            content = sink.take()
            if content:
                return content
        return None

    return following


def _holds_dictionary(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return True
    return any(_holds_dictionary(kind.field(i).type) for i in range(kind.num_fields))
