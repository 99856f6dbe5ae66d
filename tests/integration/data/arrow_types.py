"""Columns of every Arrow type that a Lance table can hold, with values that are easy to lose."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

UTC = dt.UTC
NOON = dt.datetime(2024, 2, 29, 12, 30, 15, 123456, tzinfo=UTC)
PLAIN_NOON = NOON.replace(tzinfo=None)
HALVES = [np.float16(1.5), None, np.float16(-2.0)]


def values(kind: pa.DataType, *given: Any) -> pa.Array:
    return pa.array(list(given), kind)


def struct_of_structs() -> pa.Array:
    inner = pa.struct([pa.field("deep", pa.int32(), nullable=False), pa.field("text", pa.string())])
    kind = pa.struct([pa.field("inner", inner), pa.field("list", pa.list_(pa.field("item", pa.int8())))])
    return values(kind, {"inner": {"deep": 1, "text": None}, "list": [1, None]}, {"inner": None, "list": []})


COLUMNS: dict[str, pa.Array] = {
    "bool": values(pa.bool_(), True, None, False),
    "int8": values(pa.int8(), -128, None, 127),
    "int16": values(pa.int16(), -(2**15), None, 1),
    "int32": values(pa.int32(), -(2**31), None, 1),
    "int64": values(pa.int64(), -(2**63), None, 2**63 - 1),
    "uint8": values(pa.uint8(), 255, None),
    "uint16": values(pa.uint16(), 2**16 - 1, None),
    "uint32": values(pa.uint32(), 2**32 - 1, None),
    "uint64": values(pa.uint64(), 2**64 - 1, None),
    "float16": values(pa.float16(), *HALVES),
    "float32": values(pa.float32(), 1.5, None, float("inf")),
    "float64": values(pa.float64(), 1e300, None, -0.0),
    "string": values(pa.string(), "é\u0000✓", None, ""),
    "large_string": values(pa.large_string(), "x" * 1000, None, ""),
    "binary": values(pa.binary(), b"\x00\xff", None, b""),
    "large_binary": values(pa.large_binary(), b"\x00" * 100, None, b""),
    "fixed_size_binary": values(pa.binary(4), b"\x00\x01\x02\x03", None),
    "date32": values(pa.date32(), dt.date(1969, 12, 31), None),
    "date64": values(pa.date64(), dt.date(2024, 2, 29), None),
    "time32[s]": values(pa.time32("s"), dt.time(23, 59, 59), None),
    "time32[ms]": values(pa.time32("ms"), dt.time(1, 2, 3, 4000), None),
    "time64[us]": values(pa.time64("us"), dt.time(1, 2, 3, 4), None),
    "time64[ns]": pa.array([1, None, 86_399_999_999_999], pa.time64("ns")),
    "timestamp[s]": values(pa.timestamp("s"), PLAIN_NOON.replace(microsecond=0), None),
    "timestamp[ms, UTC]": values(pa.timestamp("ms", "UTC"), NOON.replace(microsecond=123000), None),
    "timestamp[us, Europe/Berlin]": values(pa.timestamp("us", "Europe/Berlin"), NOON, None),
    "timestamp[ns, +05:30]": pa.array([1_700_000_000_123_456_789, None], pa.timestamp("ns", "+05:30")),
    "duration[s]": values(pa.duration("s"), dt.timedelta(days=3), None),
    "duration[ns]": pa.array([123_456_789_012, None], pa.duration("ns")),
    "decimal128(5, 2)": values(pa.decimal128(5, 2), Decimal("123.45"), None, Decimal("-0.01")),
    "decimal128(38, 10)": values(pa.decimal128(38, 10), Decimal("1234567890123456789012345678.0123456789"), None),
    "decimal256(60, 5)": values(
        pa.decimal256(60, 5), Decimal("12345678901234567890123456789012345678901234567890.12345")
    ),
    "list": values(pa.list_(pa.int32()), [1, None], None, []),
    "large_list": values(pa.large_list(pa.string()), ["a", None], None, []),
    "list of lists": values(pa.list_(pa.list_(pa.int8())), [[1], None, []], None),
    "list without nulls": values(pa.list_(pa.field("item", pa.int32(), nullable=False)), [1, 2], None),
    "fixed_size_list": values(pa.list_(pa.float32(), 3), [1.0, 2.0, 3.0], None),
    "fixed_size_list of float16": values(pa.list_(pa.float16(), 2), [np.float16(1), np.float16(2)], None),
    "fixed_size_list of uint8": values(pa.list_(pa.uint8(), 2), [1, 255], None),
    "list of decimals": values(pa.list_(pa.decimal128(9, 3)), [Decimal("1.001"), None], None),
    "struct": values(pa.struct([("a", pa.int32()), ("b", pa.string())]), {"a": 1, "b": None}, {"a": None, "b": "x"}),
    "struct of structs": struct_of_structs(),
    "list of structs": values(pa.list_(pa.struct([("a", pa.int32())])), [{"a": 1}, {"a": None}], None, []),
    "dictionary": pa.array(["a", "b", "a", None]).dictionary_encode(),
    "dictionary with int8 indices": pa.array(["a", "b"]).cast(pa.dictionary(pa.int8(), pa.string())),
    "null": pa.nulls(3),
}

#: Types that a Lance table can hold, but whose values it gives back in another one of the same meaning.
CHANGED: dict[str, tuple[pa.Array, pa.DataType]] = {
    "string_view": (values(pa.string_view(), "a long enough text for a view", None), pa.string()),
    "binary_view": (values(pa.binary_view(), b"\x00", None), pa.binary()),
}

#: Types that not every client knows.
RARE: dict[str, pa.Array] = {
    "map": values(pa.map_(pa.string(), pa.int32()), [("a", 1), ("b", None)], None, []),
    "uuid": pa.ExtensionArray.from_storage(pa.uuid(), values(pa.binary(16), b"0" * 16, None)),
    # Stored as parsed, so the spaces between its parts are not kept.
    "json": pa.ExtensionArray.from_storage(pa.json_(pa.string()), values(pa.string(), '{"a":1}', None)),
    "bool8": pa.ExtensionArray.from_storage(pa.bool8(), values(pa.int8(), 1, 0, None)),
    "tensor": pa.ExtensionArray.from_storage(
        pa.fixed_shape_tensor(pa.float32(), [2, 2]), values(pa.list_(pa.float32(), 4), [1.0, 2.0, 3.0, 4.0])
    ),
}

EVERY: dict[str, pa.Array] = {**COLUMNS, **{kind: column for kind, (column, _) in CHANGED.items()}, **RARE}

#: What Lance can make of columns of these types; of the others it makes nothing else.
CASTS: dict[str, pa.DataType] = {
    "int8": pa.int64(),
    "int16": pa.int32(),
    "int32": pa.int64(),
    "uint8": pa.uint32(),
    "uint16": pa.uint64(),
    "uint32": pa.int64(),
    "float16": pa.float32(),
    "float32": pa.float64(),
    "float64": pa.float32(),
    "string": pa.large_string(),
    "large_string": pa.string(),
    "binary": pa.large_binary(),
    "large_binary": pa.binary(),
    "date32": pa.date64(),
    "date64": pa.date32(),
    "time32[s]": pa.time32("ms"),
    "time32[ms]": pa.time64("us"),
    "time64[us]": pa.time64("ns"),
    "time64[ns]": pa.time64("us"),
    "timestamp[s]": pa.timestamp("ms"),
    "timestamp[ms, UTC]": pa.timestamp("us", "UTC"),
    "timestamp[us, Europe/Berlin]": pa.timestamp("us", "UTC"),
    "timestamp[ns, +05:30]": pa.timestamp("us", "+05:30"),
    "duration[s]": pa.duration("ms"),
    "duration[ns]": pa.duration("us"),
    "decimal128(5, 2)": pa.decimal128(20, 4),
    "decimal128(38, 10)": pa.decimal256(50, 10),
    "decimal256(60, 5)": pa.decimal256(70, 5),
    "list": pa.list_(pa.int64()),
    "large_list": pa.list_(pa.string()),
    "list of lists": pa.list_(pa.list_(pa.int16())),
    "fixed_size_list": pa.list_(pa.float16(), 3),
    "fixed_size_list of float16": pa.list_(pa.float32(), 2),
    "fixed_size_list of uint8": pa.list_(pa.uint16(), 2),
    "list of decimals": pa.list_(pa.decimal128(20, 3)),
    "dictionary": pa.string(),
    "dictionary with int8 indices": pa.dictionary(pa.int32(), pa.string()),
}

#: How the types are called in descriptions.
NAMES: dict[str, str] = {
    "float16": "halffloat",
    "float32": "float",
    "float64": "double",
    "fixed_size_binary": "fixed_size_binary",
    "date32": "date32:day",
    "time32[ms]": "time32:ms",
    "timestamp[s]": "timestamp:s:-",
    "timestamp[us, Europe/Berlin]": "timestamp:us:Europe/Berlin",
    "timestamp[ns, +05:30]": "timestamp:ns:+05:30",
    "duration[ns]": "duration:ns",
    "decimal128(5, 2)": "decimal:128:5:2",
    "large_list": "large_list",
    "fixed_size_list": "fixed_size_list",
    "struct": "struct",
    "dictionary with int8 indices": "dict:string:int8:false",
}


def table_of(column: pa.Array) -> pa.Table:
    """Return a table with an id, a column and another column beside it."""
    count = len(column)
    return pa.table({"id": list(range(count)), "column": column, "other": pa.array([1] * count, pa.int32())})


def stored_type(kind: str) -> pa.DataType:
    """Return the type in which a table gives the values of a kind back."""
    return CHANGED[kind][1] if kind in CHANGED else EVERY[kind].type


def wide_table(kinds: Iterable[str]) -> pa.Table:
    """Return a table with an id and a column of each kind; no column but that of nulls has one in the first row."""
    count = max(map(len, EVERY.values()))
    columns = {name_of(kind): _fill_up(EVERY[kind], count) for kind in kinds}
    return pa.table({"id": list(range(count)), **columns})


def name_of(kind: str) -> str:
    """Return the name of a kind's column in a wide table."""
    return "of_" + re.sub(r"\W+", "_", kind)


def _fill_up(column: pa.Array, count: int) -> pa.Array:
    return pa.concat_arrays([column, pa.nulls(count - len(column), column.type)])


def with_listed_maps(table: pa.Table) -> pa.Table:
    """Return a table with lists of entries in the places of its maps, for clients that have no word for these."""
    for index, field in enumerate(table.schema):
        if pa.types.is_map(field.type):
            entry = pa.struct([("key", field.type.key_type), ("value", field.type.item_type)])
            table = table.set_column(index, field.name, table[field.name].cast(pa.list_(entry)))
    return table
