"""The types of Lance's columns in Spark, and values on the way in and out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from lance_namespace.errors import TableSchemaValidationError

from pennon.tables.blobs import is_blob

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

#: What happens to what a type cannot hold: nanoseconds are cut off, nothing may be changed, or numbers are rounded.
How = Literal["cut", "keep", "round"]

#: Columns that Lance has of every row without their being in the schema. None of them ever reaches 2**63.
ROW_COLUMNS = ("_rowid", "_rowaddr", "_row_created_at_version", "_row_last_updated_at_version")
_BFLOAT16 = "lance.bfloat16"
_MOST_DIGITS = 38
#: Bytes of values whose types do not tell.
_TEXT_BYTES, _LIST_BYTES, _BLOB_BYTES = 32, 256, 64 * 1024
_SECONDS_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def spark_schema(schema: pa.Schema) -> StructType:
    """Return the schema that Spark sees; every column may hold nulls, as in Spark's own sources of files."""
    from pyspark.sql.types import LongType, StructField, StructType

    return StructType(
        [
            StructField(field.name, LongType() if field.name in ROW_COLUMNS else _spark_type(field.name, field.type))
            for field in schema
        ]
    )


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the types in which Spark hands over and expects values."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")


def to_spark(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows of Lance as Spark takes them; a part of a microsecond is cut off."""
    arrays = [_as(batch.column(field.name), field.type, how="cut") for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def to_lance(batch: pa.RecordBatch, schema: pa.Schema, *, rounding: bool = False) -> pa.RecordBatch:
    """Return rows of Spark as a table of this schema stores them; what would be changed by that is refused.

    With rounding, numbers become the nearest ones that a column of floating point has.
    """
    arrays = []
    for field in schema:
        array = batch.column(field.name) if field.name in batch.schema.names else pa.nulls(len(batch), field.type)
        try:
            arrays.append(_as(array, field.type, how="round" if rounding else "keep"))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise TableSchemaValidationError(
                f"The column {field.name!r} is {field.type} in the table, and not all values fit: {error}"
            ) from None
        if not field.nullable and arrays[-1].null_count:
            raise TableSchemaValidationError(f"The column {field.name!r} may not be null, and some rows are.")
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def check_writable(rows: StructType, table: pa.Schema) -> None:
    """Raise unless rows of Spark can become rows of a table, as far as the types tell."""
    given = arrow_schema(rows)
    unknown = [name for name in given.names if name not in table.names]
    if unknown:
        raise TableSchemaValidationError(
            f"The table has no column {unknown[0]!r}; it has {', '.join(table.names)}. Add the column first, or drop "
            "it from the rows."
        )
    for field in table:
        _check_field(field, given)


def _check_field(field: pa.Field, given: pa.Schema) -> None:
    if is_blob(field):
        raise TableSchemaValidationError(
            f"The column {field.name!r} holds blobs, which Spark cannot write; write them with pylance."
        )
    if field.name not in given.names:
        if not field.nullable:
            raise TableSchemaValidationError(f"The rows have no column {field.name!r}, which may not be null.")
        return
    source = given.field(field.name).type
    try:
        _as(pa.nulls(0, source), field.type, how="keep")
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise TableSchemaValidationError(
            f"The column {field.name!r} is {field.type} in the table, and {source} does not become that; cast it."
        ) from None


def width_of(field: pa.Field) -> int:
    """Return about how many bytes a value of a column has."""
    kind = field.type
    if is_blob(field):
        return _BLOB_BYTES
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size) * width_of(kind.value_field)
    if pa.types.is_struct(kind):
        return sum(width_of(child) for child in kind)
    try:
        return max(1, int(kind.bit_width) // 8)
    except ValueError:
        return _TEXT_BYTES if not pa.types.is_nested(kind) else _LIST_BYTES


def _spark_type(name: str, kind: pa.DataType) -> DataType:
    found = _scalar_type(kind) or _nested_type(name, kind)
    if found is None:
        raise TableSchemaValidationError(
            f"Spark has no type for the column {name!r}, which is {kind}; leave it out with the option 'columns'."
        )
    return found


def _scalar_type(kind: pa.DataType) -> DataType | None:
    from pyspark.sql import types as spark

    plain: dict[Any, DataType] = {
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
    # Not all types of extensions can be looked up.
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


def _as(array: pa.Array, kind: pa.DataType, *, how: How) -> pa.Array:
    """Cast an array; Arrow's own casts stop short of some nested types."""
    source = array.type
    if source == kind:
        return array
    if isinstance(source, pa.BaseExtensionType):
        return _as(_widen_bfloat16(array) if source.extension_name == _BFLOAT16 else array.storage, kind, how=how)
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, _as(array, kind.storage_type, how=how))
    if pa.types.is_struct(source) and pa.types.is_struct(kind):
        return _as_struct(array, kind, how=how)
    if pa.types.is_map(source) and pa.types.is_map(kind):
        return _as_map(array, kind, how=how)
    if _is_list(source) and _is_list(kind):
        return _as_list(array, kind, how=how)
    if pa.types.is_dictionary(source):
        return _as(array.dictionary_decode(), kind, how=how)
    if pa.types.is_dictionary(kind):
        return _as(array, kind.value_type, how=how).dictionary_encode().cast(kind)
    return _as_leaf(array, kind, how=how)


