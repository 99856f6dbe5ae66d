"""Schemas as JSON, in the words that every client knows."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidInputError

from pennon.tables.arrow_json import field_to_json, schema_to_json, type_from_json, type_to_json

ITEM = {"name": "item", "nullable": True, "type": {"type": "float"}}

TYPES: list[tuple[pa.DataType, dict[str, Any]]] = [
    (pa.null(), {"type": "null"}),
    (pa.bool_(), {"type": "bool"}),
    *((getattr(pa, name)(), {"type": name}) for name in ("int8", "int16", "int32", "int64")),
    *((getattr(pa, name)(), {"type": name}) for name in ("uint8", "uint16", "uint32", "uint64")),
    (pa.float16(), {"type": "halffloat"}),
    (pa.float32(), {"type": "float"}),
    (pa.float64(), {"type": "double"}),
    (pa.string(), {"type": "string"}),
    (pa.large_string(), {"type": "large_string"}),
    (pa.binary(), {"type": "binary"}),
    (pa.large_binary(), {"type": "large_binary"}),
    (pa.date32(), {"type": "date32:day"}),
    (pa.date64(), {"type": "date64:ms"}),
    (pa.time32("s"), {"type": "time32:s"}),
    (pa.time32("ms"), {"type": "time32:ms"}),
    (pa.time64("us"), {"type": "time64:us"}),
    (pa.time64("ns"), {"type": "time64:ns"}),
    *((pa.timestamp(unit), {"type": f"timestamp:{unit}:-"}) for unit in ("s", "ms", "us", "ns")),
    (pa.timestamp("us", "UTC"), {"type": "timestamp:us:UTC"}),
    (pa.timestamp("ms", "Europe/Berlin"), {"type": "timestamp:ms:Europe/Berlin"}),
    (pa.timestamp("s", "+02:00"), {"type": "timestamp:s:+02:00"}),
    *((pa.duration(unit), {"type": f"duration:{unit}"}) for unit in ("s", "ms", "us", "ns")),
    (pa.decimal128(38, 10), {"type": "decimal:128:38:10"}),
    (pa.decimal256(76, 5), {"type": "decimal:256:76:5"}),
    (pa.dictionary(pa.int32(), pa.string()), {"type": "dict:string:int32:false"}),
    (pa.dictionary(pa.int8(), pa.large_string(), ordered=True), {"type": "dict:large_string:int8:true"}),
    (pa.list_(pa.float32()), {"type": "list", "fields": [ITEM]}),
    (pa.large_list(pa.float32()), {"type": "large_list", "fields": [ITEM]}),
    (pa.list_(pa.float32(), 4), {"type": "fixed_size_list", "fields": [ITEM], "length": 4}),
    (pa.binary(16), {"type": "fixed_size_binary", "length": 16}),
    (
        pa.struct([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.list_(pa.float32()))]),
        {
            "type": "struct",
            "fields": [
                {"name": "a", "nullable": False, "type": {"type": "int64"}},
                {"name": "b", "nullable": True, "type": {"type": "list", "fields": [ITEM]}},
            ],
        },
    ),
]


@pytest.mark.parametrize(("kind", "expected"), TYPES, ids=lambda value: str(value)[:30])
class TestTypes:
    def test_each_has_the_name_lance_gives_it(self, kind: pa.DataType, expected: dict[str, Any]) -> None:
        assert type_to_json(kind) == expected

    def test_each_is_read_back(self, kind: pa.DataType, expected: dict[str, Any]) -> None:
        assert type_from_json(expected) == kind


class TestFields:
    def test_a_field_says_whether_it_may_be_null(self) -> None:
        assert field_to_json(pa.field("a", pa.int8(), nullable=False)) == {
            "name": "a",
            "nullable": False,
            "type": {"type": "int8"},
        }

    def test_metadata_are_kept(self) -> None:
        field = pa.field("a", pa.int8(), metadata={"key": "value", "ü": b"\xff"})
        assert field_to_json(field)["metadata"] == {"key": "value", "ü": "\ufffd"}
        schema = pa.schema([field], metadata={"about": "it"})
        assert schema_to_json(schema)["metadata"] == {"about": "it"}
        assert "metadata" not in schema_to_json(pa.schema([]))

    def test_the_parameters_of_a_tensor_are_in_its_metadata(self) -> None:
        kind = pa.fixed_shape_tensor(pa.float32(), [2, 3], dim_names=["x", "y"])
        parameters = field_to_json(pa.field("a", kind))["metadata"]["ARROW:extension:metadata"]
        assert json.loads(parameters) == {"shape": [2, 3], "dim_names": ["x", "y"]}

    def test_an_extension_is_its_storage_under_its_name(self) -> None:
        answered = field_to_json(pa.field("doc", pa.json_()))
        assert answered["type"] == {"type": "string"}
        assert answered["metadata"]["ARROW:extension:name"] == "arrow.json"

    def test_views_are_what_they_view(self) -> None:
        assert type_to_json(pa.string_view()) == {"type": "string"}
        assert type_to_json(pa.binary_view()) == {"type": "binary"}

    @pytest.mark.parametrize(
        "given",
        [None, 7, [], {}, {"type": 1}, {"type": "nonsense"}, {"type": "list"}, "decimal:x", f"decimal:128:{10**12}:2"],
    )
    def test_what_is_no_type_is_refused(self, given: Any) -> None:
        with pytest.raises(InvalidInputError):
            type_from_json(given)
