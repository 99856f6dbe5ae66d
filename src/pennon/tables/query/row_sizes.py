"""The size of a table's rows in memory, from which scans choose the number of rows in a batch.

Lance reads 8192 rows at a time. With values of a megabyte, such as images, that takes 8 GB of memory, whatever limit on
the bytes of a batch it is given; and a value of a dictionary is written out for each of the rows by every expression.
Files on storage do not tell: repeated values take no space there. So a few rows of each version are read.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from lance_namespace.errors import InvalidInputError

from pennon.tables.blobs import has_blobs
from pennon.tables.lance_errors import typed_errors
from pennon.tables.query.expressions import count_copies

if TYPE_CHECKING:
    from lance import LanceDataset
    from lance.dataset import DeleteResult, UpdateResult

    from pennon.core.arrow_typing import AnyArray, AnyChunkedArray, AnyField

#: The rows of a batch, unless a scan asks for others.
DEFAULT_BATCH_ROWS = 8192
#: Default batches up to this size are left alone: smaller ones cost time (17 µs each).
_MAX_DEFAULT_BATCH_BYTES = 64 * 1024 * 1024
#: Several batches are in memory at once.
_BATCH_BYTES = 16 * 1024 * 1024
#: A value that is larger than this is not given to expressions inside the API process.
MAX_VALUE_BYTES = 8 * 1024 * 1024
#: What a change may read into one batch; it takes twice as much memory.
_MAX_CHANGED_BYTES = 1024**3
_SAMPLE_ROWS = 16
#: In a fragment with deleted rows, Lance counts rows to find one: 0.5 s for 4 million rows, and a manifest may claim
#: 4 billion. No rows of larger fragments with deleted rows are in the sample.
_MAX_COUNTED_ROWS = 4_000_000
#: When the first row is larger than this, no others are read.
_MAX_FIRST_ROW_BYTES = 1024 * 1024
_BLOB_DESCRIPTOR_BYTES = 64
#: The columns with dictionaries of larger tables are not read whole: 4 million rows take about 40 ms.
_MAX_SCANNED_ROWS = 4_000_000
#: Texts and bytes, which alone have values of any length.
_LENGTHY = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)

#: The attribute of a dataset that keeps its version and the sizes of its rows.
_KEPT = "_pennon_row_sizes"

#: Returns the bytes of a value of each column.
_Measure: TypeAlias = Callable[[list[str]], dict[str, int]]


class RowSizes:
    """The bytes of one value of each column, on average; of a dictionary, those of the longest value.

    Columns whose values vary are measured when a query needs them: the file of another one may be missing.
    """

    def __init__(
        self, columns: Mapping[str, int | None], measure: _Measure | None = None, *, is_bound: bool = False
    ) -> None:
        #: Whether these are upper bounds, derived from the sizes of an earlier version.
        self.is_bound = is_bound
        self._sizes = dict(columns)
        self._names = {name.lower(): name for name in columns}
        self._measure = measure

    @property
    def row_bytes(self) -> int:
        """The bytes of a row."""
        return self._total(self._sizes)

    def selected_bytes(self, names: Iterable[str]) -> int:
        """Return the bytes that columns have in a row; fields of structs count as the whole column."""
        found = []
        for name in names:
            plain = name.replace("`", "").lower()
            column = self._names.get(plain) or self._names.get(plain.partition(".")[0])
            found += [] if column is None else [column]
        return self._total(found)

    def bytes_named_in(self, sql: str) -> int:
        """Return the bytes of the columns that an expression names, or that it may name."""
        text = sql.lower()
        return self._total(name for name in self._sizes if name.lower() in text) if text else 0

    def bytes_evaluated_by(self, sql: str) -> int:
        """Return the bytes that an expression may need for each row: the columns that it names, and its copies."""
        named = self.bytes_named_in(sql)
        return named * count_copies(sql) if named else 0

    def after_update(self, dataset: LanceDataset, columns: Iterable[str]) -> RowSizes:
        """Return the sizes in the version that an update made: only the columns that it set have other values."""
        changed = {self._names.get(column.replace("`", "").partition(".")[0].lower()) for column in columns}
        fixed = _fixed_sizes(dataset)
        if None in changed or fixed.keys() != self._sizes.keys():
            return measure_rows(dataset)
        sizes = {name: fixed[name] if name in changed else size for name, size in self._sizes.items()}
        return RowSizes(sizes, partial(_measure_columns, copy(dataset)), is_bound=True)

    def after_delete(self, dataset: LanceDataset, rows_before: int) -> RowSizes:
        """Return bounds of the sizes in the version that a delete made: the rows left may be the largest."""
        rows = dataset.count_rows()
        fixed = _fixed_sizes(dataset)
        if not rows or rows > rows_before or fixed.keys() != self._sizes.keys():
            return measure_rows(dataset)
        sizes = {
            name: size if size is None or fixed[name] is not None else -(-size * rows_before // rows)
            for name, size in self._sizes.items()
        }
        return RowSizes(sizes, partial(_measure_columns, copy(dataset)), is_bound=True)

    def _total(self, names: Iterable[str]) -> int:
        names = list(names)
        unknown = [name for name in dict.fromkeys(names) if self._sizes[name] is None]
        if unknown and self._measure is not None:
            self._sizes.update(self._measure(unknown))
        return sum(self._sizes[name] or 0 for name in names)


def batch_rows_for(row_bytes: int) -> int | None:
    """Return how many rows of a size to read at a time; None for as many as Lance does."""
    if row_bytes * DEFAULT_BATCH_ROWS <= _MAX_DEFAULT_BATCH_BYTES:
        return None
    return max(_BATCH_BYTES // row_bytes, 1)


def measure_rows(dataset: LanceDataset) -> RowSizes:
    """Return the sizes of a dataset's rows; those that vary are measured on demand, from a few rows."""
    return RowSizes(_fixed_sizes(dataset), partial(_measure_columns, copy(dataset)))


