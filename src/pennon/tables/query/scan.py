"""Queries: the fields of a request, and the Lance scanner that runs them."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Set
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias

import numpy as np
import pyarrow as pa
from lance.dataset import ColumnOrdering
from lance_namespace.errors import InvalidInputError

from pennon.tables.field_paths import find_field, join_path
from pennon.tables.lance_errors import typed_errors
from pennon.tables.query.chunked_scan import ChunkedScan
from pennon.tables.query.full_text import FullText, build_full_text
from pennon.tables.query.row_sizes import MAX_VALUE_BYTES, RowSizes, batch_rows_for

if TYPE_CHECKING:
    from lance import LanceDataset
    from lance.dataset import LanceScanner
    from numpy.typing import NDArray

    from pennon.core.arrow_typing import AnyField
    from pennon.tables.datasets import Handle
    from pennon.tables.query.first_rows import FirstRowsCache

#: A larger limit means "all": clients send the largest integer they have.
_UNLIMITED = 2**31
_BATCH_BYTES = 4 * 1024 * 1024
#: Read-ahead of a scan. More is slower: recently used memory is still in the processor's cache.
_IO_BUFFER_BYTES = 16 * 1024 * 1024
#: Up to this many rows are taken by position, without a plan.
_MAX_POINT_ROWS = 256
#: Result rows up to this size together are read at once.
_MAX_RESULT_BYTES = 64 * 1024 * 1024
_COLUMN_NAME = re.compile(r"\s*(?:`[^`]*`|\w+)\s*")

#: The selected columns: names, or names and their SQL expressions. None selects all.
Selection: TypeAlias = list[str] | dict[str, str] | None


class BatchStream(Protocol):
    """The result of a query: an iterator over batches of one schema."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of the batches."""

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Iterate over the batches."""

    def __next__(self) -> pa.RecordBatch:
        """Return the next batch."""


@dataclass(frozen=True)
class TableQuery:
    """A query, independent of the client's dialect."""

    #: One vector or a list of vectors, as the client sent them.
    vectors: list[object] | None = None
    vector_column: str | None = None
    k: int | None = None
    offset: int | None = None
    filter: str | None = None
    prefilter: bool = True
    columns: Selection = None
    full_text: FullText | None = None
    order_by: list[tuple[str, bool, bool]] = field(default_factory=list)
    with_row_id: bool = False
    fast_search: bool = False
    #: Options of a vector search.
    nearest: dict[str, object] = field(default_factory=dict)
    version: int | None = None
    branch: str = ""
    #: Why the query must run in a query process; None if the API process may run it.
    isolation_reason: str | None = None
    #: How many copies of their columns its expressions may make for each row.
    copies: int = 1
    #: The names in conditions and columns that may convert values of one type to another.
    converted: tuple[str, ...] = ()
    #: How many rows to read at a time; None for as many as Lance does.
    batch_rows: int | None = None

    def to_json(self) -> dict[str, object]:
        """Return the query as a JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """Return the query of a JSON object."""
        text, nearest = value["full_text"], value["nearest"]
        if "distance_range" in nearest:
            nearest = {**nearest, "distance_range": tuple(nearest["distance_range"])}
        full_text = None if text is None else FullText(**{**text, "columns": tuple(text["columns"])})
        order = [(name, ascending, nulls_first) for name, ascending, nulls_first in value["order_by"]]
        return cls(**{**value, "full_text": full_text, "nearest": nearest, "order_by": order})


def fit_to_rows(query: TableQuery, sizes: RowSizes) -> TableQuery:
    """Return a query that reads as many rows at a time as fit into memory, in a query process if values are large."""
    evaluated = sizes.bytes_named_in(query.filter or "")
    if query.columns is None:
        selected = sizes.row_bytes
    elif isinstance(query.columns, dict):
        selected = sum(map(sizes.bytes_named_in, query.columns.values()))
        evaluated += sum(map(sizes.bytes_named_in, filter(_is_expression, query.columns.values())))
    else:
        selected = sizes.selected_bytes(query.columns)
    evaluated *= query.copies
    limit = _limit(query.k)
    has_few_rows = limit is not None and not query.order_by
    if has_few_rows and selected * _result_rows(query, limit or 0) <= _MAX_RESULT_BYTES:
        row_bytes = evaluated  # the few rows of the result are read after the filter or search
    else:
        row_bytes = selected + evaluated + sizes.selected_bytes(name for name, _, _ in query.order_by)
    reason = query.isolation_reason
    if evaluated > MAX_VALUE_BYTES:
        reason = reason or f"its SQL on values of {evaluated} bytes"
    batch_rows = batch_rows_for(row_bytes)
    if batch_rows is None and reason == query.isolation_reason:
        return query
    return replace(query, batch_rows=batch_rows, isolation_reason=reason)


def isolate_conversions(query: TableQuery, text_columns: Set[str]) -> TableQuery:
    """Return a query that runs in a query process if it may convert texts: a failed conversion can end the process."""
    if query.isolation_reason is not None or text_columns.isdisjoint(query.converted):
        return query
    return replace(query, isolation_reason="its conversion of texts")


def _is_expression(column: str) -> bool:
    return _COLUMN_NAME.fullmatch(column) is None


def _result_rows(query: TableQuery, limit: int) -> int:
    vectors = len(query.vectors) if query.vectors and isinstance(query.vectors[0], list) else 1
    return (limit + (query.offset or 0)) * vectors


def count_rows(dataset: LanceDataset, condition: str, batch_rows: int | None) -> int:
    """Return how many rows fulfil a condition."""
    with typed_errors():
        if batch_rows is None:
            return dataset.count_rows(condition or None)
        return dataset.scanner([], condition, with_row_id=True, batch_size=batch_rows).count_rows()


def check_filter(scanner: LanceScanner) -> None:
    """Evaluate the filter of a scanner, and raise its errors.

    A scan whose filter fails on a value with a NUL character aborts the process (see ``query.expressions``); a count
    raises the error.
    """
    scanner.count_rows()


def open_reader(handle: Handle, query: TableQuery, *, is_local: bool) -> BatchStream:
    """Return the result of a query; a plain scan of local storage reads each batch on demand.

    ``is_local`` is whether storage has so little latency that reading ahead gains nothing.
    """
    dataset, limit, batch_rows = handle.dataset, _limit(query.k), query.batch_rows
    if not is_local or not _is_plain_scan(query) or limit == 0:
        return open_scan(dataset, query)
    if batch_rows is None and is_point_read(query) and _selects_stored_columns(handle.first_rows, query):
        rows = _row_range(query)
        if handle.first_rows.can_take(rows):
            return read_first_rows(handle.first_rows, query)
        rows = range(rows.start, min(rows.stop, dataset.count_rows()))
        if rows:
            with typed_errors():
                return dataset.take(list(rows), columns=query.columns).to_reader()
    columns, with_row_id = _columns(dataset, query), query.with_row_id

    def scan(start: int, rows: int) -> pa.RecordBatchReader:
        return dataset.scanner(
            columns, offset=start, limit=rows, batch_size=rows, batch_readahead=1, with_row_id=with_row_id
        ).to_reader()

    with typed_errors():
        return ChunkedScan(scan, query.offset or 0, limit, max_rows=batch_rows)


def open_scan(dataset: LanceDataset, query: TableQuery) -> pa.RecordBatchReader:
    """Return the result of a query as Lance plans it."""
    with typed_errors():
        reader = build_scanner(dataset, query).to_reader()
    if _needs_row_ids(query):
        reader = _without_row_ids(reader)
    return _skip_per_vector(reader, query.offset) if query.offset and _has_many_vectors(dataset, query) else reader


def is_read_from_first_rows(handle: Handle, query: TableQuery) -> bool:
    """Return whether a query is a point read that needs only a table's first rows, which are small on storage."""
    if not is_point_read(query) or not _selects_stored_columns(handle.first_rows, query):
        return False
    return handle.first_rows.can_take(_row_range(query))


