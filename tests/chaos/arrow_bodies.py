"""Arrow bodies for the fuzz: valid ones of many types, mutations of them, and some that were made to do harm."""

from __future__ import annotations

import io
import random
import struct
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

ROWS = 40
_CLAIMED = 1_234_567
_COMPRESSIONS = (None, "lz4", "zstd")


def stream_of(batches: list[pa.RecordBatch], compression: str | None = None) -> bytes:
    """Return batches as the body of a request."""
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression, emit_dictionary_deltas=True)
    with pa.ipc.new_stream(sink, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def table_rows(first: int) -> pa.RecordBatch:
    """Return rows that fit the table of the fuzz."""
    words = pa.DictionaryArray.from_arrays(pa.array([0, 1] * (ROWS // 2), pa.int8()), pa.array(["one", "two"]))
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(ROWS * 4, dtype="f4")), 4)
    nested = pa.array([{"n": n, "list": ["a", None]} if n % 3 else None for n in range(ROWS)])
    return pa.record_batch(
        {
            "id": pa.array(range(first, first + ROWS), pa.int64()),
            "text": pa.array([f"text {n}" * (n % 5) for n in range(ROWS)], pa.string()),
            "word": words,
            "vector": vectors,
            "nested": nested,
        }
    )


def _typed(kind: str) -> pa.Array:
    values: dict[str, pa.Array] = {
        "view": pa.array([f"a longer text than fits {n}" for n in range(ROWS)], pa.string_view()),
        "binary view": pa.array([b"x" * n for n in range(ROWS)], pa.binary_view()),
        "nested view": pa.array([[f"{n}" * 20] for n in range(ROWS)], pa.list_(pa.string_view())),
        "run ends": pa.RunEndEncodedArray.from_arrays(pa.array([5, ROWS], pa.int32()), pa.array(["a", "b"])),
        "list view": pa.array([[n] for n in range(ROWS)], pa.list_view(pa.int64())),
        "union": pa.UnionArray.from_sparse(pa.array([0] * ROWS, pa.int8()), [pa.array(range(ROWS))]),
        "null": pa.nulls(ROWS),
        "map": pa.array([[("k", n)] for n in range(ROWS)], pa.map_(pa.string(), pa.int64())),
        "decimal": pa.array([None] * ROWS, pa.decimal128(30, 2)),
        "empty struct": pa.StructArray.from_buffers(pa.struct([]), ROWS, [None]),
        "bool": pa.array([True, None] * (ROWS // 2)),
        "zoned": pa.array(range(ROWS), pa.timestamp("us", "Europe/Berlin")),
    }
    return values[kind]


KINDS = (
    *("view", "binary view", "nested view", "run ends", "list view", "union", "null", "map", "decimal"),
    *("empty struct", "bool", "zoned"),
)


def valid_bodies() -> Iterator[bytes]:
    """Return a body of each type, compressed in each way."""
    for compression in _COMPRESSIONS:
        yield stream_of([table_rows(1000), table_rows(2000)], compression)
        for kind in KINDS:
            batch = pa.record_batch({"id": pa.array(range(ROWS), pa.int64()), "value": _typed(kind)})
            yield stream_of([batch, batch], compression)


def _claiming(body: bytes, rows: int) -> bytes:
    return body.replace(struct.pack("<q", _CLAIMED), struct.pack("<q", rows))


def _zeros(size: int) -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), size // 8, [None, pa.py_buffer(bytes(size))])


def repeated_value(size: int) -> bytes:
    """Return a body in which each row refers to the same long value of a dictionary."""
    values = pa.DictionaryArray.from_arrays(
        pa.array([0] * 10_000, pa.int32()), pa.array(["x" * size], pa.large_string())
    )
    return stream_of([pa.record_batch({"id": pa.array(range(10_000), pa.int64()), "word": values})], "zstd")


def hostile_bodies(limit: int) -> Iterator[bytes]:
    """Return bodies that would be larger than a limit once they are decoded, or make something of nothing."""
    for compression in ("lz4", "zstd"):
        yield stream_of([pa.record_batch({"id": _zeros(4 * limit)})], compression)
        yield stream_of([pa.record_batch({f"c{n}": _zeros(limit // 8) for n in range(20)})], compression)
        words = pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array(["x" * 2 * limit]))
        yield stream_of([pa.record_batch({"word": words})], compression)
    yield stream_of([pa.record_batch({"id": _zeros(2 * limit)})])
    yield repeated_value(limit // 1000)
    for weightless in (pa.nulls(_CLAIMED), pa.StructArray.from_buffers(pa.struct([]), _CLAIMED, [None])):
        yield _claiming(stream_of([pa.record_batch([weightless], ["id"])]), 2**40)
        yield _claiming(stream_of([pa.record_batch([weightless], ["id"])]), 2**62)
    views = np.zeros(10_000, dtype=[("size", "<i4"), ("head", "S4"), ("buffer", "<i4"), ("at", "<i4")])
    views["size"], views["head"] = 1_000_000, b"xxxx"
    buffers = [None, pa.py_buffer(views.tobytes()), pa.py_buffer(b"x" * 1_000_000)]
    yield stream_of([pa.record_batch({"text": pa.Array.from_buffers(pa.string_view(), 10_000, buffers)})], "lz4")
    body = stream_of([table_rows(0)])
    for size in (2**31 - 1, 2**24 + 8, 2**31, 2**32 - 8):
        yield b"\xff\xff\xff\xff" + struct.pack("<I", size) + body[8:]
    deep: pa.DataType = pa.int8()
    for _ in range(200):
        deep = pa.list_(deep)
    yield b"\xff\xff\xff\xff" + pa.schema([("id", deep)]).serialize().to_pybytes()[4:]
    yield stream_of([pa.record_batch({f"c{n}": pa.array([n]) for n in range(2000)})])
    yield b""
    yield body.replace(b"text", b"te\x80t")
    yield body + body
    yield body[:-8]


def mutated(body: bytes, choice: random.Random) -> bytes:
    """Return a body with something wrong in it."""
    changed = bytearray(body)
    for _ in range(choice.randint(1, 4)):
        at = choice.randrange(len(changed))
        kind = choice.randrange(6)
        if kind == 0:
            changed[at] ^= 1 << choice.randrange(8)
        elif kind == 1:
            changed[at] = choice.choice((0, 0x7F, 0x80, 0xFF))
        elif kind == 2:  # a number of some width, where one may be
            at -= at % 8
            number = choice.choice((-1, 0, 1, 2**31 - 1, 2**31, 2**40, 2**63 - 1, -(2**63), len(body)))
            changed[at : at + 8] = struct.pack("<q", number)
        elif kind == 3:
            del changed[at:]
        elif kind == 4:
            del changed[at : at + choice.randint(1, 64)]
        else:
            start = choice.randrange(len(body))
            changed[at:at] = body[start : start + choice.randint(1, 64)]
        if not changed:
            break
    return bytes(changed)
