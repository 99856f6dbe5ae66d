"""Make the rows that are written and searched: the same ones in every run, and hard to compress."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

WIDTH = 128  # numbers in a vector
ROW_BYTES = 8 + 4 * WIDTH
BATCH_ROWS = 8192
_MARK = 0x5EA1ED0FF1CEB00C  # the id of a template's row, to be found in its bytes
_SLICE = 1024 * 1024


def rows_for(megabytes: float) -> int:
    """Return the number of rows that take this many megabytes as Arrow."""
    return max(int(megabytes * 1e6) // ROW_BYTES, 1)


def schema() -> Any:
    """Return the schema of all rows: an id and a vector."""
    import pyarrow as pa

    return pa.schema([("id", pa.int64()), ("vector", pa.list_(pa.float32(), WIDTH))])


def batches(rows: int, first: int = 0, seed: int = 0) -> Iterator[Any]:
    """Give rows with ids from `first` on, as record batches."""
    import numpy as np
    import pyarrow as pa

    for start in range(0, rows, BATCH_ROWS):
        count = min(BATCH_ROWS, rows - start)
        values = np.random.default_rng([seed, start]).random(count * WIDTH, dtype=np.float32)
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(values), WIDTH)
        ids = pa.array(np.arange(first + start, first + start + count, dtype=np.int64))
        yield pa.record_batch([ids, vectors], schema=schema())


def reader(made: list[Any]) -> Any:
    """Return batches as a reader."""
    import pyarrow as pa

    return pa.RecordBatchReader.from_batches(schema(), iter(made))


def stream(made: Iterator[Any] | list[Any]) -> Any:
    """Encode batches as an Arrow stream, in one buffer."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema()) as writer:
        for batch in made:
            writer.write_batch(batch)
    return sink.getvalue()


def chunked(content: Any) -> bytearray:
    """Write a body as HTTP chunks of one megabyte: ready to be sent without any more work."""
    view = memoryview(content)
    wire = bytearray()
    for start in range(0, len(view), _SLICE):
        part = view[start : start + _SLICE]
        wire += b"%x\r\n" % len(part)
        wire += part
        wire += b"\r\n"
    wire += b"0\r\n\r\n"
    return wire


class OneRow:
    """Streams of one row that differ only in the id, which is put in its place in the encoded bytes."""

    def __init__(self) -> None:
        self._template: bytes = stream(batches(1, first=_MARK)).to_pybytes()
        self._at = self._template.index(_MARK.to_bytes(8, "little"))

    def with_id(self, number: int) -> bytes:
        """Encode the row with an id."""
        return self._template[: self._at] + number.to_bytes(8, "little") + self._template[self._at + 8 :]


def query_vectors(count: int) -> list[list[float]]:
    """Return vectors to search for: none of them is a row."""
    import numpy as np

    found: list[list[float]] = np.random.default_rng(4242).random((count, WIDTH), dtype=np.float32).round(4).tolist()
    return found
