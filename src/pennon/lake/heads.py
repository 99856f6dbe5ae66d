"""The first rows of a table: few and small ones are read at once, without a plan."""

from __future__ import annotations

from threading import Lock
from typing import Any
from weakref import WeakSet

from pennon.lake.blobs import holds_blobs

_MOST_BYTES = 64 * 1024
#: Heads with open files: the space of files that are removed is not free before they are closed.
_MOST_OPEN = 64


class Head:
    """The first fragment of a dataset, as far as its rows stand where they were written."""

    def __init__(self, dataset: Any) -> None:
        schema = dataset.schema
        #: The columns of the dataset.
        self.names = frozenset(schema.names)
        self._fragment = next(iter(dataset.get_fragments()), None)
        self._rows, self._row_bytes = 0, 0.0
        #: The columns that were asked for last, and what reads them if they were asked for before.
        self._asked: tuple[Any, Any] = ((), None)
        # A scan tells of blobs where they are; the fragment itself would read them.
        if self._fragment is None or self._fragment.num_deletions > 0 or any(map(holds_blobs, schema)):
            return
        sizes = [file.file_size_bytes for file in self._fragment.metadata.files]
        if all(sizes):
            self._rows = self._fragment.physical_rows
            self._row_bytes = sum(sizes) / max(self._rows, 1)

    def holds(self, places: range) -> bool:
        """Tell whether rows are in this fragment, and together so small that reading them takes no time."""
        return bool(places) and places.stop <= self._rows and len(places) * self._row_bytes <= _MOST_BYTES

    def take(self, places: range, columns: list[str] | None) -> Any:
        """Return rows by their places; who asks for the same columns again finds their files open."""
        assert self._fragment is not None  # noqa: S101 (or it would hold no rows)
        asked, reader = self._asked
        if asked != columns:
            self._asked = columns, None
            return self._fragment.take(list(places), columns=columns)
        if reader is None:
            reader = self._fragment.open_session(columns)
            self._asked = columns, reader
            _note_open(self)
        return reader.take(list(places))

    def close(self) -> None:
        """Close the files; who asks again opens them again."""
        self._asked = self._asked[0], None


_lock = Lock()
_open: WeakSet[Head] = WeakSet()


def close_heads() -> None:
    """Close the files of all heads."""
    with _lock:
        for head in _open:
            head.close()
        _open.clear()


def _note_open(head: Head) -> None:
    if len(_open) >= _MOST_OPEN:
        close_heads()
    with _lock:
        _open.add(head)
