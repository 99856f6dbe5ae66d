"""Arrow types as the protocol's JSON, with the names that Lance gives them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

_BY_ARROW_NAME = {
    "halffloat": "halffloat",
    "float": "float",
    "double": "double",
    "string_view": "string",
    "binary_view": "binary",
    "date32[day]": "date32:day",
    "date64[ms]": "date64:ms",
}
_SAME = {"null", "bool", "string", "large_string", "binary", "large_binary"}
_INTEGERS = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}


def type_to_json(kind: pa.DataType) -> dict[str, Any]:
    """Return a type as JSON, or say that the protocol has no name for it."""
    if isinstance(kind, pa.BaseExtensionType):
        return type_to_json(kind.storage_type)
    name = str(kind)
    if name in _SAME or name in _INTEGERS:
        return {"type": name}
    if name in _BY_ARROW_NAME:
        return {"type": _BY_ARROW_NAME[name]}
    return _nested(kind) or {"type": _parametric(kind)}


def field_to_json(field: pa.Field) -> dict[str, Any]:
    """Return a field of a nested type as JSON."""
    return {"name": field.name, "nullable": field.nullable, "type": type_to_json(field.type)}


def _nested(kind: pa.DataType) -> dict[str, Any] | None:
    if pa.types.is_struct(kind):
        return {"type": "struct", "fields": [field_to_json(kind.field(i)) for i in range(kind.num_fields)]}
    if pa.types.is_fixed_size_list(kind):
        return {"type": "fixed_size_list", "fields": [field_to_json(kind.value_field)], "length": kind.list_size}
    if pa.types.is_large_list(kind):
        return {"type": "large_list", "fields": [field_to_json(kind.value_field)]}
    if pa.types.is_list(kind):
        return {"type": "list", "fields": [field_to_json(kind.value_field)]}
    if pa.types.is_map(kind):
        return {"type": "map", "fields": [field_to_json(kind.key_field), field_to_json(kind.item_field)]}
    if pa.types.is_fixed_size_binary(kind):
        return {"type": "fixed_size_binary", "length": kind.byte_width}
    return None


def _parametric(kind: pa.DataType) -> str:
    if pa.types.is_timestamp(kind):
        return f"timestamp:{kind.unit}:{kind.tz or '-'}"
    if pa.types.is_time32(kind):
        return f"time32:{kind.unit}"
    if pa.types.is_time64(kind):
        return f"time64:{kind.unit}"
    if pa.types.is_duration(kind):
        return f"duration:{kind.unit}"
    if pa.types.is_decimal128(kind) or pa.types.is_decimal256(kind):
        return f"decimal:{kind.bit_width}:{kind.precision}:{kind.scale}"
    if pa.types.is_dictionary(kind):
        value, index = type_to_json(kind.value_type)["type"], type_to_json(kind.index_type)["type"]
        return f"dict:{value}:{index}:{str(kind.ordered).lower()}"
    raise TypeError(f"A column cannot have the type {kind}: a Lance table has no such type.")
