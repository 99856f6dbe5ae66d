"""The metadata of Arrow messages: read as Arrow writes it, and refused when a few bytes claim a lot."""

from __future__ import annotations

import io
import struct
from typing import Literal

import pyarrow as pa
import pytest

from pennon.core.arrow_messages import (
    DICTIONARY_BATCH,
    RECORD_BATCH,
    SCHEMA,
    ArrowMessageError,
    _resolve_offset,
    _Table,
    check_schema_message,
    read_message,
)

PREFIX_BYTES = 8


def message_of(schema: pa.Schema) -> bytearray:
    return bytearray(schema.serialize().to_pybytes())


def vector_of(content: bytearray, *slots: int) -> tuple[int, int]:
    """Return where a vector lies that is reached by slots, the last of them its own, through first items of others."""
    data = memoryview(content)[PREFIX_BYTES:]
    table = _Table(data, _resolve_offset(data, 0)).table(2)
    for slot in slots[:-1]:
        assert table is not None
        table = next(table.tables(slot))
    assert table is not None
    start, count = table._vector(slots[-1])
    return start + PREFIX_BYTES, count


def point_all_at(content: bytearray, *slots: int, item: int) -> bytes:
    """Let all items of a vector be one of them."""
    start, count = vector_of(content, *slots)
    target = start + 4 * item + struct.unpack_from("<I", content, start + 4 * item)[0]
    for index in range(count):
        struct.pack_into("<I", content, start + 4 * index, target - (start + 4 * index))
    return bytes(content)


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_what_arrow_writes_is_measured_as_it_is(compression: Literal["lz4", "zstd"] | None) -> None:
    kind = pa.struct([("flag", pa.bool_()), ("texts", pa.list_(pa.string_view())), ("none", pa.null())])
    values = [{"flag": True, "texts": ["a" * 40, "b"], "none": None}, None] * 500
    words = pa.array(["one", "two"] * 500).dictionary_encode()
    batch = pa.record_batch({"nested": pa.array(values, kind), "word": words, "number": range(1000)})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_batch(batch)
    messages = list(pa.ipc.MessageReader.open_stream(io.BytesIO(sink.getvalue())))
    read = [read_message(message.metadata.to_pybytes()) for message in messages if message.metadata is not None]
    assert [message.kind for message in read] == [SCHEMA, DICTIONARY_BATCH, RECORD_BATCH]
    assert read[0].weightless == (True, False, False, False, True, False, False)
    assert read[2].batch is not None
    assert read[2].batch.lengths == (1000, 1000, 1000, 1000, 1000, 1000, 1000)
    body = messages[2].body
    assert body is not None
    sizes = list(read[2].batch.decoded_sizes(body.to_pybytes()))
    assert sum(sizes) == pytest.approx(batch.get_total_buffer_size(), rel=0.1)


def test_one_text_cannot_be_claimed_many_times() -> None:
    entries: dict[bytes | str, bytes | str] = {
        **{f"key{index:03}": "v" for index in range(500)},
        "large": "x" * 10_000,
    }
    content = message_of(pa.schema([("a", pa.int64())], metadata=entries))
    check_schema_message(bytes(content))
    with pytest.raises(ArrowMessageError, match="more text than it contains"):
        check_schema_message(point_all_at(content, 2, item=500))


def test_one_field_cannot_be_claimed_many_times() -> None:
    wide = pa.struct([(f"c{index}", pa.int8()) for index in range(1000)])
    content = message_of(pa.schema([("a", pa.struct([("w", wide), *((f"b{i}", pa.int8()) for i in range(999))]))]))
    check_schema_message(bytes(content))
    with pytest.raises(ArrowMessageError, match="more than 100000 fields"):
        check_schema_message(point_all_at(content, 1, 5, item=0))


@pytest.mark.parametrize("text", [b"column", b"entry", b"Berlin"])
def test_texts_are_utf8(text: bytes) -> None:
    zoned = pa.timestamp("us", "Europe/Berlin")
    content = bytes(message_of(pa.schema([("column", zoned)], metadata={"entry": "entry"})))
    with pytest.raises(ArrowMessageError, match="not UTF-8"):
        check_schema_message(content.replace(text, b"\x80" + text[1:]))


@pytest.mark.parametrize("size", [0, 3, 7, 8, 20, 60])
def test_what_is_cut_off_is_refused(size: int) -> None:
    with pytest.raises(ArrowMessageError):
        check_schema_message(bytes(message_of(pa.schema([("a", pa.int64())])))[:size])


def test_any_bytes_are_read_or_refused() -> None:
    content = bytes(message_of(pa.schema([("a", pa.list_(pa.int64())), ("b", pa.string())], metadata={"k": "v"})))
    for at in range(PREFIX_BYTES, len(content)):
        for value in (0, 1, 0x7F, 0xFF):
            changed = bytearray(content)
            changed[at] = value
            try:
                check_schema_message(bytes(changed))
            except ArrowMessageError:
                continue
