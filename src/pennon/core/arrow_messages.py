"""The metadata of Arrow IPC messages, checked before Arrow decodes them.

A message is a FlatBuffers table. Tables and strings in it are found by offsets, and several offsets may point to the
same bytes: a small message can claim a schema of any size, which Arrow would build. So the claimed sizes are added up,
each as often as it is referenced, and too large ones are refused before Arrow sees them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

SCHEMA, DICTIONARY_BATCH, RECORD_BATCH = 1, 2, 3
#: The maximum size of a message's metadata: the schema of about 100 000 columns.
MAX_METADATA_BYTES = 16 * 1024 * 1024
#: Metadata up to this size is cached: clients repeat their schema, and often the shape of their batches, with every
#: insert. That of one row with a vector takes 100 µs to parse.
_CACHED_METADATA_BYTES = 4096
_MAX_FIELDS = 100_000
#: Arrow refuses deeper schemas itself.
_MAX_DEPTH = 128
_CONTINUATION = 0xFFFFFFFF
#: Type ids of Arrow's ``Type`` union: of types whose values take no bytes, and of types with details to check.
_NULL, _TIMESTAMP, _STRUCT, _UNION, _FIXED_BINARY, _FIXED_LIST, _RUN_END = 1, 10, 13, 14, 15, 16, 22


class ArrowMessageError(ValueError):
    """The metadata of an Arrow message is corrupt, or claims more than is allowed."""


@dataclass(frozen=True)
class Batch:
    """The claimed sizes of a record batch or of a dictionary's values."""

    rows: int
    #: The length of every array, parents before their children.
    lengths: tuple[int, ...]
    #: Offset and length of every buffer in the message's body.
    buffers: tuple[tuple[int, int], ...]
    compressed: bool

    def decoded_sizes(self, body: bytes | memoryview) -> Iterator[int]:
        """Return the decompressed size of each buffer."""
        for offset, length in self.buffers:
            if min(offset, length) < 0 or offset + length > len(body):
                raise ArrowMessageError("a buffer is outside its message")
            if not self.compressed or not length:
                yield length
                continue
            if length < 8:
                raise ArrowMessageError("a compressed buffer has no length")
            (size,) = struct.unpack_from("<q", body, offset)
            if size < -1:
                raise ArrowMessageError("a compressed buffer has a negative length")
            yield length - 8 if size == -1 else size


@dataclass(frozen=True)
class Message:
    """The kind and the claimed sizes of an Arrow message."""

    kind: int
    body_bytes: int
    #: For a schema: whether each array of its batches has rows without bytes, parents before their children.
    weightless: tuple[bool, ...] = ()
    #: For a batch or a dictionary.
    batch: Batch | None = None
    dictionary: int = 0
    is_delta: bool = False


def read_message(metadata: bytes | memoryview) -> Message:
    """Parse the metadata of a message; raises ``ArrowMessageError``."""
    try:
        if len(metadata) <= _CACHED_METADATA_BYTES:
            return _read_cached(bytes(metadata))
        return _read_message(memoryview(metadata))
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise error if isinstance(error, ArrowMessageError) else ArrowMessageError("its metadata is corrupt") from error


@lru_cache(maxsize=256)
def _read_cached(metadata: bytes) -> Message:
    return _read_message(memoryview(metadata))


def check_schema_message(content: bytes) -> None:
    """Raise ``ArrowMessageError`` unless the content begins with a schema message that is safe to read."""
    try:
        first, second = struct.unpack_from("<II", content)
    except struct.error as error:
        raise ArrowMessageError("it is too short") from error
    start, size = (8, second) if first == _CONTINUATION else (4, first)
    if size > min(MAX_METADATA_BYTES, len(content) - start):
        raise ArrowMessageError("its metadata is cut off or too large")
    if read_message(memoryview(content)[start : start + size]).kind != SCHEMA:
        raise ArrowMessageError("it is not a schema message")


class _Table:
    """A FlatBuffers table at a position."""

    def __init__(self, data: memoryview, at: int) -> None:
        self._data = data
        self._at = at
        (back,) = struct.unpack_from("<i", data, at)
        self._slots = at - back
        if self._slots < 0:
            raise ArrowMessageError("its metadata is corrupt")
        (self._slots_bytes,) = struct.unpack_from("<H", data, self._slots)

    def number(self, slot: int, form: str) -> int:
        at = self._find(slot)
        return int(struct.unpack_from(form, self._data, at)[0]) if at else 0

    def table(self, slot: int) -> _Table | None:
        at = self._find(slot)
        return _Table(self._data, _resolve_offset(self._data, at)) if at else None

    def tables(self, slot: int) -> Iterator[_Table]:
        start, count = self._vector(slot)
        for index in range(count):
            yield _Table(self._data, _resolve_offset(self._data, start + 4 * index))

    def pairs(self, slot: int) -> tuple[tuple[int, int], ...]:
        start, count = self._vector(slot)
        if start + 16 * count > len(self._data):
            raise ArrowMessageError("its metadata is corrupt")
        return tuple(struct.iter_unpack("<qq", self._data[start : start + 16 * count]))

    def vector_length(self, slot: int) -> int:
        """Return the number of items in a vector."""
        return self._vector(slot)[1]

    def text_bytes(self, slot: int) -> int:
        """Return the length of a string, which must be UTF-8, or no client could name the column."""
        start, size = self._vector(slot)
        try:
            str(self._data[start : start + size], "utf-8")
        except UnicodeDecodeError as error:
            raise ArrowMessageError("a string of its schema is not UTF-8") from error
        return size

    def _vector(self, slot: int) -> tuple[int, int]:
        at = self._find(slot)
        if not at:
            return 0, 0
        start = _resolve_offset(self._data, at)
        return start + 4, struct.unpack_from("<I", self._data, start)[0]

    def _find(self, slot: int) -> int:
        entry = 4 + 2 * slot
        if entry + 2 > self._slots_bytes:
            return 0
        (offset,) = struct.unpack_from("<H", self._data, self._slots + entry)
        return self._at + offset if offset else 0