def _as_struct(array: pa.StructArray, kind: pa.StructType, *, how: How) -> pa.StructArray:
    names = [field.name for field in array.type]
    if sorted(names) != sorted(field.name for field in kind):
        raise pa.ArrowInvalid(f"a struct of {', '.join(names)} is none of {', '.join(f.name for f in kind)}")
    # Fields as they are under the struct's own nulls: flatten() would also null them.
    children = [_as(array.field(names.index(field.name)), field.type, how=how) for field in kind]
    if not len(kind):
        return array
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=array.is_null())


def _as_map(array: pa.MapArray, kind: pa.MapType, *, how: How) -> pa.MapArray:
    array = _from_start(array)
    keys, items = _as(array.keys, kind.key_type, how=how), _as(array.items, kind.item_type, how=how)
    return pa.MapArray.from_arrays(array.offsets, keys, items, type=kind, mask=array.is_null())


def _as_list(array: pa.Array, kind: pa.DataType, *, how: How) -> pa.Array:
    if pa.types.is_fixed_size_list(kind):
        if pa.types.is_fixed_size_list(array.type):
            return _fixed_list(_as(array.flatten(), kind.value_type, how=how), array, kind)
        wrong = pc.any(pc.not_equal(pc.list_value_length(array), kind.list_size)).as_py()
        if wrong:
            raise pa.ArrowInvalid(f"a list does not have {kind.list_size} values")
        return _fixed_list(_as(array.flatten(), kind.value_type, how=how), array, kind)
    if pa.types.is_fixed_size_list(array.type):
        array = pc.cast(array, pa.list_(array.type.value_field))
    array = _from_start(array)
    values = _as(array.values, kind.value_type, how=how)
    large = pa.types.is_large_list(kind)
    offsets = pc.cast(array.offsets, pa.int64() if large else pa.int32())
    mask = array.is_null() if array.null_count else None
    return (pa.LargeListArray if large else pa.ListArray).from_arrays(offsets, values, type=kind, mask=mask)


def _from_start(array: pa.Array) -> pa.Array:
    """Return an array that begins where its buffers do: Arrow takes no other offsets together with nulls."""
    return array.take(pa.array(range(len(array)), pa.int64())) if array.offset else array


def _fixed_list(values: pa.Array, array: pa.Array, kind: pa.FixedSizeListType) -> pa.Array:
    """Build lists of one size: values of the lists that are not null, in their order."""
    if not array.null_count:
        return pa.FixedSizeListArray.from_arrays(values, type=kind)
    rows = pc.subtract(pc.cumulative_sum(pc.cast(array.is_valid(), pa.int64())), 1)
    dense = pa.FixedSizeListArray.from_arrays(values, type=kind)
    return dense.take(pc.if_else(array.is_valid(), rows, None))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _widen_bfloat16(array: pa.ExtensionArray) -> pa.Array:
    """Return the numbers of bfloat16 as float32: they are its upper half."""
    import numpy as np

    storage = array.storage
    data = np.frombuffer(storage.buffers()[1], dtype="<u2")[storage.offset : storage.offset + len(storage)]
    wide = (data.astype("<u4") << 16).view("<f4")
    return pa.array(wide, pa.float32(), mask=np.asarray(storage.is_null()))


def _as_leaf(array: pa.Array, kind: pa.DataType, *, how: How) -> pa.Array:
    source = array.type
    if pa.types.is_null(source):
        return pa.nulls(len(array), kind)
    if _family(source) != _family(kind):
        raise pa.ArrowInvalid(f"{source} is no {kind}")
    # Nanoseconds are the one thing that Spark cannot hold; all else that does not fit is an error.
    made = pc.cast(array, kind, safe=not (how == "cut" and getattr(source, "unit", None) == "ns"))
    if how == "keep" and pa.types.is_floating(kind) and not _is_kept(array, made):
        raise pa.ArrowInvalid("some numbers are rounded; round them first, or allow it with the option 'round_floats'")
    return made


def _family(kind: pa.DataType) -> str:
    """Return which types a type may be cast to: what Arrow can turn into each other need not mean the same."""
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


def _is_kept(given: pa.Array, made: pa.Array) -> bool:
    """Tell whether numbers are the same as floating point; NaN is NaN."""
    try:
        back = pc.cast(made, given.type)
    except pa.ArrowInvalid:
        return False
    same = pc.equal(back, given)
    if pa.types.is_floating(given.type):
        same = pc.or_(same, pc.and_(pc.is_nan(back), pc.is_nan(given)))
    return bool(pc.all(same, min_count=0).as_py())