def can_read_first_rows(handle: Handle, query: TableQuery) -> bool:
    """Return whether a point read needs only a table's first rows, which are open and known to be small."""
    first_rows = handle.cached_first_rows
    return (
        first_rows is not None and _selects_stored_columns(first_rows, query) and first_rows.can_take(_row_range(query))
    )


def read_first_rows(first_rows: FirstRowsCache, query: TableQuery) -> pa.RecordBatchReader:
    """Return the result of a query that needs only a table's first rows."""
    names = None if query.columns is None else list(query.columns)
    with typed_errors():
        return first_rows.take(_row_range(query), names).to_reader()


def is_point_read(query: TableQuery) -> bool:
    """Return whether a query reads a few rows by position, without search, filter or order."""
    return _is_plain_scan(query) and 0 < (_limit(query.k) or 0) <= _MAX_POINT_ROWS


def _row_range(query: TableQuery) -> range:
    offset = query.offset or 0
    return range(offset, offset + (_limit(query.k) or 0))


def build_scanner(dataset: LanceDataset, query: TableQuery) -> LanceScanner:
    """Return the scanner that runs a query on a dataset."""
    limit = _limit(query.k)
    options: dict[str, Any] = {
        "filter": query.filter or None,
        "columns": _columns(dataset, query),
        "offset": None if _has_many_vectors(dataset, query) else query.offset or None,
        "with_row_id": query.with_row_id or _needs_row_ids(query),
        "io_buffer_size": _IO_BUFFER_BYTES,
    }
    if query.fast_search:
        options["fast_search"] = True
    if query.vectors is not None:
        options["nearest"] = _nearest(dataset, query, limit)
    else:
        options["limit"] = limit
    if limit == 0:
        options["limit"] = 0
    if query.full_text is not None:
        options["full_text_query"] = build_full_text(dataset, query.full_text)
    if query.order_by:
        options["order_by"] = [ColumnOrdering(*order) for order in query.order_by]
    if query.batch_rows is not None:
        options["batch_size"] = query.batch_rows
    if query.vectors is None and query.full_text is None:
        options["batch_size_bytes"] = _BATCH_BYTES  # only where a result may be large: it slows searches down
    else:
        options["prefilter"] = query.prefilter
    with typed_errors():
        return dataset.scanner(**options)


