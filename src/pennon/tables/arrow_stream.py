"""Arrow streams that come in: read as they arrive, refused when they are cut or corrupt."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import Any, Protocol, Self

import pyarrow as pa
import pyarrow.compute as pc
from lance_namespace.errors import InvalidInputError, LanceNamespaceError, TableSchemaValidationError

from pennon.tables.arrow_types import holds, text_bytes, without_views
from pennon.tables.blobs import holds_blobs, is_blob, with_nulls, without_addresses
from pennon.tables.maps import is_listing, to_maps
from pennon.tables.message_stream import ArrowLimits, MessageStream

_PIECE_BYTES = 8 * 1024 * 1024
_LENGTHY = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)


class Body(Protocol):
    """The bytes of a request, read once from front to back."""

    def read(self, size: int = -1) -> bytes:
        """Return up to ``size`` bytes, fewer only at the end."""


class BytesBody:
    """A body that is in memory already."""

    def __init__(self, content: bytes) -> None:
        self._file = io.BytesIO(content)

    def read(self, size: int = -1) -> bytes:
        """Return up to ``size`` bytes."""
        return self._file.read(size)


class _Joined(io.RawIOBase):
    """What was read ahead of a body, followed by the rest of it."""

    def __init__(self, head: bytes, body: Body) -> None:
        self._head = memoryview(head)
        self._body = body
        self.has_content = bool(head)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes | memoryview:
        """Return bytes; those of the head as they lie there, because Arrow takes any buffer and a copy takes time."""
        if 0 <= size <= len(self._head):
            content, self._head = self._head[:size], self._head[size:]
            return content
        rest = self._body.read(size - len(self._head) if size >= 0 else -1)
        joined = bytes(self._head) + rest if self._head else rest
        self._head = memoryview(b"")
        return joined


class ArrowSource:
    """The batches of a request: all at once when they are few, else one after the other.

    Lance reads from a reader and turns whatever goes wrong in it into an error of its own; the original is kept in
    ``failure``. Use it as a context: at its end, the memory that it reserved is free again.
    """

    def __init__(self, body: Body, small_bytes: int, limits: ArrowLimits | None = None) -> None:
        self.failure: LanceNamespaceError | None = None
        self.rows = 0
        self._small_bytes = small_bytes
        head = body.read(small_bytes + 1)
        self._came_small = len(head) <= small_bytes
        self._file = _Joined(head, body)
        self._messages = MessageStream(self._file, limits or ArrowLimits())
        self._reader = self._open()
        #: What Lance is given: it stores views as what they are views of.
        self.schema: pa.Schema = without_views(self._reader.schema)
        fields = zip(self._reader.schema, self.schema, strict=True)
        self._mends = [list(_mends(given, stored)) for given, stored in fields]
        self._views = [index for index, field in enumerate(self._reader.schema) if self.schema.field(index) != field]
        self._first: list[pa.RecordBatch] = []
        self._others = self._decoded()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._messages.memory.shrink(0)

    @cached_property
    def is_small(self) -> bool:
        """Whether all batches are few bytes, also once they are decompressed: such a source can be read again."""
        size = 0
        while self._came_small and size <= self._small_bytes:
            batch = next(self._others, None)
            if batch is None:
                return True
            self._first.append(batch)
            size += batch.nbytes
        return False

    def fit(self, table: pa.Schema) -> None:
        """Make maps of lists of their entries, where a table has maps; before the batches are taken.

        Where a table has blobs, values without that label are looked at like those that have it.
        """
        for index, given in enumerate(self.schema):
            at = table.get_field_index(given.name)
            if at >= 0 and holds_blobs(table.field(at)):
                self._mends[index].append(partial(without_addresses, field=table.field(at)))
            if at >= 0 and is_listing(given.type, table.field(at).type):
                kind = table.field(at).type
                self.schema = self.schema.set(index, given.with_type(kind))
                self._mends[index].append(partial(to_maps, kind=kind))

    def table(self) -> pa.Table:
        """Return all batches as one table."""
        return pa.Table.from_batches(list(self._batches()), self.schema)

    def reader(self) -> Any:
        """Return the batches as a reader that Lance can pull from."""
        return pa.RecordBatchReader.from_batches(self.schema, self._guarded())

    def _open(self) -> Any:
        options = pa.ipc.IpcReadOptions(ensure_alignment=pa.ipc.Alignment.DataTypeSpecific)
        try:
            return pa.ipc.open_stream(pa.PythonFile(self._messages, mode="r"), options=options)
        except (pa.ArrowException, OSError, EOFError) as error:
            raise (_corrupt() if self._file.has_content else _missing()) from error
        except (TypeError, ValueError) as error:  # raised by an extension type that has no values of the given type
            raise TableSchemaValidationError(f"The schema has an extension type that cannot be: {error}.") from error

    def _guarded(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._batches()
        except LanceNamespaceError as error:
            self.failure = error
            raise

    def _batches(self) -> Iterator[pa.RecordBatch]:
        if self.is_small:
            for batch in self._first:
                yield from _pieces(self._mended(batch))
            return
        while (batch := self._first.pop(0) if self._first else next(self._others, None)) is not None:
            yield from _pieces(self._mended(batch))
            batch = None  # before the next one is read
            if not self._first:
                self._messages.forget_batches()

    def _decoded(self) -> Iterator[pa.RecordBatch]:
        while True:
            try:
                batch = self._reader.read_next_batch()
                # In full: Lance trusts offsets and would read beyond a buffer's end.
                batch.validate(full=True)
            except StopIteration:
                break
            except (pa.ArrowException, OSError, EOFError) as error:
                raise _corrupt() from error
            for column in batch.columns:
                self._messages.check_dictionary_value(_longest_dictionary_value(column))
            self._messages.reserve(sum(text_bytes(batch.column(index)) for index in self._views))
            self.rows += batch.num_rows
            yield batch
            batch = None  # before the next one is read
        # Arrow takes the end of the bytes for the end of the stream, and never looks at what follows the end marker.
        if self._messages.fell_short or self._file.read(1):
            raise _corrupt()

    def _mended(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for index, mends in enumerate(self._mends):
            if mends:
                values = batch.column(index)
                for mend in mends:
                    values = mend(values)
                batch = batch.set_column(index, self.schema.field(index), values)
        return batch


def _mends(given: pa.Field, stored: pa.Field) -> Iterator[Callable[[pa.Array], pa.Array]]:
    """Return what makes of a column's values such as Lance can store."""
    if given.type != stored.type:
        yield lambda values: values.cast(stored.type)
    if is_blob(stored):
        yield with_nulls
    if holds_blobs(stored):
        yield partial(without_addresses, field=stored)
    if holds(pa.types.is_decimal, stored.type):
        # It needs 16 bytes of alignment where Arrow grants 8, which a copy has.
        yield lambda values: pa.concat_arrays([values, values.slice(0, 0)])


