"""Conversion of types and values between Lance and Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, cast

import pyarrow as pa
import pyarrow.compute as pc
from lance_namespace.errors import TableSchemaValidationError

from pennon.tables.blobs import is_blob

if TYPE_CHECKING:
    from typing import Any

    from pyspark.sql.types import DataType, StructType

    from pennon.core.arrow_typing import AnyArray, AnyField

#: What a cast does with values that do not fit: truncate nanoseconds, refuse any change, or round numbers.
CastMode = Literal["truncate", "exact", "round"]

#: Columns that Lance has for every row outside of the schema. Their values stay below 2**63.
ROW_COLUMNS = ("_rowid", "_rowaddr", "_row_created_at_version", "_row_last_updated_at_version")
_BFLOAT16 = "lance.bfloat16"
_MOST_DIGITS = 38
#: Estimated bytes of a value whose type has no fixed width.
_TEXT_BYTES, _LIST_BYTES, _BLOB_BYTES = 32, 256, 64 * 1024
_SECONDS_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def spark_schema(schema: pa.Schema) -> StructType:
    """Return the schema that Spark sees. Every column is nullable, as in Spark's own file sources."""
    from pyspark.sql.types import LongType, StructField, StructType

    return StructType(
        [
            StructField(field.name, LongType() if field.name in ROW_COLUMNS else _spark_type(field.name, field.type))
            for field in schema
        ]
    )


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema in which Spark passes and expects values."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")