def _needs_row_ids(query: TableQuery) -> bool:
    """Return whether rows are sorted by columns that are not selected: Lance then needs row ids, but adds none."""
    if query.with_row_id or query.columns is None or "_rowid" in query.columns:
        return False
    return any(name not in query.columns for name, _, _ in query.order_by)


def _without_row_ids(reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    schema = reader.schema.remove(reader.schema.get_field_index("_rowid"))
    return pa.RecordBatchReader.from_batches(schema, (batch.drop_columns(["_rowid"]) for batch in reader))


def _has_many_vectors(dataset: LanceDataset, query: TableQuery) -> bool:
    """Return whether a query has several vectors with a result each, and not one multi-vector value."""
    if not query.vectors or not isinstance(query.vectors[0], list):
        return False
    kind = find_field(dataset.schema, _vector_column(dataset, query)).type
    return not (pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _skip_per_vector(reader: pa.RecordBatchReader, offset: int) -> pa.RecordBatchReader:
    """Skip the first rows of each vector's result; Lance would skip those of the whole result."""
    seen: Counter[object] = Counter()

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in reader:
            kept = []
            for position, query_index in enumerate(batch["query_index"].to_pylist()):
                seen[query_index] += 1
                kept += [position] if seen[query_index] > offset else []
            yield batch.take(pa.array(kept, pa.int64()))

    return pa.RecordBatchReader.from_batches(reader.schema, batches())


def _is_plain_scan(query: TableQuery) -> bool:
    """Return whether a query has no search, filter or order."""
    searches = query.vectors is not None or query.full_text is not None or query.fast_search
    return not (searches or query.filter or query.order_by)


def _selects_stored_columns(first_rows: FirstRowsCache, query: TableQuery) -> bool:
    """Return whether a query selects only top-level columns of the table."""
    if query.with_row_id or isinstance(query.columns, dict):
        return False
    return query.columns is None or first_rows.names.issuperset(query.columns)


def _vector_column(dataset: LanceDataset, query: TableQuery) -> str:
    """Return the column that a query searches."""
    vectors = query.vectors or []
    one = vectors[0] if vectors and isinstance(vectors[0], list) else vectors
    return find_vector_column(dataset.schema, query.vector_column, len(one))


def find_vector_column(schema: pa.Schema, named: str | None, width: int) -> str:
    """Return the column to search: the named one, the only one of this width, or the only vector column."""
    if named:
        find_field(schema, named)
        return named
    widths = dict(_vector_widths(schema, ()))
    found = [path for path, size in widths.items() if size == width] or list(widths)
    if len(found) == 1:
        return found[0]
    if "vector" in found:
        return "vector"
    if not found:
        raise InvalidInputError("The table has no vector column to search.")
    raise InvalidInputError(f"The table has several vector columns ({', '.join(found)}): name one in vector_column.")


def _vector_widths(fields: Iterable[AnyField], parents: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    """Yield the path and the width of each vector column, including those inside structs."""
    for item in fields:
        path = (*parents, item.name)
        width = _vector_width(item.type)
        if width is not None:
            yield join_path(path), width
        elif pa.types.is_struct(item.type):
            yield from _vector_widths(item.type, path)


def _vector_width(kind: pa.DataType) -> int | None:
    """Return the number of dimensions of a vector type; None for other types."""
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pa.types.is_fixed_size_list(kind):
        numbers = pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)
        return int(kind.list_size) if numbers else None
    return _vector_width(kind.value_type) if pa.types.is_list(kind) or pa.types.is_large_list(kind) else None


def _limit(k: int | None) -> int | None:
    if k is None or k >= _UNLIMITED:
        return None
    if k < 0:
        raise InvalidInputError(f"k is {k}; it must be 0 or more.")
    return k


def _columns(dataset: LanceDataset, query: TableQuery) -> Selection:
    """Return the selected columns after checking that all columns of the query exist."""
    known = {*dataset.schema.names, "_distance", "_score", "query_index"}
    known.update(query.columns if isinstance(query.columns, dict) else ())
    for name in (*(query.columns or ()), *(name for name, _, _ in query.order_by)):
        if name not in known and not name.startswith("_row"):
            find_field(dataset.schema, name)
    return query.columns


def _nearest(dataset: LanceDataset, query: TableQuery, limit: int | None) -> dict[str, object]:
    column = _vector_column(dataset, query)
    vectors = _vectors(query.vectors or [])
    k = limit if limit is not None else dataset.count_rows()
    return {"column": column, "q": vectors, "k": max(k + (query.offset or 0), 1), **query.nearest}


def _vectors(given: list[object]) -> NDArray[np.float32]:
    try:
        vectors = np.asarray(given, dtype=np.float32)
    except (ValueError, TypeError):
        raise InvalidInputError(
            "The query vector must contain numbers only, and all vectors the same number."
        ) from None
    if vectors.ndim not in {1, 2} or vectors.size == 0:
        raise InvalidInputError("The query vector must be a list of numbers, or a list of such lists.")
    if not math.isfinite(float(vectors.sum())) and not np.isfinite(vectors).all():
        raise InvalidInputError("The query vector has values that are not finite.")
    return vectors
