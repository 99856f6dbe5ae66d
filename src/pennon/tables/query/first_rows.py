"""The first rows of a table: few and small ones are read at once, without a plan, and kept for who asks again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pennon.tables.blobs import holds_blobs

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_BYTES = 64 * 1024


class Head:
    """The first fragment of a dataset, as far as its rows stand where they were written."""

    def __init__(self, dataset: Any) -> None:
        schema = dataset.schema
        #: The columns of the dataset.
        self.names = frozenset(schema.names)
        self._fragment = next(iter(dataset.get_fragments()), None)
        self._rows, self._row_bytes = 0, 0.0
        #: The rows that were read last: their columns, their places, and themselves.
        self._kept: tuple[list[str] | None, range, pa.Table | None] = (None, range(0), None)
        # A scan tells of blobs where they are; the fragment itself would read them.
        if self._fragment is None or self._fragment.num_deletions > 0 or any(map(holds_blobs, schema)):
            return
        sizes = [file.file_size_bytes for file in self._fragment.metadata.files]
        if all(sizes):
            self._rows = self._fragment.physical_rows
            self._row_bytes = sum(sizes) / max(self._rows, 1)

    def holds(self, rows: range) -> bool:
        """Tell whether rows are in this fragment, and together so small that reading them takes no time."""
        return bool(rows) and rows.stop <= self._rows and len(rows) * self._row_bytes <= _MOST_BYTES

    def take(self, rows: range, columns: list[str] | None) -> pa.Table:
        """Return rows by their places; they are kept, if they are small in memory, too."""
        asked, within, kept = self._kept
        if kept is not None and columns == asked and within.start <= rows.start and rows.stop <= within.stop:
            return kept.slice(rows.start - within.start, len(rows))
        assert self._fragment is not None  # noqa: S101 (or it would hold no rows)
        found = self._fragment.take(list(rows), columns=columns)
        # With all that its buffers hold: values may be a small part of the page that they were decoded from.
        if found.get_total_buffer_size() <= _MOST_BYTES:
            self._kept = columns, rows, found
        return found
