"""Arrow schemas as JSON, with the names Lance gives to logical types: the dialect every client can read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

Json = dict[str, Any]

_PLAIN = {
    pa.null(): "null",
    pa.bool_(): "bool",
    pa.int8(): "int8",
    pa.int16(): "int16",
    pa.int32(): "int32",
    pa.int64(): "int64",
    pa.uint8(): "uint8",
    pa.uint16(): "uint16",
    pa.uint32(): "uint32",
    pa.uint64(): "uint64",
    pa.float16(): "halffloat",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.string_view(): "string",
    pa.large_string(): "large_string",
    pa.binary(): "binary",
    pa.binary_view(): "binary",
    pa.large_binary(): "large_binary",
    pa.date32(): "date32:day",
    pa.date64(): "date64:ms",
}


def schema_to_json(schema: pa.Schema) -> Json:
    """Return a schema as the protocol's JSON."""
    answer: Json = {"fields": [field_to_json(field) for field in schema]}
    if schema.metadata:
        answer["metadata"] = _text_map(schema.metadata)
    return answer


def field_to_json(field: pa.Field) -> Json:
    """Return a field as the protocol's JSON."""
    answer: Json = {"name": field.name, "nullable": field.nullable, "type": type_to_json(field.type)}
    metadata = _text_map(field.metadata or {})
    if isinstance(field.type, pa.BaseExtensionType):
        metadata.setdefault("ARROW:extension:name", field.type.extension_name)
    if metadata:
        answer["metadata"] = metadata
    return answer


def type_to_json(kind: pa.DataType) -> Json:
    """Return a type as the protocol's JSON."""
    if isinstance(kind, pa.BaseExtensionType):
        return type_to_json(kind.storage_type)
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    nested = _nested_to_json(kind)
    return nested if nested is not None else {"type": _parametric_name(kind)}


def _nested_to_json(kind: pa.DataType) -> Json | None:
    if pa.types.is_struct(kind):
        return {"type": "struct", "fields": [field_to_json(kind.field(i)) for i in range(kind.num_fields)]}
    if pa.types.is_fixed_size_list(kind):
        return {
            "type": "fixed_size_list",
            "fields": [field_to_json(kind.value_field)],
            "length": kind.list_size,
        }
    if pa.types.is_large_list(kind):
        return {"type": "large_list", "fields": [field_to_json(kind.value_field)]}
    if pa.types.is_list(kind):
        return {"type": "list", "fields": [field_to_json(kind.value_field)]}
    if pa.types.is_map(kind):
        return {"type": "map", "fields": [field_to_json(kind.key_field), field_to_json(kind.item_field)]}
    if pa.types.is_fixed_size_binary(kind):
        return {"type": "fixed_size_binary", "length": kind.byte_width}
    return None


def _parametric_name(kind: pa.DataType) -> str:
    if pa.types.is_timestamp(kind):
        return f"timestamp:{kind.unit}:{kind.tz or '-'}"
    if pa.types.is_time32(kind):
        return f"time32:{kind.unit}"
    if pa.types.is_time64(kind):
        return f"time64:{kind.unit}"
    if pa.types.is_duration(kind):
        return f"duration:{kind.unit}"
    if pa.types.is_decimal(kind):
        return f"decimal:{kind.bit_width}:{kind.precision}:{kind.scale}"
    if pa.types.is_dictionary(kind):
        value, index = type_to_json(kind.value_type)["type"], type_to_json(kind.index_type)["type"]
        return f"dict:{value}:{index}:{str(kind.ordered).lower()}"
    return str(kind)


def _text_map(metadata: Mapping[bytes, bytes]) -> dict[str, str]:
    return {key.decode(errors="replace"): value.decode(errors="replace") for key, value in metadata.items()}
