"""Arrow streams that come in: read as they arrive, refused when they are cut or corrupt."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any, Protocol

import pyarrow as pa
from lance_namespace.errors import InvalidInputError, LanceNamespaceError

#: How a stream ends: the marker of today and the one of the first Arrow releases.
_ENDINGS = (b"\xff\xff\xff\xff\x00\x00\x00\x00", b"\x00\x00\x00\x00")


class Body(Protocol):
    """The bytes of a request, read once from front to back."""

    def read(self, size: int = -1) -> bytes:
        """Return up to ``size`` bytes, fewer only at the end."""

    @property
    def tail(self) -> bytes:
        """The last bytes that were read."""


class BytesBody:
    """A body that is in memory already."""

    def __init__(self, content: bytes) -> None:
        self._file = io.BytesIO(content)
        self.tail = content[-8:]

    def read(self, size: int = -1) -> bytes:
        """Return up to ``size`` bytes."""
        return self._file.read(size)


class _Joined(io.RawIOBase):
    """What was read ahead of a body, followed by the rest of it."""

    def __init__(self, head: bytes, body: Body) -> None:
        self._head = io.BytesIO(head)
        self._body = body

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        first = self._head.read(size)
        if size >= 0 and len(first) == size:
            return first
        return first + self._body.read(size - len(first) if size >= 0 else -1)


class ArrowSource:
    """The batches of a request: all at once when they are few, else one after the other.

    Lance reads from a reader and turns whatever goes wrong in it into an error of its own; the original is kept in
    ``failure``.
    """

    def __init__(self, body: Body, small_bytes: int) -> None:
        self.failure: LanceNamespaceError | None = None
        self.rows = 0
        self._body = body
        head = body.read(small_bytes + 1)
        self.is_small = len(head) <= small_bytes
        self._reader = self._open(_Joined(head, body))
        self.schema: pa.Schema = self._reader.schema

    def table(self) -> pa.Table:
        """Return all batches as one table."""
        return pa.Table.from_batches(list(self._batches()), self.schema)

    def reader(self) -> Any:
        """Return the batches as a reader that Lance can pull from."""
        return pa.RecordBatchReader.from_batches(self.schema, self._guarded())

    def _open(self, file: _Joined) -> Any:
        options = pa.ipc.IpcReadOptions(ensure_alignment=pa.ipc.Alignment.DataTypeSpecific)
        try:
            return pa.ipc.open_stream(pa.PythonFile(file, mode="r"), options=options)
        except (pa.ArrowException, OSError, EOFError) as error:
            raise _corrupt() from error

    def _guarded(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._batches()
        except LanceNamespaceError as error:
            self.failure = error
            raise

    def _batches(self) -> Iterator[pa.RecordBatch]:
        while True:
            try:
                batch = self._reader.read_next_batch()
                batch.validate()
            except StopIteration:
                break
            except (pa.ArrowException, OSError, EOFError) as error:
                raise _corrupt() from error
            self.rows += batch.num_rows
            yield batch
        self._body.read()
        if not self._body.tail.endswith(_ENDINGS):
            raise _corrupt()


def _corrupt() -> InvalidInputError:
    return InvalidInputError("The body is not a complete Arrow stream: it is cut off or corrupt.")


def source_of(content: bytes, small_bytes: int = 2**62) -> ArrowSource:
    """Return a source over bytes in memory."""
    return ArrowSource(BytesBody(content), small_bytes)