def _longest_dictionary_value(values: Any) -> int:
    """Return the bytes of the longest text or binary in a column's dictionaries, those inside structs included."""
    if pa.types.is_struct(values.type):
        return max(map(_longest_dictionary_value, values.flatten()), default=0)
    if not pa.types.is_dictionary(values.type):
        return 0
    kind = values.type.value_type
    if not any(is_kind(kind) for is_kind in _LENGTHY):
        return 0
    return pc.max(pc.binary_length(values.dictionary)).as_py() or 0


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut a batch: Lance makes one page of what it is given at once, and whoever reads a page holds all of it."""
    # Without dictionaries, which each piece refers to whole.
    size = sum(
        column.indices.nbytes if pa.types.is_dictionary(column.type) else column.nbytes for column in batch.columns
    )
    rows = max(batch.num_rows * _PIECE_BYTES // max(size, 1), 1)
    for start in range(0, max(batch.num_rows, 1), rows):
        yield batch.slice(start, rows)


def _corrupt() -> InvalidInputError:
    return InvalidInputError("The body is not a complete Arrow stream: it is cut off or corrupt.")


def _missing() -> InvalidInputError:
    return InvalidInputError(
        "The data is missing: the body is empty, and an Arrow stream is required. One without batches has no rows."
    )


def source_of(content: bytes, small_bytes: int = 2**62) -> ArrowSource:
    """Return a source over bytes in memory."""
    return ArrowSource(BytesBody(content), small_bytes)
