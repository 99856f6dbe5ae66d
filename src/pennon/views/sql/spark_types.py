"""Names of Arrow types in Spark's SQL, and the reverse."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from lance_namespace.errors import InvalidInputError
from sqlglot import exp

from pennon.core.sql_names import quote_name
from pennon.views.sql.simple_select import parse_int64

_NAMES: dict[pa.DataType, str] = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.uint8(): "smallint",
    pa.uint16(): "int",
    pa.uint32(): "bigint",
    pa.uint64(): "decimal(20, 0)",
    pa.float16(): "float",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
    pa.date32(): "date",
    pa.date64(): "date",
}

_TYPES: dict[object, pa.DataType] = {
    exp.DataType.Type.BOOLEAN: pa.bool_(),
    exp.DataType.Type.TINYINT: pa.int8(),
    exp.DataType.Type.SMALLINT: pa.int16(),
    exp.DataType.Type.INT: pa.int32(),
    exp.DataType.Type.BIGINT: pa.int64(),
    exp.DataType.Type.FLOAT: pa.float32(),
    exp.DataType.Type.DOUBLE: pa.float64(),
    exp.DataType.Type.TEXT: pa.string(),
    exp.DataType.Type.VARCHAR: pa.string(),
    exp.DataType.Type.CHAR: pa.string(),
    exp.DataType.Type.BINARY: pa.binary(),
    exp.DataType.Type.VARBINARY: pa.binary(),
    exp.DataType.Type.DATE: pa.date32(),
    exp.DataType.Type.TIMESTAMP: pa.timestamp("us", "UTC"),
    exp.DataType.Type.TIMESTAMPTZ: pa.timestamp("us", "UTC"),
    exp.DataType.Type.TIMESTAMPLTZ: pa.timestamp("us", "UTC"),
    exp.DataType.Type.TIMESTAMPNTZ: pa.timestamp("us"),
}
_DEFAULT_DECIMAL = (10, 0)
#: The maximum precision of a decimal, in Spark and in 128 bits.
_MAX_DIGITS = 38


def why_unsupported(kind: pa.DataType) -> str | None:
    """Return why Spark cannot keep the values of a type unchanged; none if it can."""
    if isinstance(kind, pa.BaseExtensionType):
        return why_unsupported(kind.storage_type)
    if pa.types.is_decimal(kind) and not 0 <= kind.scale <= kind.precision <= _MAX_DIGITS:
        return f"Spark's decimals have {_MAX_DIGITS} digits at most"
    if (pa.types.is_timestamp(kind) or pa.types.is_time(kind) or pa.types.is_duration(kind)) and kind.unit == "ns":
        return "Spark truncates it to microseconds"
    return next((reason for part in _parts(kind) if (reason := why_unsupported(part)) is not None), None)


def _parts(kind: pa.DataType) -> list[pa.DataType]:
    """Return the child types of a type."""
    if pa.types.is_dictionary(kind):
        return [kind.value_type]
    return [kind.field(index).type for index in range(kind.num_fields)]


def spark_name(kind: pa.DataType) -> str | None:
    """Return the name of a type in Spark's SQL; none if Spark has no such type."""
    if isinstance(kind, pa.BaseExtensionType):
        return spark_name(kind.storage_type)
    if kind in _NAMES:
        return _NAMES[kind]
    if pa.types.is_timestamp(kind):
        return "timestamp_ntz" if kind.tz is None else "timestamp"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    if pa.types.is_dictionary(kind):
        return spark_name(kind.value_type)
    if pa.types.is_fixed_size_binary(kind):
        return "binary"
    return _nested_name(kind)


def _nested_name(kind: pa.DataType) -> str | None:
    if pa.types.is_struct(kind):
        fields = [(kind.field(i).name, spark_name(kind.field(i).type)) for i in range(kind.num_fields)]
        known = all(name for _, name in fields)
        return f"struct<{', '.join(f'{quote_name(field)}: {name}' for field, name in fields)}>" if known else None
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        value = spark_name(kind.value_type)
        return f"array<{value}>" if value else None
    if pa.types.is_map(kind):
        key, item = spark_name(kind.key_type), spark_name(kind.item_type)
        return f"map<{key}, {item}>" if key and item else None
    return None


def arrow_type(kind: exp.DataType | None) -> pa.DataType | None:
    """Return the Arrow type for a type of Spark's SQL; none if any part of it is unknown."""
    if kind is None:
        return None
    if kind.this in _TYPES:
        return _TYPES[kind.this]
    make = _NESTED.get(kind.this)
    return make(kind) if make is not None else None


def _decimal(kind: exp.DataType) -> pa.DataType | None:
    given = [parse_int64(part.name) for part in kind.expressions]
    precision, scale = (*given, *_DEFAULT_DECIMAL[len(given) :])[:2]
    if precision is None or scale is None or not max(scale, 1) <= precision <= _MAX_DIGITS:
        raise InvalidInputError(f"Invalid type {kind.sql('spark')}: a decimal has 1 to {_MAX_DIGITS} digits.")
    return pa.decimal128(precision, scale)


def _list(kind: exp.DataType) -> pa.DataType | None:
    value = arrow_type(kind.expressions[0]) if kind.expressions else None
    return pa.list_(value) if value is not None else None


def _struct(kind: exp.DataType) -> pa.DataType | None:
    types = [(part.name, arrow_type(part.args.get("kind"))) for part in kind.expressions]
    fields = [(name, value) for name, value in types if name and value is not None]
    return pa.struct(fields) if fields and len(fields) == len(types) else None


def _map(kind: exp.DataType) -> pa.DataType | None:
    if len(kind.expressions) != 2:
        return None
    key, item = map(arrow_type, kind.expressions)
    return None if key is None or item is None else pa.map_(key, item)


_NESTED: dict[object, Callable[[exp.DataType], pa.DataType | None]] = {
    exp.DataType.Type.DECIMAL: _decimal,
    exp.DataType.Type.ARRAY: _list,
    exp.DataType.Type.LIST: _list,
    exp.DataType.Type.STRUCT: _struct,
    exp.DataType.Type.MAP: _map,
}
