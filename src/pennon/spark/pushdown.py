"""Filters of Spark as filters of Lance: only where both mean the same, or where Lance's keeps more rows."""

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
class Condition:
    """A filter of Lance."""

    text: str
    #: Whether Spark need not look again.
    exact: bool = True


class NoConditionError(Exception):
    """Spark has to evaluate a filter alone."""


def translate(given: Filter, schema: pa.Schema) -> Condition | None:
    """Return what Lance makes of a filter; none when it is left to Spark."""
    try:
        return _translate(given, schema)
    except NoConditionError:
        return None


def _translate(given: Any, schema: pa.Schema) -> Condition:
    kind = type(given).__name__
    if kind == "Not":
        return _negated(given.child, schema)
    name, field = _column(given.attribute, schema)
    if kind in {"IsNull", "IsNotNull"}:
        return Condition(f"{name} IS {'NOT ' if kind == 'IsNotNull' else ''}NULL")
    if kind == "In":
        literals = [_literal(value, field.type) for value in given.value if value is not None]
        _refuse_floats(field.type)
        if not literals:
            raise NoConditionError
        return Condition(f"{name} IN ({', '.join(literals)})")
    if kind in _TEXT and _is_text(field.type):
        return Condition(f"{_TEXT[kind]}({name}, {_literal(given.value, field.type)})")
    if kind not in _SIGNS or given.value is None:
        raise NoConditionError
    literal = _literal(given.value, field.type)
    if pa.types.is_floating(field.type):
        # Spark's NaN is the largest number. What Lance takes it for depends on whether an index answers.
        return Condition(f"({name} {_SIGNS[kind]} {literal} OR isnan({name}))", exact=False)
    return Condition(f"{name} {_SIGNS[kind]} {literal}")


def _negated(child: Any, schema: pa.Schema) -> Condition:
    kind = type(child).__name__
    if kind == "EqualNullSafe" or (kind == "In" and None in child.value):
        raise NoConditionError
    inner = _translate(child, schema)
    if not inner.exact:
        raise NoConditionError
    return Condition(f"NOT ({inner.text})")


def _column(path: Sequence[str], schema: pa.Schema) -> tuple[str, pa.Field]:
    """Return how Lance calls a column or a field of a struct, and what it is."""
    # Lance cannot tell a backtick in a name from the end of the name.
    if any("`" in part for part in path) or path[0] not in schema.names:
        raise NoConditionError
    field = schema.field(path[0])
    for part in path[1:]:
        index = field.type.get_field_index(part) if pa.types.is_struct(field.type) else -1
        if index < 0:
            raise NoConditionError
        field = field.type.field(index)
    if pa.types.is_large_binary(field.type):
        raise NoConditionError  # blobs look like this, and are kept as something else
    return ".".join(f"`{part}`" for part in path), field


def _literal(value: Any, kind: pa.DataType) -> str:
    """Write a value as Lance reads it back in the column's own type, or give up."""
    if pa.types.is_boolean(kind) and isinstance(value, bool):
        return str(value).lower()
    if pa.types.is_integer(kind):
        return _integer(value, kind)
    if kind in {pa.float32(), pa.float64()} and isinstance(value, float):
        # Zero has two forms that Spark holds for one, and Lance does not always.
        if value == 0 or not math.isfinite(value):
            raise NoConditionError
        return repr(value)
    if _is_text(kind) and isinstance(value, str) and "\0" not in value:
        return "'" + value.replace("'", "''") + "'"
    if pa.types.is_decimal128(kind) and isinstance(value, decimal.Decimal):
        return _decimal(value, kind)
    if pa.types.is_date32(kind) and type(value) is dt.date:
        return f"date '{value.isoformat()}'"
    if pa.types.is_timestamp(kind) and isinstance(value, dt.datetime):
        return _timestamp(value, kind)
    raise NoConditionError


def _integer(value: Any, kind: pa.DataType) -> str:
    if isinstance(value, decimal.Decimal) and value == value.to_integral_value():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise NoConditionError
    unsigned = pa.types.is_unsigned_integer(kind)
    highest = 2 ** (kind.bit_width - (0 if unsigned else 1)) - 1
    # Lance reads the sign apart from the digits, so the lowest number is one too many for it.
    if not (0 if unsigned else -highest) <= value <= highest:
        raise NoConditionError
    return str(value)


def _decimal(value: decimal.Decimal, kind: pa.Decimal128Type) -> str:
    digits = -int(value.as_tuple().exponent)
    if not value.is_finite() or digits > kind.scale or abs(value) >= 10 ** (kind.precision - kind.scale):
        raise NoConditionError
    return f"cast('{value:f}' AS decimal({kind.precision}, {kind.scale}))"


def _timestamp(value: dt.datetime, kind: pa.TimestampType) -> str:
    # Spark compares what is left of a time after its nanoseconds are cut off; coarser ones must hold the value. Lance
    # takes a literal for the time of a clock in the column's own zone.
    if kind.unit not in _UNITS or value.microsecond % _UNITS[kind.unit] or kind.tz not in {None, *_ZONES}:
        raise NoConditionError
    if (value.tzinfo is None) != (kind.tz is None):
        raise NoConditionError
    if value.tzinfo is not None:
        value = value.astimezone(dt.UTC)
    return f"timestamp '{value.isoformat(sep=' ')}'"


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _refuse_floats(kind: pa.DataType) -> None:
    if pa.types.is_floating(kind):
        raise NoConditionError