def to_spark(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Convert rows of Lance for Spark; nanoseconds are truncated to microseconds."""
    arrays = [_cast(batch.column(field.name), field.type, mode="truncate") for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def to_lance(batch: pa.RecordBatch, schema: pa.Schema, *, rounding: bool = False) -> pa.RecordBatch:
    """Convert rows of Spark for a table; a value that would change is refused.

    With rounding, numbers become the nearest ones that a floating-point column can hold.
    """
    arrays: list[AnyArray] = []
    for field in schema:
        is_given = field.name in batch.schema.names
        array = batch.column(field.name) if is_given else _nulls(len(batch), field.type)
        try:
            arrays.append(_cast(array, field.type, mode="round" if rounding else "exact"))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise TableSchemaValidationError(
                f"The column {field.name!r} has type {field.type}, which cannot hold all values: {error}"
            ) from None
        if not field.nullable and arrays[-1].null_count:
            raise TableSchemaValidationError(f"The column {field.name!r} is not nullable, but some rows have null.")
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def check_writable(rows: StructType, table: pa.Schema) -> None:
    """Raise TableSchemaValidationError if the types of rows from Spark do not fit a table."""
    given = arrow_schema(rows)
    unknown = [name for name in given.names if name not in table.names]
    if unknown:
        raise TableSchemaValidationError(
            f"The table has no column {unknown[0]!r}; it has {', '.join(table.names)}. Add the column first, or drop "
            "it from the rows."
        )
    for field in table:
        _check_field(field, given)


def _check_field(field: AnyField, given: pa.Schema) -> None:
    if is_blob(field):
        raise TableSchemaValidationError(
            f"The column {field.name!r} holds blobs, which Spark cannot write; write them with pylance."
        )
    if field.name not in given.names:
        if not field.nullable:
            raise TableSchemaValidationError(f"The rows have no column {field.name!r}, which is not nullable.")
        return
    source = given.field(field.name).type
    try:
        _cast(_nulls(0, source), field.type, mode="exact")
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise TableSchemaValidationError(
            f"The column {field.name!r} has type {field.type}, but the rows have {source}; cast it."
        ) from None


def estimate_width(field: AnyField) -> int:
    """Estimate the bytes per value of a column."""
    kind = field.type
    if is_blob(field):
        return _BLOB_BYTES
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size) * estimate_width(kind.value_field)
    if pa.types.is_struct(kind):
        return sum(estimate_width(child) for child in kind)
    try:
        return max(1, int(kind.bit_width) // 8)
    except ValueError:
        return _TEXT_BYTES if not pa.types.is_nested(kind) else _LIST_BYTES


def _spark_type(name: str, kind: pa.DataType) -> DataType:
    found = _scalar_type(kind) or _nested_type(name, kind)
    if found is None:
        raise TableSchemaValidationError(
            f"Spark has no type for {kind}, the type of the column {name!r}; omit it with the option 'columns'."
        )
    return found


def _scalar_type(kind: pa.DataType) -> DataType | None:
    from pyspark.sql import types as spark

    plain: dict[pa.DataType, DataType] = {
        pa.null(): spark.NullType(),
        pa.bool_(): spark.BooleanType(),
        pa.int8(): spark.ByteType(),
        pa.int16(): spark.ShortType(),
        pa.int32(): spark.IntegerType(),
        pa.int64(): spark.LongType(),
        pa.uint8(): spark.ShortType(),
        pa.uint16(): spark.IntegerType(),
        pa.uint32(): spark.LongType(),
        pa.uint64(): spark.DecimalType(20, 0),
        pa.float16(): spark.FloatType(),
        pa.float32(): spark.FloatType(),
        pa.float64(): spark.DoubleType(),
        pa.string(): spark.StringType(),
        pa.large_string(): spark.StringType(),
        pa.binary(): spark.BinaryType(),
        pa.large_binary(): spark.BinaryType(),
        pa.date32(): spark.DateType(),
        pa.date64(): spark.DateType(),
    }
    # Some extension types are not hashable.
    if not isinstance(kind, pa.BaseExtensionType) and kind in plain:
        return plain[kind]
    if pa.types.is_fixed_size_binary(kind):
        return spark.BinaryType()
    if pa.types.is_decimal(kind):
        fits = 0 <= kind.scale <= kind.precision <= _MOST_DIGITS
        return spark.DecimalType(kind.precision, kind.scale) if fits else None
    if pa.types.is_timestamp(kind):
        return spark.TimestampNTZType() if kind.tz is None else spark.TimestampType()
    if pa.types.is_time(kind):
        return spark.TimeType(min(_SECONDS_DIGITS[kind.unit], 6))
    return spark.DayTimeIntervalType() if pa.types.is_duration(kind) else None


def _nested_type(name: str, kind: pa.DataType) -> DataType | None:
    from pyspark.sql.types import ArrayType, FloatType, MapType, StructField, StructType

    if isinstance(kind, pa.BaseExtensionType):
        return FloatType() if kind.extension_name == _BFLOAT16 else _spark_type(name, kind.storage_type)
    if pa.types.is_dictionary(kind):
        return _spark_type(name, kind.value_type)
    if pa.types.is_map(kind):
        return MapType(_spark_type(name, kind.key_type), _spark_type(name, kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return ArrayType(_spark_type(name, kind.value_type))
    if pa.types.is_struct(kind):
        return StructType([StructField(field.name, _spark_type(f"{name}.{field.name}", field.type)) for field in kind])
    return None


def _nulls(count: int, kind: pa.DataType) -> AnyArray:
    # The stubs have one overload per concrete type, and none for a type in general.
    return cast("AnyArray", pa.nulls(count, kind))  # type: ignore[call-overload]


def _cast(array: AnyArray, kind: pa.DataType, *, mode: CastMode) -> AnyArray:
    """Cast an array, including nested types that Arrow cannot cast."""
    source = array.type
    if source == kind:
        return array
    if isinstance(array, pa.ExtensionArray):
        is_bfloat16 = source.extension_name == _BFLOAT16
        return _cast(_bfloat16_to_float32(array) if is_bfloat16 else array.storage, kind, mode=mode)
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, _cast(array, kind.storage_type, mode=mode))
    if isinstance(array, pa.StructArray) and pa.types.is_struct(kind):
        return _cast_struct(array, kind, mode=mode)
    if isinstance(array, pa.MapArray) and pa.types.is_map(kind):
        return _cast_map(array, kind, mode=mode)
    if _is_list(source) and _is_list(kind):
        return _cast_list(array, kind, mode=mode)
    if isinstance(array, pa.DictionaryArray):
        return _cast(array.dictionary_decode(), kind, mode=mode)
    if pa.types.is_dictionary(kind):
        return _cast(array, kind.value_type, mode=mode).dictionary_encode().cast(kind)
    return _cast_leaf(array, kind, mode=mode)


def _cast_struct(array: pa.StructArray, kind: pa.StructType, *, mode: CastMode) -> pa.StructArray:
    names = [field.name for field in array.type]
    if sorted(names) != sorted(field.name for field in kind):
        expected = ", ".join(field.name for field in kind)
        raise pa.ArrowInvalid(f"a struct has the fields {', '.join(names)} instead of {expected}")
    # array.field() ignores the nulls of the struct itself; flatten() would apply them to the fields.
    children = [_cast(array.field(names.index(field.name)), field.type, mode=mode) for field in kind]
    if not len(kind):
        return array
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=array.is_null())


def _cast_map(array: pa.MapArray[Any, Any], kind: pa.MapType[Any, Any, Any], *, mode: CastMode) -> AnyArray:
    array = cast("pa.MapArray[Any, Any]", _without_offset(array))
    keys, items = _cast(array.keys, kind.key_type, mode=mode), _cast(array.items, kind.item_type, mode=mode)
    made = pa.MapArray.from_arrays(array.offsets, keys, items, type=kind, mask=array.is_null())  # type: ignore[call-overload]  # the stubs take lists only
    return cast("AnyArray", made)


def _cast_list(array: AnyArray, kind: Any, *, mode: CastMode) -> AnyArray:
    source: Any = array
    if pa.types.is_fixed_size_list(kind):
        if not pa.types.is_fixed_size_list(array.type):
            is_wrong = pc.any(pc.not_equal(pc.list_value_length(source), kind.list_size)).as_py()
            if is_wrong:
                raise pa.ArrowInvalid(f"a list does not have {kind.list_size} values")
        return _fixed_size_list(_cast(source.flatten(), kind.value_type, mode=mode), array, kind)
    if pa.types.is_fixed_size_list(array.type):
        source = pc.cast(array, pa.list_(array.type.value_field))
    source = _without_offset(source)
    values = _cast(source.values, kind.value_type, mode=mode)
    is_large = pa.types.is_large_list(kind)
    offsets: Any = pc.cast(source.offsets, pa.int64() if is_large else pa.int32())
    mask = source.is_null() if source.null_count else None
    list_array: Any = pa.LargeListArray if is_large else pa.ListArray
    return cast("AnyArray", list_array.from_arrays(offsets, values, type=kind, mask=mask))


def _without_offset(array: AnyArray) -> AnyArray:
    """Copy an array whose buffers begin earlier: Arrow refuses such offsets together with nulls."""
    return array.take(pa.array(range(len(array)), pa.int64())) if array.offset else array


def _fixed_size_list(values: AnyArray, array: AnyArray, kind: pa.FixedSizeListType[Any, Any]) -> AnyArray:
    """Build fixed-size lists from the values of the lists of an array that are not null, in order."""
    dense = cast("AnyArray", pa.FixedSizeListArray.from_arrays(values, type=kind))  # type: ignore[call-overload]  # the stubs take no type
    if not array.null_count:
        return dense
    rows = pc.subtract(pc.cumulative_sum(pc.cast(array.is_valid(), pa.int64())), 1)
    return dense.take(pc.if_else(array.is_valid(), rows, None))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _bfloat16_to_float32(array: pa.ExtensionArray[Any]) -> AnyArray:
    """Return bfloat16 numbers as float32; they are its upper 16 bits."""
    import numpy as np

    storage = array.storage
    data = np.frombuffer(storage.buffers()[1], dtype="<u2")[storage.offset : storage.offset + len(storage)]
    wide = (data.astype("<u4") << 16).view("<f4")
    return pa.array(wide, pa.float32(), mask=np.asarray(storage.is_null()))


def _cast_leaf(array: AnyArray, kind: pa.DataType, *, mode: CastMode) -> AnyArray:
    source = array.type
    if pa.types.is_null(source):
        return _nulls(len(array), kind)
    if _family(source) != _family(kind):
        raise pa.ArrowInvalid(f"{source} cannot become {kind}")
    # Nanoseconds are the only values that Spark cannot hold; any other value that does not fit is an error.
    made = pc.cast(array, kind, safe=not (mode == "truncate" and getattr(source, "unit", None) == "ns"))
    if mode == "exact" and pa.types.is_floating(kind) and not _is_lossless(array, made):
        raise pa.ArrowInvalid("some numbers are rounded; round them first, or allow it with the option 'round_floats'")
    return made


def _family(kind: pa.DataType) -> str:
    """Return the group of types that a type may be cast within. Arrow allows more casts, which change the meaning."""
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "number"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "text"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return "binary"
    if pa.types.is_timestamp(kind):
        return "time of a clock" if kind.tz is None else "instant"
    for name, is_one in (("date", pa.types.is_date), ("time", pa.types.is_time), ("span", pa.types.is_duration)):
        if is_one(kind):
            return name
    return str(kind)


def _is_lossless(given: AnyArray, made: AnyArray) -> bool:
    """Return whether numbers are unchanged by a cast to floating point; NaN equals NaN."""
    try:
        back = pc.cast(made, given.type)
    except pa.ArrowInvalid:
        return False
    same = pc.equal(back, given)
    if pa.types.is_floating(given.type):
        same = pc.or_(same, pc.and_(pc.is_nan(back), pc.is_nan(given)))
    return bool(pc.all(same, min_count=0).as_py())
