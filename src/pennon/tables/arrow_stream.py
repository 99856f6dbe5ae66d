"""Arrow streams of requests: read as they arrive, and rejected if they are truncated or corrupt."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Protocol, Self

import pyarrow as pa
from lance_namespace.errors import InvalidInputError, LanceNamespaceError, TableSchemaValidationError

from pennon.tables.arrow_types import contains_type, string_view_bytes, without_string_views
from pennon.tables.blobs import has_blobs, is_blob, null_empty_blobs, reject_external_blobs
from pennon.tables.maps import is_entry_list, maps_from_entries
from pennon.tables.message_stream import ArrowLimits, MessageStream
from pennon.tables.query.row_sizes import longest_dictionary_value

if TYPE_CHECKING:
    from pennon.core.arrow_typing import AnyArray, AnyField

#: The largest batch that Lance gets at once.
_SLICE_BYTES = 8 * 1024 * 1024
#: A slice of one row that is larger reserves memory for its copies.
_LONG_VALUE_BYTES = 64 * 1024 * 1024


class Body(Protocol):
    """The bytes of a request, read once from start to end."""

    def read(self, size: int = -1, /) -> bytes:
        """Return up to ``size`` bytes, fewer only at the end."""


class _PrefetchedBody(io.RawIOBase):
    """A body whose first bytes were already read."""

    def __init__(self, prefix: bytes, body: Body) -> None:
        self._prefix = memoryview(prefix)
        self._body = body
        self.has_content = bool(prefix)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes | memoryview:
        """Return bytes; those of the prefix without a copy, since Arrow accepts any buffer."""
        if 0 <= size <= len(self._prefix):
            content, self._prefix = self._prefix[:size], self._prefix[size:]
            return content
        rest = self._body.read(size - len(self._prefix) if size >= 0 else -1)
        joined = bytes(self._prefix) + rest if self._prefix else rest
        self._prefix = memoryview(b"")
        return joined


class ArrowSource:
    """The batches of a request: in memory if they are small, otherwise a stream.

    Lance wraps any error of a reader in its own; ``failure`` has the original. Use the source as a context manager: it
    releases its reserved memory at the end.
    """

    def __init__(self, body: Body, small_bytes: int, limits: ArrowLimits | None = None) -> None:
        self.failure: LanceNamespaceError | None = None
        self.rows = 0
        self._small_bytes = small_bytes
        prefix = body.read(small_bytes + 1)
        self._has_small_body = len(prefix) <= small_bytes
        self._file = _PrefetchedBody(prefix, body)
        self._messages = MessageStream(self._file, limits or ArrowLimits())
        self._reader = self._open()
        #: The schema for Lance, without string views.
        self.schema: pa.Schema = without_string_views(self._reader.schema)
        fields = zip(self._reader.schema, self.schema, strict=True)
        self._conversions = [list(_conversions(given, stored)) for given, stored in fields]
        self._views = [index for index, field in enumerate(self._reader.schema) if self.schema.field(index) != field]
        #: Batches that ``is_small`` has read ahead.
        self._buffered: list[pa.RecordBatch] = []
        self._unread = self._decoded()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._messages.memory.shrink(0)

    @cached_property
    def is_small(self) -> bool:
        """Whether all batches are small, even decompressed: such a source can be read more than once."""
        size = 0
        while self._has_small_body and size <= self._small_bytes:
            batch = next(self._unread, None)
            if batch is None:
                return True
            self._buffered.append(batch)
            size += batch.nbytes
        return False

    def adapt_to(self, table: pa.Schema) -> None:
        """Convert lists of entries to a table's maps, and check values for its blob columns; call it before reading.

        Values for a blob column are checked even if the client does not declare them as blobs.
        """
        for index, given in enumerate(self.schema):
            position = table.get_field_index(given.name)
            if position < 0:
                continue
            stored = table.field(position)
            if has_blobs(stored):
                self._conversions[index].append(partial(reject_external_blobs, field=stored))
            if is_entry_list(given.type, stored.type):
                self.schema = self.schema.set(index, given.with_type(stored.type))
                self._conversions[index].append(partial(maps_from_entries, kind=stored.type))

    def table(self) -> pa.Table:
        """Return all batches as one table."""
        return pa.Table.from_batches(list(self._batches()), self.schema)

    def reader(self) -> pa.RecordBatchReader:
        """Return a reader of the batches for Lance."""
        return pa.RecordBatchReader.from_batches(self.schema, self._guarded())

    def _open(self) -> pa.RecordBatchReader:
        alignment: Any = {"ensure_alignment": pa.ipc.Alignment.DataTypeSpecific}  # type: ignore[attr-defined]  # new
        try:
            return pa.ipc.open_stream(
                pa.PythonFile(self._messages, mode="r"), options=pa.ipc.IpcReadOptions(**alignment)
            )
        except (pa.ArrowException, OSError, EOFError) as error:
            raise (_corrupt() if self._file.has_content else _missing()) from error
        except (TypeError, ValueError) as error:  # of an extension type that does not support its storage type
            raise TableSchemaValidationError(f"The schema has an invalid extension type: {error}.") from error

    def _guarded(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._batches()
        except LanceNamespaceError as error:
            self.failure = error
            raise

    def _batches(self) -> Iterator[pa.RecordBatch]:
        if self.is_small:
            for small in self._buffered:
                yield from _slices(self._converted(small))
            return
        batch: pa.RecordBatch | None
        while (batch := self._buffered.pop(0) if self._buffered else next(self._unread, None)) is not None:
            slices = list(_slices(self._converted(batch)))
            self._messages.memory.grow(_copied_bytes(slices))
            yield from slices
            batch, slices = None, []  # free its memory before the next one is read
            if not self._buffered:
                self._messages.forget_batches()

    def _decoded(self) -> Iterator[pa.RecordBatch]:
        batch: pa.RecordBatch | None
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
                self._messages.check_dictionary_value(longest_dictionary_value(column))
            self._messages.reserve(sum(string_view_bytes(batch.column(index)) for index in self._views))
            self.rows += batch.num_rows
            yield batch
            batch = None  # free its memory before the next one is read
        # Arrow takes the end of the bytes for the end of the stream, and ignores bytes after the end marker.
        if self._messages.fell_short or self._file.read(1):
            raise _corrupt()

    def _converted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for index, conversions in enumerate(self._conversions):
            if conversions:
                values: AnyArray = batch.column(index)
                for convert in conversions:
                    values = convert(values)
                batch = batch.set_column(index, self.schema.field(index), values)
        return batch


def _conversions(given: AnyField, stored: AnyField) -> Iterator[Callable[[AnyArray], AnyArray]]:
    """Yield the conversions of a column's values to ones that Lance can store."""
    if given.type != stored.type:
        yield lambda values: values.cast(stored.type)
    if is_blob(stored):
        yield null_empty_blobs
    if has_blobs(stored):
        yield partial(reject_external_blobs, field=stored)
    if contains_type(pa.types.is_decimal, stored.type):
        # Lance needs an alignment of 16 bytes where Arrow guarantees 8; a copy is aligned.
        yield lambda values: pa.concat_arrays([values, values.slice(0, 0)])


def _slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Split a batch: Lance writes each batch as one page, and a reader holds a whole page in memory."""
    # Without dictionaries, which all slices share.
    size = sum(
        column.indices.nbytes if isinstance(column, pa.DictionaryArray) else column.nbytes for column in batch.columns
    )
    rows = max(batch.num_rows * _SLICE_BYTES // max(size, 1), 1)
    for start in range(0, max(batch.num_rows, 1), rows):
        yield batch.slice(start, rows)


def _copied_bytes(slices: list[pa.RecordBatch]) -> int:
    """Return the bytes that Lance needs to encode the largest value of a batch: it copies a long one twice."""
    largest = max(each.nbytes for each in slices)
    return 2 * largest if largest > _LONG_VALUE_BYTES else 0


def _corrupt() -> InvalidInputError:
    return InvalidInputError("The body is not a complete Arrow stream: it is truncated or corrupt.")


def _missing() -> InvalidInputError:
    return InvalidInputError(
        "The body is empty, but an Arrow stream is required. To send no rows, send a stream without batches."
    )


def source_of(content: bytes, small_bytes: int = 2**62) -> ArrowSource:
    """Return a source over bytes in memory."""
    return ArrowSource(io.BytesIO(content), small_bytes)
