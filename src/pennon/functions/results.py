"""Conversion of function results to Arrow columns of the declared types."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

if TYPE_CHECKING:
    import numpy as np

    from pennon.core.arrow_typing import AnyArray, AnyChunkedArray, AnyField

    #: The stubs of pyarrow know fewer arguments of from_arrays than pyarrow takes.
    _FromArrays = Callable[..., AnyArray]


class WrongLengthError(Exception):
    """A batch function returned more or fewer values than it got rows."""


@dataclass(frozen=True)
class ResultColumn:
    """A column that a result, or one field of it, is written to."""

    field: AnyField
    struct_field: str  # "" is the whole result
    position: int  # of the field, in a result that is a plain tuple


class ResultConverter:
    """Converts results to record batches of the output columns."""

    def __init__(self, columns: Sequence[ResultColumn]) -> None:
        self._columns = columns
        self.schema = pa.schema([column.field for column in columns])

    def from_rows(self, values: list[object]) -> pa.RecordBatch:
        """Convert the results of a function that was called once per row."""
        arrays = [_from_list(_field_values(values, column), column.field.type) for column in self._columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def from_batch(self, result: object, rows: int) -> pa.RecordBatch:
        """Convert the result of a function that was called once for the batch."""
        arrays = []
        for column in self._columns:
            array = to_arrow(_column_values(result, column), column.field.type)
            if len(array) != rows:
                raise WrongLengthError(f"The function returned {len(array)} values for {rows} rows.")
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def null_batch(rows: int, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch of nulls."""
    nulls = cast("Callable[[int, pa.DataType], AnyArray]", pa.nulls)
    arrays = [nulls(rows, data_type) for data_type in schema.types]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def concat_batches(pieces: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """Concatenate batches into one; raise ArrowInvalid if they are too large for one."""
    if len(pieces) < 2:
        return pieces[0] if pieces else null_batch(0, schema)
    columns = [pa.concat_arrays([piece.column(at) for piece in pieces]) for at in range(len(schema))]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def to_arrow(values: object, data_type: pa.DataType) -> AnyArray:
    """Convert an array of pyarrow, numpy, pandas or another library, or a sequence, to an Arrow array of a type."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.Array):
        return values if values.type == data_type else values.cast(data_type)
    if isinstance(values, list):
        return _from_list(values, data_type)
    if hasattr(values, "__arrow_array__"):
        return to_arrow(values.__arrow_array__(), data_type)
    if hasattr(values, "__array__"):
        return _from_numpy(values, data_type)
    if isinstance(values, Sequence) and not isinstance(values, str | bytes):
        return _from_list(list(values), data_type)
    raise TypeError(f"The function returned {_describe(values)}, not an array of values.")


def _from_list(values: list[object], data_type: pa.DataType) -> AnyArray:
    if _has_struct(data_type):
        values = [_as_plain(value, data_type) for value in values]
    element = _element_type(data_type)
    if pa.types.is_integer(element) or pa.types.is_float16(element):
        # By default Arrow silently truncates fractions to integers, and rejects numpy's other floats as half floats.
        with suppress(OverflowError):  # an integer of more than 63 bits, for which there is a type
            inferred = pa.array(cast("list[Any]", values))
            if inferred.type == data_type or pa.types.is_floating(_element_type(inferred.type)):
                return _single_array(inferred).cast(data_type)
    return _single_array(pa.array(values, type=data_type))


def _element_type(data_type: pa.DataType) -> pa.DataType:
    while hasattr(data_type, "value_type"):
        data_type = data_type.value_type
    return data_type


def _from_numpy(values: object, data_type: pa.DataType) -> AnyArray:
    """Convert a numpy array; one of several dimensions becomes lists, without a Python loop over its rows."""
    import numpy as np

    # Arrow reads a pandas series itself, and makes nulls of its missing values.
    is_pandas = type(values).__module__.partition(".")[0] == "pandas"
    array = cast("np.ndarray[Any, np.dtype[Any]]", values if is_pandas else np.asarray(values))
    if array.ndim == 0:
        raise TypeError(f"The function returned {_describe(values)}, not an array of values.")
    if array.ndim == 1:
        is_list = isinstance(array, np.ndarray) and array.dtype == object
        return _from_list(list(array), data_type) if is_list else _single_array(pa.array(array, type=data_type))
    rows, width = array.shape[:2]
    elements = array.reshape(rows * width, *array.shape[2:])
    if pa.types.is_fixed_size_list(data_type):
        if width != data_type.list_size:
            raise ValueError(f"The function returned lists of {width} values where {data_type} is declared.")
        from_arrays = cast("_FromArrays", pa.FixedSizeListArray.from_arrays)
        return from_arrays(_from_numpy(elements, data_type.value_type), type=data_type)
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        kind, offset = (pa.ListArray, np.int32) if pa.types.is_list(data_type) else (pa.LargeListArray, np.int64)
        offsets = np.arange(rows + 1, dtype=offset) * offset(width)
        return cast("_FromArrays", kind.from_arrays)(
            offsets, _from_numpy(elements, data_type.value_type), type=data_type
        )
    raise TypeError(f"The function returned an array of shape {array.shape} where {data_type} is declared.")


def _single_array(array: AnyArray | AnyChunkedArray) -> AnyArray:
    if not isinstance(array, pa.ChunkedArray):
        return array
    raise ValueError(f"The values of one batch exceed the size limit of {array.type}; declare its large variant.")


def _field_values(values: list[object], column: ResultColumn) -> list[object]:
    if not column.struct_field:
        return values
    read = _field_reader(column)
    return [None if value is None else read(value) for value in values]


def _field_reader(column: ResultColumn) -> Callable[[object], object]:
    name, position = column.struct_field, column.position

    def read(value: object) -> object:
        if isinstance(value, Mapping):
            return value[name]
        if isinstance(value, tuple) and not hasattr(value, "_fields"):
            return value[position]
        return getattr(value, name)

    return read


def _column_values(result: object, column: ResultColumn) -> object:
    """Return the part of a batch function's result that belongs to one column."""
    if isinstance(result, pa.RecordBatch | pa.Table):
        only = result.num_columns == 1 and not column.struct_field
        return result.column(0 if only else column.struct_field or column.field.name)
    if not column.struct_field:
        return result
    if isinstance(result, pa.ChunkedArray):
        result = result.combine_chunks()
    if isinstance(result, pa.StructArray):
        index = result.type.get_field_index(column.struct_field)
        if index < 0:
            raise KeyError(f"The function returned {result.type}, which has no field {column.struct_field!r}.")
        return result.flatten()[index]  # unlike field(), flatten() keeps the nulls of the struct
    if isinstance(result, list):
        return _field_values(result, column)
    if getattr(result, "dtype", "") == "object":
        return _field_values(list(cast(Sequence[object], result)), column)
    return _field_reader(column)(result)


def _has_struct(data_type: pa.DataType) -> bool:
    return pa.types.is_struct(data_type) or any(
        _has_struct(data_type.field(i).type) for i in range(data_type.num_fields)
    )


def _as_plain(value: object, data_type: pa.DataType) -> object:
    """Convert records, at any depth, to dictionaries, as Arrow takes them; reject fractions for integers."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        value = dict(zip(value._fields, value, strict=True))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping) and pa.types.is_struct(data_type):
        return {field.name: _as_plain(value[field.name], field.type) for field in data_type if field.name in value}
    if value is not None and pa.types.is_map(data_type):
        pairs = value.items() if isinstance(value, Mapping) else cast(Sequence[object], value)
        return [(it[0], _as_plain(it[1], data_type.item_type)) if isinstance(it, tuple) else it for it in pairs]
    if isinstance(value, list) and hasattr(data_type, "value_type"):
        return [_as_plain(member, data_type.value_type) for member in value]
    if isinstance(value, Real) and pa.types.is_integer(data_type) and value % 1:
        raise ValueError(f"The function returned {value} where {data_type} is declared.")
    return value


def _describe(value: object) -> str:
    return "None" if value is None else f"a value of type {type(value).__name__}"
