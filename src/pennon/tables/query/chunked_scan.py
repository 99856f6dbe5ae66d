"""Plain scans, read in chunks of a few megabytes.

Lance reads far ahead of its consumer, which takes too much memory with many concurrent readers. A chunk is read only
on demand, at almost no cost on local storage.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

# None of these was measured on its own; benchmarks/data.py ran with these values.
#: The size of a chunk, as the rows read so far predict it: about as much as a processor's cache holds.
_CHUNK_BYTES = 2 * 1024 * 1024
_FIRST_CHUNK_ROWS = 1024
_MAX_CHUNK_ROWS = 1024 * 1024
#: A chunk has at most this many times more rows than the one before.
_GROWTH = 8

#: Reads rows from an offset on, up to a limit.
Scan = Callable[[int, int], pa.RecordBatchReader]


class ChunkedScan:
    """The batches of a scan; the size of the rows read so far decides how many rows the next chunk has."""

    def __init__(self, scan: Scan, offset: int, limit: int | None, *, max_rows: int | None = None) -> None:
        self._scan = scan
        self._offset = offset
        self._remaining = limit
        # The result may be small although the columns that it is computed from are not.
        self._max_chunk_rows = max_rows or _MAX_CHUNK_ROWS
        self._chunk_rows = min(self._max_chunk_rows, _FIRST_CHUNK_ROWS)
        self._reader = self._open()
        self.schema: pa.Schema = self._reader.schema

    def __iter__(self) -> ChunkedScan:
        return self

    def __next__(self) -> pa.RecordBatch:
        while True:
            batch = next(self._reader, None)
            if batch is not None:
                self._rows_read += batch.num_rows
                self._bytes_read += batch.nbytes
                return batch
            if self._rows_read < self._requested or self._remaining == 0:
                raise StopIteration
            fitting = max(_CHUNK_BYTES * self._rows_read // max(self._bytes_read, 1), 1)
            self._chunk_rows = min(fitting, self._max_chunk_rows, _GROWTH * self._chunk_rows)
            self._reader = self._open()

    def _open(self) -> pa.RecordBatchReader:
        self._requested = self._chunk_rows if self._remaining is None else min(self._chunk_rows, self._remaining)
        self._rows_read = self._bytes_read = 0
        reader = self._scan(self._offset, self._requested)
        self._offset += self._requested
        if self._remaining is not None:
            self._remaining -= self._requested
        return reader
