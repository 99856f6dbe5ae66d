"""The first rows of a table: few and small ones are read at once, without a plan."""

from __future__ import annotations

from typing import Any

_MOST_BYTES = 64 * 1024


class Head:
    """The first fragment of a dataset, as far as its rows stand where they were written."""

    def __init__(self, dataset: Any) -> None:
        self._fragment = next(iter(dataset.get_fragments()), None)
        self._rows, self._row_bytes = 0, 0.0
        if self._fragment is not None and self._fragment.num_deletions == 0:
            sizes = [file.file_size_bytes for file in self._fragment.metadata.files]
            if all(sizes):
                self._rows = self._fragment.physical_rows
                self._row_bytes = sum(sizes) / max(self._rows, 1)

    def holds(self, places: range) -> bool:
        """Tell whether rows are in this fragment, and together so small that reading them takes no time."""
        return bool(places) and places.stop <= self._rows and len(places) * self._row_bytes <= _MOST_BYTES

    def take(self, places: range, columns: list[str] | None) -> Any:
        """Return rows by their places."""
        assert self._fragment is not None  # noqa: S101 (or it would hold no rows)
        return self._fragment.take(list(places), columns=columns)
