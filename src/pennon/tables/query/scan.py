"""Queries: from the fields of a request to one of Lance's scanners."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
from lance.dataset import ColumnOrdering
from lance_namespace.errors import InvalidInputError

from pennon.tables.field_paths import find_field, join_path
from pennon.tables.lance_errors import typed_errors
from pennon.tables.query.chunked_scan import Slices
from pennon.tables.query.full_text import FullText, build_full_text

if TYPE_CHECKING:
    from pennon.tables.datasets import Handle
    from pennon.tables.query.first_rows import Head

#: From here on a limit means "all": clients write the largest integer they have.
_UNLIMITED = 2**31
_BATCH_BYTES = 4 * 1024 * 1024
#: What a scan reads ahead. More makes it slower: memory that was just used is still in the processor's cache.
_IO_BUFFER_BYTES = 16 * 1024 * 1024
#: So many rows are taken by their places, without a plan.
_FEW_ROWS = 256


@dataclass(frozen=True)
class Query:
    """What a query asks for, whatever client asked."""

    vectors: list[Any] | None = None
    vector_column: str | None = None
    k: int | None = None
    offset: int | None = None
    filter: str | None = None
    prefilter: bool = True
    columns: list[str] | dict[str, str] | None = None
    full_text: FullText | None = None
    order_by: list[tuple[str, bool, bool]] = field(default_factory=list)
    with_row_id: bool = False
    fast_search: bool = False
    nearest: dict[str, Any] = field(default_factory=dict)
    version: int | None = None
    branch: str = ""
    #: Why this must not run inside the API process; none where it may.
    demanding: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the query as JSON has it."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """Return a query that was JSON."""
        text, nearest = value["full_text"], value["nearest"]
        if "distance_range" in nearest:
            nearest = {**nearest, "distance_range": tuple(nearest["distance_range"])}
        full_text = None if text is None else FullText(**{**text, "columns": tuple(text["columns"])})
        order = [(name, ascending, nulls_first) for name, ascending, nulls_first in value["order_by"]]
        return cls(**{**value, "full_text": full_text, "nearest": nearest, "order_by": order})


def open_reader(handle: Handle, query: Query, *, near: bool) -> Any:
    """Return the batches that answer a query; of a plain scan, none is read before it is asked for.

    ``near`` tells that storage answers at once, so that nothing is lost by not reading ahead.
    """
    dataset, limit = handle.dataset, _limit(query.k)
    if not near or not _is_plain(query) or limit == 0:
        return open_scan(dataset, query)
    if asks_for_few_rows(query) and _names_columns(handle.head, query):
        rows = _row_range(query)
        if handle.head.holds(rows):
            return read_head(handle.head, query)
        rows = range(rows.start, min(rows.stop, dataset.count_rows()))
        if rows:
            with typed_errors():
                return dataset.take(list(rows), columns=query.columns).to_reader()
    options = {"columns": _columns(dataset, query), "with_row_id": query.with_row_id}

    def scan(start: int, rows: int) -> Any:
        return dataset.scanner(offset=start, limit=rows, batch_size=rows, batch_readahead=1, **options).to_reader()

    with typed_errors():
        return Slices(scan, query.offset or 0, limit)


def open_scan(dataset: Any, query: Query) -> Any:
    """Return the batches that answer a query as Lance plans it."""
    with typed_errors():
        reader = build_scanner(dataset, query).to_reader()
    if _sorts_by_others(query):
        reader = _without_row_ids(reader)
    return _skip_of_each(reader, query.offset) if query.offset and _asks_several(dataset, query) else reader


def is_in_head(handle: Handle, query: Query) -> bool:
    """Tell whether a query for a few rows is answered by first rows of a table that are known to be small."""
    head = handle.known_head
    return head is not None and _names_columns(head, query) and head.holds(_row_range(query))


def read_head(head: Head, query: Query) -> Any:
    """Return the batches of a query that first rows answer."""
    with typed_errors():
        return head.take(_row_range(query), query.columns).to_reader()  # type: ignore[arg-type]  # names, as was asked


def asks_for_few_rows(query: Query) -> bool:
    """Tell whether a query is answered by a few rows as they stand in the table."""
    return _is_plain(query) and 0 < (_limit(query.k) or 0) <= _FEW_ROWS


def _row_range(query: Query) -> range:
    offset = query.offset or 0
    return range(offset, offset + (_limit(query.k) or 0))


def build_scanner(dataset: Any, query: Query) -> Any:
    """Return the scanner that answers a query on a dataset."""
    limit = _limit(query.k)
    options: dict[str, Any] = {
        "filter": query.filter or None,
        "columns": _columns(dataset, query),
        "offset": None if _asks_several(dataset, query) else query.offset or None,
        "with_row_id": query.with_row_id or _sorts_by_others(query),
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
    if query.vectors is None and query.full_text is None:
        options["batch_size_bytes"] = _BATCH_BYTES  # where an answer may be large; it makes a search slower
    else:
        options["prefilter"] = query.prefilter
    with typed_errors():
        return dataset.scanner(**options)


def _sorts_by_others(query: Query) -> bool:
    """Tell whether rows are sorted by what the answer lacks: Lance then needs row ids, and asks for none by itself."""
    if query.with_row_id or query.columns is None or "_rowid" in query.columns:
        return False
    return any(name not in query.columns for name, _, _ in query.order_by)


def _without_row_ids(reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    schema = reader.schema.remove(reader.schema.get_field_index("_rowid"))
    return pa.RecordBatchReader.from_batches(schema, (batch.drop_columns(["_rowid"]) for batch in reader))


def _asks_several(dataset: Any, query: Query) -> bool:
    """Tell whether several vectors are searched for, each with an answer of its own, and not rows of several each."""
    if not query.vectors or not isinstance(query.vectors[0], list):
        return False
    kind = find_field(dataset.schema, _vector_column(dataset, query)).type
    return not (pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _skip_of_each(reader: pa.RecordBatchReader, offset: int) -> pa.RecordBatchReader:
    """Leave out the first rows of the answer to each vector; Lance would do so with the first of all."""
    seen: Counter[int] = Counter()

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in reader:
            kept = []
            for place, number in enumerate(batch["query_index"].to_pylist()):
                seen[number] += 1
                kept += [place] if seen[number] > offset else []
            yield batch.take(pa.array(kept, pa.int64()))

    return pa.RecordBatchReader.from_batches(reader.schema, batches())


def _is_plain(query: Query) -> bool:
    """Tell whether a query is answered by rows as they stand in the table."""
    searches = query.vectors is not None or query.full_text is not None or query.fast_search
    return not (searches or query.filter or query.order_by)


def _names_columns(head: Head, query: Query) -> bool:
    """Tell whether the answer consists of columns of the table alone."""
    if query.with_row_id or isinstance(query.columns, dict):
        return False
    return query.columns is None or head.names.issuperset(query.columns)


def _vector_column(dataset: Any, query: Query) -> str:
    """Return the column that a query searches."""
    vectors = query.vectors or []
    one = vectors[0] if vectors and isinstance(vectors[0], list) else vectors
    return find_vector_column(dataset.schema, query.vector_column, len(one))


def find_vector_column(schema: pa.Schema, named: str | None, width: int) -> str:
    """Return the column to search: the one that is named, or the only one there is, or the only one of the width."""
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


def _vector_widths(fields: Iterable[pa.Field], parents: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    """Yield the path and the width of each vector column, also of those inside structs."""
    for item in fields:
        path = (*parents, item.name)
        width = _vector_width(item.type)
        if width is not None:
            yield join_path(path), width
        elif pa.types.is_struct(item.type):
            yield from _vector_widths(item.type, path)


def _vector_width(kind: pa.DataType) -> int | None:
    """Return how many numbers the vectors of a type have; none for a type of no vectors."""
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


def _columns(dataset: Any, query: Query) -> list[str] | dict[str, str] | None:
    known = {*dataset.schema.names, "_distance", "_score", "query_index"}
    known.update(query.columns if isinstance(query.columns, dict) else ())
    for name in (*(query.columns or ()), *(name for name, _, _ in query.order_by)):
        if name not in known and not name.startswith("_row"):
            find_field(dataset.schema, name)
    return query.columns


def _nearest(dataset: Any, query: Query, limit: int | None) -> dict[str, Any]:
    column = _vector_column(dataset, query)
    vectors = _vectors(query.vectors or [])
    k = limit if limit is not None else dataset.count_rows()
    return {"column": column, "q": vectors, "k": max(k + (query.offset or 0), 1), **query.nearest}


def _vectors(given: list[Any]) -> Any:
    try:
        vectors = np.asarray(given, dtype=np.float32)
    except (ValueError, TypeError):
        raise InvalidInputError("The query vector must be numbers, all vectors of one length.") from None
    if vectors.ndim not in {1, 2} or vectors.size == 0:
        raise InvalidInputError("The query vector must be a list of numbers, or a list of such lists.")
    if not math.isfinite(float(vectors.sum())) and not np.isfinite(vectors).all():
        raise InvalidInputError("The query vector holds values that are not finite.")
    return vectors