def _resolve_offset(data: memoryview, at: int) -> int:
    return at + int(struct.unpack_from("<I", data, at)[0])


def _read_message(data: memoryview) -> Message:
    root = _Table(data, _resolve_offset(data, 0))
    claims = _Claims(len(data))
    claims.add_entries(root, 4)
    kind, body_bytes, header = root.number(1, "<B"), root.number(3, "<q"), root.table(2)
    if header is None or body_bytes < 0:
        raise ArrowMessageError("its metadata is corrupt")
    if kind == SCHEMA:
        claims.add_entries(header, 2)
        return Message(kind, body_bytes, weightless=claims.add_fields(header))
    if kind == RECORD_BATCH:
        return Message(kind, body_bytes, batch=_read_batch(header))
    if kind == DICTIONARY_BATCH:
        values = header.table(1)
        if values is None:
            raise ArrowMessageError("a dictionary has no values")
        number, is_delta = header.number(0, "<q"), bool(header.number(2, "<B"))
        return Message(kind, body_bytes, batch=_read_batch(values), dictionary=number, is_delta=is_delta)
    raise ArrowMessageError("it is neither a schema, a dictionary nor a batch")


def _read_batch(table: _Table) -> Batch:
    rows = table.number(0, "<q")
    lengths = tuple(length for length, _ in table.pairs(1))
    if rows < 0 or min(lengths, default=0) < 0:
        raise ArrowMessageError("a batch has a negative number of rows")
    return Batch(rows, lengths, table.pairs(2), compressed=table.table(3) is not None)


class _Claims:
    """Adds up the claimed sizes of a schema, and refuses it if they are too large."""

    def __init__(self, metadata_bytes: int) -> None:
        # A writer without shared offsets stays below the size of its metadata.
        self._text_left = 4 * metadata_bytes + 64 * 1024
        self._fields = 0

    def add_fields(self, schema: _Table) -> tuple[bool, ...]:
        weightless: list[bool] = []
        stack = [(field, 1, True) for field in _reversed(schema, 1, self)]
        while stack:
            field, depth, has_array = stack.pop()
            if depth > _MAX_DEPTH:
                raise ArrowMessageError(f"its schema is nested more than {_MAX_DEPTH} levels deep")
            self._add_field(field)
            kind, is_dictionary = field.number(2, "<B"), field.table(4) is not None
            if has_array:
                weightless.append(not is_dictionary and _is_weightless(kind, field))
            # The children of a dictionary have their arrays in dictionary batches.
            children = _reversed(field, 5, self)
            stack.extend((child, depth + 1, has_array and not is_dictionary) for child in children)
        return tuple(weightless)

    def count_fields(self, count: int) -> None:
        self._fields += count
        if self._fields > _MAX_FIELDS:
            raise ArrowMessageError(f"its schema has more than {_MAX_FIELDS} fields")

    def add_entries(self, table: _Table, slot: int) -> None:
        self._add_text(table.vector_length(slot) * 8)
        for entry in table.tables(slot):
            self._add_text(entry.text_bytes(0) + entry.text_bytes(1))

    def _add_field(self, field: _Table) -> None:
        self._add_text(field.text_bytes(0))
        self.add_entries(field, 6)
        kind, details = field.number(2, "<B"), field.table(3)
        if details is not None and kind == _TIMESTAMP:
            self._add_text(details.text_bytes(1))
        elif details is not None and kind == _UNION:
            self._add_text(4 * details.vector_length(1))

    def _add_text(self, size: int) -> None:
        self._text_left -= size
        if self._text_left < 0:
            raise ArrowMessageError("its schema claims more text than it contains")


def _reversed(table: _Table, slot: int, claims: _Claims) -> list[_Table]:
    claims.count_fields(table.vector_length(slot))  # before building the list
    return list(table.tables(slot))[::-1]


def _is_weightless(kind: int, field: _Table) -> bool:
    if kind == _FIXED_BINARY:
        details = field.table(3)
        return details is None or details.number(0, "<i") <= 0
    return kind in (_NULL, _STRUCT, _FIXED_LIST, _RUN_END)
