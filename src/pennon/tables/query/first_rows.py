"""A cache of a table's first rows: a few small rows are read directly, without a scan plan, and kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_namespace.errors import LanceNamespaceError

from pennon.tables.blobs import has_blobs
from pennon.tables.lance_errors import typed_errors

if TYPE_CHECKING:
    import pyarrow as pa
    from lance import LanceDataset, LanceFragment

_MAX_BYTES = 64 * 1024


class FirstRowsCache:
    """The first fragment of a dataset, if none of its rows was deleted, and the rows that were last read from it."""

    def __init__(self, dataset: LanceDataset) -> None:
        schema = dataset.schema
        #: The columns of the dataset.
        self.names = frozenset(schema.names)
        self._fragment = next(iter(dataset.get_fragments()), None)
        self._rows, self._row_bytes = 0, 0.0
        #: The rows that were read last: columns, row range, values.
        self._cached: tuple[list[str] | None, range, pa.Table | None] = (None, range(0), None)
        # A scan returns descriptors of blobs; a fragment would read the blobs themselves.
        if self._fragment is None or self._fragment.num_deletions > 0 or any(map(has_blobs, schema)):
            return
        sizes = [file.file_size_bytes for file in self._fragment.metadata.files]
        if all(sizes):
            self._rows = self._fragment.physical_rows
            self._row_bytes = sum(size or 0 for size in sizes) / max(self._rows, 1)
        if self._rows and not self._is_small_in_memory(self._fragment):
            self._rows = 0

    def _is_small_in_memory(self, fragment: LanceFragment) -> bool:
        """Return whether the first row is small in memory, too; False also if it has a column that cannot be read."""
        try:
            with typed_errors():
                return fragment.take([0]).nbytes <= _MAX_BYTES
        except (LanceNamespaceError, OSError):
            return False

    def can_take(self, rows: range) -> bool:
        """Return whether rows are in this fragment and small enough to be read on the event loop."""
        return bool(rows) and rows.stop <= self._rows and len(rows) * self._row_bytes <= _MAX_BYTES

    def take(self, rows: range, columns: list[str] | None) -> pa.Table:
        """Return rows by their positions, and cache them if they are small in memory, too."""
        cached_columns, cached_rows, cached = self._cached
        is_cached = cached_rows.start <= rows.start and rows.stop <= cached_rows.stop
        if cached is not None and columns == cached_columns and is_cached:
            return cached.slice(rows.start - cached_rows.start, len(rows))
        assert self._fragment is not None  # noqa: S101 (can_take was true)
        found = self._fragment.take(list(rows), columns=columns)
        # The whole buffers count: values may be a small part of the page that they were decoded from.
        if found.get_total_buffer_size() <= _MAX_BYTES:
            self._cached = columns, rows, found
        return found
