"""The messages of an Arrow stream from a client: measured before Arrow decodes them, refused when they are too large.

Arrow reads a stream through this file. Each message is taken in whole and checked first: the length of its metadata and
of its body, what its buffers are once they are decompressed, and rows that are claimed without any bytes.
"""

from __future__ import annotations

import io
from collections import deque
from dataclasses import dataclass
from typing import NoReturn, Protocol

from lance_namespace.errors import InvalidInputError

from pennon.core.arrow_messages import (
    DICTIONARY_BATCH,
    MAX_METADATA_BYTES,
    SCHEMA,
    Batch,
    Message,
    MessageError,
    read_message,
)
from pennon.core.memory_budget import MemoryBudget, Reservation

#: A larger body of a message is reserved and read in steps: what a client only announces takes no memory from others.
_STEP_BYTES = 16 * 1024 * 1024
#: What a row counts that takes no bytes in its message, such as one of a null array: writers and readers hold some.
_ROW_BYTES = 8
#: The rows that Lance evaluates SQL for at once.
_READ_ROWS = 8192
_CONTINUATION = b"\xff\xff\xff\xff"


@dataclass(frozen=True)
class ArrowLimits:
    """What an Arrow stream may make the server hold; without values, there are no limits."""

    #: The largest batch in bytes, with the dictionaries it refers to: as it is sent, and once it is decoded.
    batch_bytes: int | None = None
    #: The largest stream in bytes, once it is decoded.
    stream_bytes: int | None = None
    #: The memory that all streams share.
    budget: MemoryBudget | None = None


class Readable(Protocol):
    """Bytes from front to back."""

    def read(self, size: int) -> bytes | memoryview:
        """Return up to ``size`` bytes, fewer only at the end."""


