"""Arrow schemas as JSON, with Lance's names of logical types, which every client can read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict, cast

import pyarrow as pa
from lance_namespace.errors import InvalidInputError

if TYPE_CHECKING:
    from pennon.core.arrow_typing import AnyField


class TypeJson(TypedDict):
    """A type in the JSON of the specification."""

    type: str
    fields: NotRequired[list[FieldJson]]
    length: NotRequired[int]


class FieldJson(TypedDict):
    """A field in the JSON of the specification."""

    name: str
    nullable: bool
    type: TypeJson
    metadata: NotRequired[dict[str, str]]


class SchemaJson(TypedDict):
    """A schema in the JSON of the specification."""

    fields: list[FieldJson]
    metadata: NotRequired[dict[str, str]]


_PLAIN: dict[pa.DataType, str] = {
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


#: Types without parameters, by Lance's names and by the usual names of Arrow and SQL.
_BY_NAME: dict[str, pa.DataType] = {
    **{name: kind for kind, name in reversed(_PLAIN.items())},
    "boolean": pa.bool_(),
    "float16": pa.float16(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "utf8": pa.string(),
    "large_utf8": pa.large_string(),
    "largeutf8": pa.large_string(),
    "date32": pa.date32(),
    "date64": pa.date64(),
    "timestamp": pa.timestamp("us"),
}


def schema_to_json(schema: pa.Schema) -> SchemaJson:
    """Return a schema as JSON of the specification."""
    result: SchemaJson = {"fields": [field_to_json(field) for field in schema]}
    if schema.metadata:
        result["metadata"] = text_map(schema.metadata)
    return result


def field_to_json(field: AnyField) -> FieldJson:
    """Return a field as JSON of the specification."""
    result: FieldJson = {"name": field.name, "nullable": field.nullable, "type": type_to_json(field.type)}
    metadata = text_map(field.metadata)
    if isinstance(field.type, pa.BaseExtensionType):
        metadata = {**_extension_metadata(field.type), **metadata}
    if metadata:
        result["metadata"] = metadata
    return result


def _extension_metadata(kind: pa.BaseExtensionType) -> dict[str, str]:
    """Return the metadata of an extension type; Arrow does not expose it for the types it implements."""
    metadata = {"ARROW:extension:name": kind.extension_name}
    if isinstance(kind, pa.FixedShapeTensorType):
        parameters = {"shape": kind.shape, "dim_names": kind.dim_names, "permutation": kind.permutation}
        given = {name: value for name, value in parameters.items() if value is not None}
        metadata["ARROW:extension:metadata"] = json.dumps(given)
    return metadata


def type_to_json(kind: pa.DataType) -> TypeJson:
    """Return a type as JSON of the specification."""
    if isinstance(kind, pa.BaseExtensionType):
        return type_to_json(kind.storage_type)
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    nested = _nested_to_json(kind)
    return nested if nested is not None else {"type": _parametric_name(kind)}


def type_from_json(given: object) -> pa.DataType:
    """Return the type of a JSON value, by Lance's name or by Arrow's."""
    if isinstance(given, str):
        given = {"type": given}
    if not isinstance(given, dict) or not isinstance(given.get("type"), str):
        raise InvalidInputError("A data type must be a string or an object with a 'type'.")
    name = given["type"]
    if name.lower() in _BY_NAME:
        return _BY_NAME[name.lower()]
    try:
        nested = _nested_from_json(name, given)
        return nested if nested is not None else _parametric_type(name)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError):
        raise InvalidInputError(f"The data type {name!r} is unknown or incomplete.") from None


def field_from_json(given: object) -> AnyField:
    """Return the field of a JSON value."""
    if not isinstance(given, dict) or not isinstance(given.get("name"), str):
        raise InvalidInputError("A field must be an object with a name and a type.")
    return pa.field(
        given["name"], type_from_json(given.get("type")), given.get("nullable", True), given.get("metadata")
    )


def _nested_from_json(name: str, given: dict[str, Any]) -> pa.DataType | None:
    kind, _, rest = name.lower().partition(":")
    if kind == "struct":
        return pa.struct([field_from_json(field) for field in given["fields"]])
    if kind == "fixed_size_list":
        if rest:
            value, _, length = name.partition(":")[2].rpartition(":")
            return pa.list_(type_from_json(value), int(length))
        return pa.list_(field_from_json(given["fields"][0]), int(given["length"]))
    if kind == "list":
        return pa.list_(field_from_json(given["fields"][0]))
    if kind == "large_list":
        return pa.large_list(field_from_json(given["fields"][0]))
    if kind == "map":
        key, item = (field_from_json(field) for field in given["fields"])
        return pa.map_(cast("pa.DataType", key), cast("pa.DataType", item))  # the stubs know no fields here
    if kind == "fixed_size_binary":
        return pa.binary(int(rest or given["length"]))
    return None


def _parametric_type(name: str) -> pa.DataType:
    kind, *texts = name.split(":")
    parts: list[Any] = list(texts)  # pyarrow checks the units
    makers: dict[str, Callable[[], pa.DataType]] = {
        "timestamp": lambda: pa.timestamp(parts[0], None if ":".join(parts[1:]) in {"", "-"} else ":".join(parts[1:])),
        "time32": lambda: pa.time32(parts[0]),
        "time64": lambda: pa.time64(parts[0]),
        "duration": lambda: pa.duration(parts[0]),
        "decimal": lambda: (pa.decimal256 if parts[0] == "256" else pa.decimal128)(int(parts[1]), int(parts[2])),
        "dict": lambda: _dictionary(type_from_json(parts[1]), type_from_json(parts[0]), ordered=parts[2] == "true"),
    }
    return makers[kind.lower()]()


def _dictionary(index: Any, values: Any, *, ordered: Any) -> pa.DataType:
    return pa.dictionary(index, values, ordered)  # pyarrow checks that the index is an integer


def _nested_to_json(kind: pa.DataType) -> TypeJson | None:
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


def text_map(metadata: Mapping[bytes, bytes] | None) -> dict[str, str]:
    """Return the metadata of a field or a schema as strings."""
    return {key.decode(errors="replace"): value.decode(errors="replace") for key, value in (metadata or {}).items()}