def row_sizes_of(dataset: LanceDataset) -> RowSizes:
    """Return the sizes that are kept with a dataset for its version, or measure and keep them.

    To measure a text column takes 4 ms and a dictionary of 100,000 rows another 4 ms, beside 12 ms for the update and
    9 ms for the delete of a row. So writers keep the sizes from one version to the next.
    """
    kept: tuple[int, RowSizes] | None = dataset.__dict__.get(_KEPT)
    if kept is not None and kept[0] == dataset.version:
        return kept[1]
    sizes = measure_rows(dataset)
    keep_row_sizes(dataset, sizes)
    return sizes


def keep_row_sizes(dataset: LanceDataset, sizes: RowSizes) -> None:
    """Keep sizes with a dataset until its version changes."""
    dataset.__dict__[_KEPT] = (dataset.version, sizes)


def _fixed_sizes(dataset: LanceDataset) -> dict[str, int | None]:
    return {field.name: _fixed_bytes(field) for field in dataset.schema}


def _measure_columns(dataset: LanceDataset, columns: list[str]) -> dict[str, int]:
    schema = dataset.schema
    with typed_errors():
        sizes = _sample(dataset, columns)
        _scan_dictionaries(dataset, [name for name in columns if has_dictionary(schema.field(name).type)], sizes)
    return sizes


def update_rows(dataset: LanceDataset, updates: Mapping[str, str], where: str | None) -> UpdateResult:
    """Update rows, unless that would not fit into memory: Lance writes the rows that it changes in batches of 8192."""
    sizes = _check_sizes(dataset, partial(_check_rewritten_rows, dataset, where, list(updates.values())))
    before = dataset.version
    result = dataset.update(dict(updates), where=where)
    # Otherwise nothing was written, or another writer has committed in between.
    if dataset.version == before + 1:
        keep_row_sizes(dataset, sizes.after_update(dataset, updates))
    return result