class MessageStream(io.RawIOBase):
    """A stream of checked messages, as a file for Arrow."""

    def __init__(self, file: Readable, limits: ArrowLimits) -> None:
        self._file = file
        self._limits = limits
        self._parts: deque[bytes | memoryview] = deque()
        self._weightless: tuple[bool, ...] | None = None
        #: The decoded bytes of each dictionary, which Arrow keeps to the end of the stream.
        self._dictionaries: dict[int, int] = {}
        self._stream_bytes = 0
        #: The decoded bytes of the last batch.
        self.batch_bytes = 0
        self.memory = Reservation(limits.budget)
        #: Whether the bytes ended in the middle of a message, or without the mark of the stream's end.
        self.fell_short = False
        self.ended = False

    def readable(self) -> bool:
        """Return that it can be read."""
        return True

    def read(self, size: int = -1) -> bytes | memoryview:
        """Return the next bytes of checked messages."""
        if not self._parts and not self.ended:
            self._load()
        if self._parts and len(self._parts[0]) == size:
            return self._parts.popleft()  # Arrow reads a message by the same parts
        return self._read_across(size)

    def reserve(self, size: int) -> None:
        """Reserve memory for what a batch becomes, beyond the bytes it was decoded to."""
        limit = self._limits.batch_bytes
        if limit is not None and self.batch_bytes + size > limit:
            _refuse_batch(self.batch_bytes + size, limit)
        self.memory.grow(size)

    def check_dictionary_value(self, size: int) -> None:
        """Refuse a dictionary whose value would not fit into memory once a query writes it out for each row."""
        limit = self._limits.batch_bytes
        if limit is not None and size * _READ_ROWS > limit:
            raise InvalidInputError(
                f"A dictionary of the Arrow stream has a value of {size} bytes; {limit // _READ_ROWS} are allowed: "
                f"a query may write it out for {_READ_ROWS} rows at once (the server's max_batch_bytes). Send the "
                "column without a dictionary."
            )

    def forget_batches(self) -> None:
        """Free the memory of the batches that were read; dictionaries are kept."""
        self.memory.shrink(sum(self._dictionaries.values()))

    def _read_across(self, size: int) -> bytes:
        content = b""
        while len(content) < size and (self._parts or not self.ended):
            if not self._parts:
                self._load()
                continue
            part = self._parts.popleft()
            wanted = size - len(content)
            if len(part) > wanted:
                self._parts.appendleft(part[wanted:])
            content += bytes(part[:wanted])
        return content

    def _load(self) -> None:
        """Take in the next message, or the end of the stream."""
        prefix = self._take(4)
        if prefix == _CONTINUATION:
            self._parts.append(prefix)
            prefix = self._take(4)
        self._parts.append(prefix)
        size = int.from_bytes(prefix, "little") if len(prefix) == 4 else 0
        if not size:
            self.ended = True
            return
        if size > MAX_METADATA_BYTES:
            raise InvalidInputError(
                f"A message of the Arrow stream has {size} bytes of metadata; {MAX_METADATA_BYTES} are allowed."
            )
        metadata = self._take(size)
        self._parts.append(metadata)
        if not self.ended:
            self._take_body(metadata)

    def _take_body(self, metadata: bytes | memoryview) -> None:
        try:
            message = read_message(metadata)
            if message.kind == SCHEMA:
                self._weightless = message.weightless
            body = self._read_body(message.body_bytes)
            if message.batch is not None and not self.ended:
                self._admit(message, message.batch, body)
        except MessageError as error:
            raise InvalidInputError(f"The body is not a valid Arrow stream: {error}.") from error
        if message.body_bytes:
            self._parts.append(body)

    def _read_body(self, size: int) -> bytes | memoryview:
        limit = self._limits.batch_bytes
        if limit is not None and size > limit:
            _refuse_batch(size, limit)
        parts = []
        for start in range(0, size, _STEP_BYTES):
            step = min(_STEP_BYTES, size - start)
            self.memory.grow(step)
            parts.append(self._take(step))
            if self.ended:
                break
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _admit(self, message: Message, batch: Batch, body: bytes | memoryview) -> None:
        """Add up what a batch is once it is decoded, and refuse or reserve it."""
        is_dictionary = message.kind == DICTIONARY_BATCH
        size = sum(batch.decoded_sizes(body)) + _ROW_BYTES * self._weightless_rows(batch, is_dictionary=is_dictionary)
        if is_dictionary:
            before = self._dictionaries.get(message.dictionary, 0) if message.is_delta else 0
            self._dictionaries[message.dictionary] = before + size
        else:
            self.batch_bytes = size
        self._stream_bytes += size
        whole = sum(self._dictionaries.values()) + (0 if is_dictionary else size)
        if self._limits.batch_bytes is not None and whole > self._limits.batch_bytes:
            _refuse_batch(whole, self._limits.batch_bytes)
        if self._limits.stream_bytes is not None and self._stream_bytes > self._limits.stream_bytes:
            raise InvalidInputError(
                f"The Arrow stream has more than {self._limits.stream_bytes} bytes once it is decoded, which are "
                "allowed (the server's max_upload_bytes)."
            )
        self.memory.grow(size if batch.compressed else max(size - len(body), 0))

    def _weightless_rows(self, batch: Batch, *, is_dictionary: bool) -> int:
        if is_dictionary:
            return sum(batch.lengths)
        if self._weightless is None or len(self._weightless) != len(batch.lengths):
            raise MessageError("a batch does not have the columns of its schema")
        claimed = sum(length for length, is_so in zip(batch.lengths, self._weightless, strict=True) if is_so)
        return claimed if batch.lengths else batch.rows

    def _take(self, size: int) -> bytes | memoryview:
        content = self._file.read(size)
        if len(content) < size:
            self.fell_short = self.ended = True
        return content


def _refuse_batch(size: int, limit: int) -> NoReturn:
    raise InvalidInputError(
        f"A batch of the Arrow stream has {size} bytes, with its dictionaries and once it is decoded; {limit} are "
        "allowed (the server's max_batch_bytes). Send smaller batches."
    )
