"""Translation of Spark's filters into Lance's, where both mean the same or Lance's keeps more rows."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

    from pennon.core.arrow_typing import AnyField

_SIGNS = {
    "EqualTo": "=",
    "EqualNullSafe": "=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
}
_TEXT = {"StringStartsWith": "starts_with", "StringEndsWith": "ends_with", "StringContains": "contains"}
_ZONES = ("UTC", "Etc/UTC", "Z", "+00:00")
_UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1}


@dataclass(frozen=True)
class LanceFilter:
    """A filter in Lance's SQL."""

    text: str
    #: Whether it means the same as Spark's filter, which then need not be evaluated.
    is_exact: bool = True


class NotTranslatableError(Exception):
    """A filter has no equivalent in Lance; Spark must evaluate it."""


def translate(given: Filter, schema: pa.Schema) -> LanceFilter | None:
    """Translate a filter; none if Spark must evaluate it."""
    try:
        return _translate(given, schema)
    except NotTranslatableError:
        return None


def _translate(given: Any, schema: pa.Schema) -> LanceFilter:
    kind = type(given).__name__
    if kind == "Not":
        return _negated(given.child, schema)
    name, field = _column(given.attribute, schema)
    if kind in {"IsNull", "IsNotNull"}:
        return LanceFilter(f"{name} IS {'NOT ' if kind == 'IsNotNull' else ''}NULL")
    if kind == "In":
        literals = [_literal(value, field.type) for value in given.value if value is not None]
        _refuse_floats(field.type)
        if not literals:
            raise NotTranslatableError
        return LanceFilter(f"{name} IN ({', '.join(literals)})")
    if kind in _TEXT and _is_text(field.type):
        return LanceFilter(f"{_TEXT[kind]}({name}, {_literal(given.value, field.type)})")
    if kind not in _SIGNS or given.value is None:
        raise NotTranslatableError
    literal = _literal(given.value, field.type)
    if pa.types.is_floating(field.type):
        # In Spark, NaN is the largest number. In Lance, its order depends on whether an index is used.
        return LanceFilter(f"({name} {_SIGNS[kind]} {literal} OR isnan({name}))", is_exact=False)
    return LanceFilter(f"{name} {_SIGNS[kind]} {literal}")


def _negated(child: Any, schema: pa.Schema) -> LanceFilter:
    kind = type(child).__name__
    if kind == "EqualNullSafe" or (kind == "In" and None in child.value):
        raise NotTranslatableError
    inner = _translate(child, schema)
    if not inner.is_exact:
        raise NotTranslatableError
    return LanceFilter(f"NOT ({inner.text})")


def _column(path: Sequence[str], schema: pa.Schema) -> tuple[str, AnyField]:
    """Return the SQL name of a column or of a struct field, and its field."""
    # Lance cannot parse a quoted name that contains a backtick.
    if any("`" in part for part in path) or path[0] not in schema.names:
        raise NotTranslatableError
    field = schema.field(path[0])
    for part in path[1:]:
        index = field.type.get_field_index(part) if pa.types.is_struct(field.type) else -1
        if index < 0:
            raise NotTranslatableError
        field = field.type.field(index)
    if pa.types.is_large_binary(field.type):
        raise NotTranslatableError  # it may be a blob, which is stored as a descriptor
    return ".".join(f"`{part}`" for part in path), field


def _literal(value: object, kind: pa.DataType) -> str:
    """Return a value as a SQL literal that Lance parses as the type of the column."""
    if pa.types.is_boolean(kind) and isinstance(value, bool):
        return str(value).lower()
    if pa.types.is_integer(kind):
        return _integer(value, kind)
    if kind in {pa.float32(), pa.float64()} and isinstance(value, float):
        # Spark treats 0.0 and -0.0 as equal; Lance does not always.
        if value == 0 or not math.isfinite(value):
            raise NotTranslatableError
        return repr(value)
    if _is_text(kind) and isinstance(value, str) and "\0" not in value:
        return "'" + value.replace("'", "''") + "'"
    if pa.types.is_decimal128(kind) and isinstance(value, decimal.Decimal):
        return _decimal(value, kind)
    if pa.types.is_date32(kind) and type(value) is dt.date:
        return f"date '{value.isoformat()}'"
    if pa.types.is_timestamp(kind) and isinstance(value, dt.datetime):
        return _timestamp(value, kind)
    raise NotTranslatableError


def _integer(value: object, kind: pa.DataType) -> str:
    if isinstance(value, decimal.Decimal) and value == value.to_integral_value():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise NotTranslatableError
    unsigned = pa.types.is_unsigned_integer(kind)
    highest = 2 ** (kind.bit_width - (0 if unsigned else 1)) - 1
    # Lance parses the sign separately from the digits, so the lowest number overflows.
    if not (0 if unsigned else -highest) <= value <= highest:
        raise NotTranslatableError
    return str(value)


def _decimal(value: decimal.Decimal, kind: pa.Decimal128Type) -> str:
    digits = -int(value.as_tuple().exponent)
    if not value.is_finite() or digits > kind.scale or abs(value) >= 10 ** (kind.precision - kind.scale):
        raise NotTranslatableError
    return f"cast('{value:f}' AS decimal({kind.precision}, {kind.scale}))"


def _timestamp(value: dt.datetime, kind: pa.TimestampType) -> str:
    # Spark compares times without their nanoseconds, and a coarser column must be able to hold the value. Lance
    # interprets a literal as local time in the zone of the column.
    if kind.unit not in _UNITS or value.microsecond % _UNITS[kind.unit] or kind.tz not in {None, *_ZONES}:
        raise NotTranslatableError
    if (value.tzinfo is None) != (kind.tz is None):
        raise NotTranslatableError
    if value.tzinfo is not None:
        value = value.astimezone(dt.UTC)
    return f"timestamp '{value.isoformat(sep=' ')}'"


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _refuse_floats(kind: pa.DataType) -> None:
    if pa.types.is_floating(kind):
        raise NotTranslatableError