def delete_rows(dataset: LanceDataset, condition: str) -> DeleteResult:
    """Delete rows, unless the columns of the condition would not fit into memory."""
    sizes = _check_sizes(dataset, partial(_check_condition, dataset, condition))
    before, rows = dataset.version, dataset.count_rows()
    result = dataset.delete(condition)
    if dataset.version == before + 1:
        keep_row_sizes(dataset, sizes.after_delete(dataset, rows))
    return result


def check_merged_columns(dataset: LanceDataset, keys: Iterable[str], conditions: Iterable[str]) -> None:
    """Refuse an upsert if its keys or the columns of its conditions would not fit into memory."""
    keys, conditions = " ".join(keys), list(conditions)

    def check(sizes: RowSizes) -> None:
        evaluated = sum(map(sizes.bytes_evaluated_by, conditions))
        _check_evaluated_bytes(dataset, sizes.bytes_named_in(keys) + evaluated)

    _check_sizes(dataset, check)


def _check_sizes(dataset: LanceDataset, check: Callable[[RowSizes], None]) -> RowSizes:
    """Check the sizes of a dataset's rows and return them; upper bounds that are too large are measured again."""
    sizes = row_sizes_of(dataset)
    try:
        check(sizes)
    except InvalidInputError:
        if not sizes.is_bound:
            raise
        sizes = measure_rows(dataset)
        keep_row_sizes(dataset, sizes)
        check(sizes)
    return sizes


def _check_rewritten_rows(dataset: LanceDataset, where: str | None, values: Iterable[str], sizes: RowSizes) -> None:
    row_bytes = sizes.row_bytes + sum(map(sizes.bytes_evaluated_by, values))
    _check_condition(dataset, where or "", sizes)
    if row_bytes * min(dataset.count_rows(), DEFAULT_BATCH_ROWS) <= _MAX_CHANGED_BYTES:
        return
    batch_rows = batch_rows_for(sizes.bytes_evaluated_by(where or "")) or DEFAULT_BATCH_ROWS
    rows = dataset.scanner([], where, with_row_id=True, batch_size=batch_rows).count_rows()
    if row_bytes * rows > _MAX_CHANGED_BYTES:
        raise InvalidInputError(
            f"The update would rewrite {rows} rows of about {row_bytes} bytes; it may hold {_MAX_CHANGED_BYTES} bytes. "
            f"Update {max(_MAX_CHANGED_BYTES // row_bytes, 1)} rows at a time, with a narrower predicate."
        )


def _check_condition(dataset: LanceDataset, condition: str, sizes: RowSizes) -> None:
    _check_evaluated_bytes(dataset, sizes.bytes_evaluated_by(condition))


def _check_evaluated_bytes(dataset: LanceDataset, row_bytes: int) -> None:
    rows = min(dataset.count_rows(), DEFAULT_BATCH_ROWS)
    if row_bytes * rows > _MAX_CHANGED_BYTES:
        raise InvalidInputError(
            f"The SQL evaluates about {row_bytes} bytes for each row, {rows} rows at a time; a change may hold "
            f"{_MAX_CHANGED_BYTES} bytes. Query the rows, and change them by a column with smaller values."
        )


