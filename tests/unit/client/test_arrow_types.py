"""Types are named as Lance names them, and as the server reads them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from pennon.client.arrow_types import type_to_json
from pennon.tables.arrow_json import type_from_json

TYPES = [
    pa.null(),
    pa.bool_(),
    *(getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)),
    pa.float16(),
    pa.float32(),
    pa.float64(),
    pa.string(),
    pa.large_string(),
    pa.binary(),
    pa.large_binary(),
    pa.binary(7),
    pa.date32(),
    pa.date64(),
    *(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")),
    pa.timestamp("us", "UTC"),
    pa.timestamp("ns", "+02:00"),
    pa.timestamp("ms", "Europe/Berlin"),
    pa.time32("s"),
    pa.time32("ms"),
    pa.time64("us"),
    pa.time64("ns"),
    *(pa.duration(unit) for unit in ("s", "ms", "us", "ns")),
    pa.decimal128(10, 2),
    pa.decimal256(50, 3),
    pa.dictionary(pa.int32(), pa.string()),
    pa.dictionary(pa.int8(), pa.int64(), ordered=True),
    pa.list_(pa.float32()),
    pa.list_(pa.field("item", pa.int64(), nullable=False)),
    pa.large_list(pa.string()),
    pa.list_(pa.float32(), 128),
    pa.struct([pa.field("lang", pa.string()), pa.field("score", pa.float64(), nullable=False)]),
    pa.list_(pa.struct([("words", pa.list_(pa.string()))])),
    pa.list_(pa.struct([("at", pa.timestamp("us", "UTC"))]), 2),
    pa.map_(pa.string(), pa.int64()),
]


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_the_server_reads_the_type_that_was_meant(kind: pa.DataType) -> None:
    assert type_from_json(type_to_json(kind)) == kind


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (pa.float32(), {"type": "float"}),
        (pa.timestamp("us"), {"type": "timestamp:us:-"}),
        (pa.string_view(), {"type": "string"}),
        (pa.binary_view(), {"type": "binary"}),
        (
            pa.list_(pa.float32(), 3),
            {
                "type": "fixed_size_list",
                "length": 3,
                "fields": [{"name": "item", "nullable": True, "type": {"type": "float"}}],
            },
        ),
    ],
    ids=str,
)
def test_the_words_are_lances(kind: pa.DataType, expected: dict[str, Any]) -> None:
    assert type_to_json(kind) == expected


@pytest.mark.parametrize(
    "kind", [pa.month_day_nano_interval(), pa.dense_union([pa.field("a", pa.int8())]), pa.decimal32(5, 2)], ids=str
)
def test_a_type_that_no_table_has_is_refused(kind: pa.DataType) -> None:
    with pytest.raises(TypeError, match="cannot have the type"):
        type_to_json(kind)


def test_an_extension_type_is_named_by_its_storage() -> None:
    assert type_to_json(pa.fixed_shape_tensor(pa.float32(), [2, 2]))["length"] == 4
