"""Plain scans, read in slices of a few megabytes.

Lance reads far ahead of whoever takes its batches; many readers at once could not afford that. A slice is read only
when it is asked for, and costs next to nothing where storage is near.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

_SLICE_BYTES = 2 * 1024 * 1024
_FIRST_ROWS = 1024
_MOST_ROWS = 1024 * 1024

#: Reads rows from an offset on, at most so many, as a reader of batches.
Scan = Callable[[int, int], Any]


class Slices:
    """The batches of a scan; how many rows a slice has follows from the size of those before it."""

    def __init__(self, scan: Scan, offset: int, limit: int | None) -> None:
        self._scan = scan
        self._offset = offset
        self._left = limit
        self._rows = _FIRST_ROWS
        self._reader = self._open()
        self.schema: pa.Schema = self._reader.schema

    def __iter__(self) -> Slices:
        return self

    def __next__(self) -> pa.RecordBatch:
        while True:
            batch = next(self._reader, None)
            if batch is not None:
                self._seen += batch.num_rows
                self._bytes += batch.nbytes
                return batch
            if self._seen < self._asked or self._left == 0:
                raise StopIteration
            self._rows = min(max(_SLICE_BYTES * self._seen // max(self._bytes, 1), 1), _MOST_ROWS, 8 * self._rows)
            self._reader = self._open()

    def _open(self) -> Any:
        self._asked = self._rows if self._left is None else min(self._rows, self._left)
        self._seen = self._bytes = 0
        reader = self._scan(self._offset, self._asked)
        self._offset += self._asked
        if self._left is not None:
            self._left -= self._asked
        return reader