def longest_dictionary_value(values: AnyArray) -> int:
    """Return the bytes of the longest value in the dictionaries of a column, at any depth."""
    kind = values.type
    if isinstance(values, pa.ExtensionArray):
        return longest_dictionary_value(values.storage)
    if isinstance(values, pa.StructArray):
        return max(map(longest_dictionary_value, values.flatten()), default=0)
    if isinstance(values, pa.MapArray):
        return max(longest_dictionary_value(values.keys), longest_dictionary_value(values.items))
    if isinstance(values, pa.ListArray | pa.LargeListArray | pa.FixedSizeListArray):
        return longest_dictionary_value(values.values)
    if not isinstance(values, pa.DictionaryArray):
        return 0
    dictionary = values.dictionary
    if any(is_kind(kind.value_type) for is_kind in _LENGTHY):
        return pc.max(pc.binary_length(dictionary)).as_py() or 0  # type: ignore[call-overload]  # checked above
    return -(-dictionary.nbytes // max(len(dictionary), 1))


def has_dictionary(kind: pa.DataType) -> bool:
    """Return whether a type is a dictionary, or has one inside."""
    if isinstance(kind, pa.BaseExtensionType):
        return has_dictionary(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return True
    return any(has_dictionary(kind.field(index).type) for index in range(kind.num_fields))


def _scan_dictionaries(dataset: LanceDataset, columns: list[str], sizes: dict[str, int]) -> None:
    """Look at all dictionaries: each page has its own, and one long value among many pages is enough."""
    if not columns or dataset.count_rows() > _MAX_SCANNED_ROWS:
        return
    rows = batch_rows_for(sum(sizes[name] for name in columns)) or DEFAULT_BATCH_ROWS
    for batch in dataset.scanner(columns=columns, batch_size=rows, batch_readahead=1).to_reader():
        for name in columns:
            sizes[name] = max(sizes[name], longest_dictionary_value(batch[name]))


def _sample(dataset: LanceDataset, columns: list[str]) -> dict[str, int]:
    rows = dataset.count_rows()
    if not rows:
        return dict.fromkeys(columns, 0)
    found = dataset.to_table(columns=columns, limit=1)
    others = sorted({_random_row(rows, part) for part in range(min(_SAMPLE_ROWS, rows))} | {rows - 1})
    slow = _slow_ranges(dataset)
    others = [row for row in others if not any(start <= row < end for start, end in slow)]
    if found.nbytes <= _MAX_FIRST_ROW_BYTES and others:
        found = pa.concat_tables([found, dataset.take(others, columns=columns)])
    return {name: _value_bytes(found[name]) for name in columns}


def _slow_ranges(dataset: LanceDataset) -> list[tuple[int, int]]:
    """Return the rows of fragments in which Lance needs long to find a row by its offset."""
    slow, start = [], 0
    for fragment in dataset.get_fragments():
        metadata = fragment.metadata
        end = start + metadata.num_rows
        if metadata.num_deletions and metadata.physical_rows > _MAX_COUNTED_ROWS:
            slow.append((start, end))
        start = end
    return slow


def _random_row(rows: int, part: int) -> int:
    """Return a random row of one of the equal parts of a table: a client cannot put its only small values there."""
    start, end = rows * part // _SAMPLE_ROWS, rows * (part + 1) // _SAMPLE_ROWS
    return start + secrets.randbelow(max(end - start, 1))


def _value_bytes(values: AnyChunkedArray) -> int:
    """Return the bytes of a value on average, and of the longest value of a dictionary, which each row may have."""
    longest = max(map(longest_dictionary_value, values.chunks), default=0)
    dictionaries = has_dictionary(values.type)
    average = 0 if dictionaries else -(-values.nbytes // max(len(values), 1))
    return max(average, longest)


def _fixed_bytes(field: AnyField) -> int | None:
    """Return the bytes of each value of a column; None for a type whose values vary."""
    if has_blobs(field):
        return _BLOB_DESCRIPTOR_BYTES
    return _fixed_type_bytes(field.type)


def _fixed_type_bytes(kind: pa.DataType) -> int | None:
    if isinstance(kind, pa.BaseExtensionType):
        return _fixed_type_bytes(kind.storage_type)
    if pa.types.is_null(kind):
        return 0
    if isinstance(kind, pa.FixedSizeListType):
        item = _fixed_type_bytes(kind.value_type)
        return None if item is None else item * kind.list_size
    if isinstance(kind, pa.StructType):
        parts = [_fixed_type_bytes(kind.field(index).type) for index in range(kind.num_fields)]
        return None if None in parts else sum(part or 0 for part in parts)
    if pa.types.is_dictionary(kind):
        return None
    try:
        return -(-kind.bit_width // 8)
    except ValueError:
        return None
