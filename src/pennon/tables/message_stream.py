"""The messages of a client's Arrow stream: measured before Arrow decodes them, and rejected if they are too large.

Arrow reads a stream through this file. Each message is read completely and checked first: the length of its metadata
and of its body, the decompressed size of its buffers, and rows that take no bytes.
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
    ArrowMessageError,
    Batch,
    Message,
    read_message,
)
from pennon.core.memory_budget import MemoryBudget, Reservation

#: Large message bodies are reserved and read in steps: a size that a client only announces takes no memory.
_STEP_BYTES = 16 * 1024 * 1024
#: The size of a row without bytes in its message, such as one of a null array: writers and readers need some memory.
_ROW_BYTES = 8
#: The number of rows that Lance evaluates SQL for at once.
_READ_ROWS = 8192
_CONTINUATION = b"\xff\xff\xff\xff"


@dataclass(frozen=True)
class ArrowLimits:
    """Limits on the memory of an Arrow stream; None means no limit."""

    #: The largest batch in bytes, with its dictionaries: as sent, and decoded.
    batch_bytes: int | None = None
    #: The largest stream in bytes, decoded.
    stream_bytes: int | None = None
    #: The memory that all streams share.
    budget: MemoryBudget | None = None


class Readable(Protocol):
    """A source of bytes."""

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
        #: Whether the bytes ended inside a message, or without an end-of-stream marker.
        self.fell_short = False
        self.ended = False

    def readable(self) -> bool:
        """Return True."""
        return True

    def read(self, size: int = -1) -> bytes | memoryview:
        """Return the next bytes of checked messages."""
        if not self._parts and not self.ended:
            self._load()
        if self._parts and len(self._parts[0]) == size:
            return self._parts.popleft()  # Arrow reads the same parts of a message
        return self._read_across(size)

    def reserve(self, size: int) -> None:
        """Reserve memory that a batch needs in addition to its decoded bytes."""
        limit = self._limits.batch_bytes
        if limit is not None and self.batch_bytes + size > limit:
            _reject_batch(self.batch_bytes + size, limit)
        self.memory.grow(size)

    def check_dictionary_value(self, size: int) -> None:
        """Reject a dictionary value that would not fit into memory if a query copied it for each row."""
        limit = self._limits.batch_bytes
        if limit is not None and size * _READ_ROWS > limit:
            raise InvalidInputError(
                f"A dictionary of the Arrow stream has a value of {size} bytes, more than {limit // _READ_ROWS}: a "
                f"query may copy it for {_READ_ROWS} rows at once (the server's max_batch_bytes). Send the column "
                "without a dictionary."
            )

    def forget_batches(self) -> None:
        """Release the memory of the batches that were read, but not of dictionaries."""
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
        """Read the next message, or the end of the stream."""
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
                f"A message of the Arrow stream has {size} bytes of metadata, more than {MAX_METADATA_BYTES}."
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
        except ArrowMessageError as error:
            raise InvalidInputError(f"The body is not a valid Arrow stream: {error}.") from error
        if message.body_bytes:
            self._parts.append(body)

    def _read_body(self, size: int) -> bytes | memoryview:
        limit = self._limits.batch_bytes
        if limit is not None and size > limit:
            _reject_batch(size, limit)
        parts = []
        for start in range(0, size, _STEP_BYTES):
            step = min(_STEP_BYTES, size - start)
            self.memory.grow(step)
            parts.append(self._take(step))
            if self.ended:
                break
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _admit(self, message: Message, batch: Batch, body: bytes | memoryview) -> None:
        """Compute the decoded size of a batch, and reject the batch or reserve its memory."""
        is_dictionary = message.kind == DICTIONARY_BATCH
        size = sum(batch.decoded_sizes(body)) + _ROW_BYTES * self._weightless_rows(batch, is_dictionary=is_dictionary)
        if is_dictionary:
            before = self._dictionaries.get(message.dictionary, 0) if message.is_delta else 0
            self._dictionaries[message.dictionary] = before + size
        else:
            self.batch_bytes = size
        self._stream_bytes += size
        total = sum(self._dictionaries.values()) + (0 if is_dictionary else size)
        if self._limits.batch_bytes is not None and total > self._limits.batch_bytes:
            _reject_batch(total, self._limits.batch_bytes)
        if self._limits.stream_bytes is not None and self._stream_bytes > self._limits.stream_bytes:
            raise InvalidInputError(
                f"The Arrow stream has more than {self._limits.stream_bytes} decoded bytes (the server's "
                "max_upload_bytes). Send the rows in several requests."
            )
        self.memory.grow(size if batch.compressed else max(size - len(body), 0))

    def _weightless_rows(self, batch: Batch, *, is_dictionary: bool) -> int:
        if is_dictionary:
            return sum(batch.lengths)
        if self._weightless is None or len(self._weightless) != len(batch.lengths):
            raise ArrowMessageError("a batch does not have the columns of its schema")
        claimed = sum(length for length, is_so in zip(batch.lengths, self._weightless, strict=True) if is_so)
        return claimed if batch.lengths else batch.rows

    def _take(self, size: int) -> bytes | memoryview:
        content = self._file.read(size)
        if len(content) < size:
            self.fell_short = self.ended = True
        return content


def _reject_batch(size: int, limit: int) -> NoReturn:
    raise InvalidInputError(
        f"A batch of the Arrow stream has {size} decoded bytes including its dictionaries, more than {limit} (the "
        "server's max_batch_bytes). Send smaller batches."
    )
