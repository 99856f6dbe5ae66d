"""Types of Arrow as Spark's SQL names them, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from lance_namespace.errors import InvalidInputError
from sqlglot import exp

from pennon.views.sql.simple_select import quote, whole_number

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

_TYPES: dict[Any, pa.DataType] = {
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
#: Of a decimal, in Spark as in 128 bits.
_MOST_DIGITS = 38


def unfit_for_spark(kind: pa.DataType) -> str | None:
    """Return why values of a type would not survive their way through Spark, if they would not."""
    if isinstance(kind, pa.BaseExtensionType):
        return unfit_for_spark(kind.storage_type)
    if pa.types.is_decimal(kind) and not 0 <= kind.scale <= kind.precision <= _MOST_DIGITS:
        return f"Spark's decimals have {_MOST_DIGITS} digits at most"
    if (pa.types.is_timestamp(kind) or pa.types.is_time(kind) or pa.types.is_duration(kind)) and kind.unit == "ns":
        return "Spark keeps microseconds, and would cut off the rest"
    return next((reason for part in _parts(kind) if (reason := unfit_for_spark(part)) is not None), None)


def _parts(kind: pa.DataType) -> list[pa.DataType]:
    """Return the types that a type is made of."""
    if pa.types.is_dictionary(kind):
        return [kind.value_type]
    return [kind.field(index).type for index in range(kind.num_fields)]


def spark_name(kind: pa.DataType) -> str | None:
    """Return what Spark's SQL calls a type; none for one that it does not know."""
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
        return f"struct<{', '.join(f'{quote(field)}: {name}' for field, name in fields)}>" if known else None
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        value = spark_name(kind.value_type)
        return f"array<{value}>" if value else None
    if pa.types.is_map(kind):
        key, item = spark_name(kind.key_type), spark_name(kind.item_type)
        return f"map<{key}, {item}>" if key and item else None
    return None


def arrow_type(kind: exp.DataType | None) -> pa.DataType | None:
    """Return the type of Arrow for one of Spark's SQL; none when it is not known whole."""
    if kind is None:
        return None
    if kind.this in _TYPES:
        return _TYPES[kind.this]
    make = _NESTED.get(kind.this)
    return make(kind) if make is not None else None


def _decimal(kind: exp.DataType) -> pa.DataType | None:
    given = [whole_number(part.name) for part in kind.expressions]
    precision, scale = (*given, *_DEFAULT_DECIMAL[len(given) :])[:2]
    if precision is None or scale is None or not max(scale, 1) <= precision <= _MOST_DIGITS:
        raise InvalidInputError(f"There is no type {kind.sql('spark')}: a decimal has 1 to {_MOST_DIGITS} digits.")
    return pa.decimal128(precision, scale)


def _list(kind: exp.DataType) -> pa.DataType | None:
    value = arrow_type(kind.expressions[0]) if kind.expressions else None
    return pa.list_(value) if value is not None else None


def _struct(kind: exp.DataType) -> pa.DataType | None:
    fields = [(part.name, arrow_type(part.args.get("kind"))) for part in kind.expressions]
    if not fields or any(not name or value is None for name, value in fields):
        return None
    return pa.struct(fields)


def _map(kind: exp.DataType) -> pa.DataType | None:
    parts = [arrow_type(part) for part in kind.expressions]
    return pa.map_(*parts) if len(parts) == 2 and None not in parts else None


_NESTED: dict[Any, Callable[[exp.DataType], pa.DataType | None]] = {
    exp.DataType.Type.DECIMAL: _decimal,
    exp.DataType.Type.ARRAY: _list,
    exp.DataType.Type.LIST: _list,
    exp.DataType.Type.STRUCT: _struct,
    exp.DataType.Type.MAP: _map,
}
