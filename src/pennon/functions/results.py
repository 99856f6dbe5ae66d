"""The results of functions as Arrow columns of the declared types."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from numbers import Real
from typing import Any

import pyarrow as pa


class WrongLengthError(Exception):
    """A batch function returned more or fewer values than it got rows."""


@dataclass(frozen=True)
class Target:
    """A column that a result, or one field of it, becomes."""

    field: pa.Field
    struct_field: str  # "" is the whole result
    position: int  # of the field, in a result that is a plain tuple


class Results:
    """Turns results into record batches of the target columns."""

    def __init__(self, targets: Sequence[Target]) -> None:
        self._targets = targets
        self.schema = pa.schema([target.field for target in targets])

    def from_rows(self, values: list[Any]) -> pa.RecordBatch:
        """Return the results of a function that was called for each row."""
        columns = [_from_list(_members(values, target), target.field.type) for target in self._targets]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def from_batch(self, result: Any, rows: int) -> pa.RecordBatch:
        """Return the result of a function that was called for all rows of a batch."""
        columns = []
        for target in self._targets:
            column = to_arrow(_column(result, target), target.field.type)
            if len(column) != rows:
                raise WrongLengthError(f"The function returned {len(column)} values for {rows} rows.")
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def nulls(rows: int, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows without values."""
    return pa.RecordBatch.from_arrays([pa.nulls(rows, kind) for kind in schema.types], schema=schema)


def join(pieces: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """Return consecutive pieces as one batch; raises ArrowInvalid when they are too large to be one."""
    if len(pieces) < 2:
        return pieces[0] if pieces else nulls(0, schema)
    columns = [pa.concat_arrays([piece.column(at) for piece in pieces]) for at in range(len(schema))]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def to_arrow(values: Any, data_type: pa.DataType) -> pa.Array:
    """Return an array, in whatever library's form, as an Arrow array of a type."""
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
    raise TypeError(f"The function returned {_described(values)}, not an array of values.")


def _from_list(values: list[Any], data_type: pa.DataType) -> pa.Array:
    if _holds_struct(data_type):
        values = [_as_plain(value, data_type) for value in values]
    element = _element_type(data_type)
    if pa.types.is_integer(element) or pa.types.is_float16(element):
        # Left alone, Arrow makes integers of fractions without a word, and no half floats of numpy's other floats.
        with suppress(OverflowError):  # of more than 63 bits, which there is a type for
            inferred = pa.array(values)
            if inferred.type == data_type or pa.types.is_floating(_element_type(inferred.type)):
                return _whole(inferred).cast(data_type)
    return _whole(pa.array(values, type=data_type))


def _element_type(data_type: pa.DataType) -> pa.DataType:
    while hasattr(data_type, "value_type"):
        data_type = data_type.value_type
    return data_type


def _from_numpy(values: Any, data_type: pa.DataType) -> pa.Array:
    """Return a numpy array as it is; one of more dimensions as lists, without touching its rows one by one."""
    import numpy as np

    # Arrow reads a pandas series itself, whose missing values become nulls.
    array = values if type(values).__module__.partition(".")[0] == "pandas" else np.asarray(values)
    if array.ndim == 0:
        raise TypeError(f"The function returned {_described(values)}, not an array of values.")
    if array.ndim == 1:
        is_list = isinstance(array, np.ndarray) and array.dtype == object
        return _from_list(list(array), data_type) if is_list else _whole(pa.array(array, type=data_type))
    rows, width = array.shape[:2]
    elements = array.reshape(rows * width, *array.shape[2:])
    if pa.types.is_fixed_size_list(data_type):
        if width != data_type.list_size:
            raise ValueError(f"The function returned lists of {width} values where {data_type} is declared.")
        return pa.FixedSizeListArray.from_arrays(_from_numpy(elements, data_type.value_type), type=data_type)
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        kind, offset = (pa.ListArray, np.int32) if pa.types.is_list(data_type) else (pa.LargeListArray, np.int64)
        offsets = np.arange(rows + 1, dtype=offset) * offset(width)
        return kind.from_arrays(offsets, _from_numpy(elements, data_type.value_type), type=data_type)
    raise TypeError(f"The function returned an array of shape {array.shape} where {data_type} is declared.")


def _whole(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(array, pa.ChunkedArray):
        return array
    raise ValueError(f"The values of one batch have more bytes than {array.type} holds; declare its large variant.")


def _members(values: list[Any], target: Target) -> list[Any]:
    if not target.struct_field:
        return values
    read = _reader(target)
    return [None if value is None else read(value) for value in values]


def _reader(target: Target) -> Callable[[Any], Any]:
    name, position = target.struct_field, target.position

    def read(value: Any) -> Any:
        if isinstance(value, Mapping):
            return value[name]
        if isinstance(value, tuple) and not hasattr(value, "_fields"):
            return value[position]
        return getattr(value, name)

    return read


def _column(result: Any, target: Target) -> Any:
    """Return what a batch function returned for one target."""
    if isinstance(result, pa.RecordBatch | pa.Table):
        only = result.num_columns == 1 and not target.struct_field
        return result.column(0 if only else target.struct_field or target.field.name)
    if not target.struct_field:
        return result
    if isinstance(result, pa.ChunkedArray):
        result = result.combine_chunks()
    if isinstance(result, pa.StructArray):
        index = result.type.get_field_index(target.struct_field)
        if index < 0:
            raise KeyError(f"The function returned {result.type}, which has no field {target.struct_field!r}.")
        return result.flatten()[index]  # which, unlike field(), lets the nulls of the struct through
    if isinstance(result, list) or getattr(result, "dtype", "") == "object":
        return _members(list(result), target)
    return _reader(target)(result)


def _holds_struct(data_type: pa.DataType) -> bool:
    return pa.types.is_struct(data_type) or any(
        _holds_struct(data_type.field(i).type) for i in range(data_type.num_fields)
    )


def _as_plain(value: Any, data_type: pa.DataType) -> Any:
    """Return records, at any depth, as the dictionaries that Arrow makes structs of; refuse fractions for integers."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        value = dict(zip(value._fields, value, strict=True))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping) and pa.types.is_struct(data_type):
        return {field.name: _as_plain(value[field.name], field.type) for field in data_type if field.name in value}
    if value is not None and pa.types.is_map(data_type):
        pairs = value.items() if isinstance(value, Mapping) else value
        return [(it[0], _as_plain(it[1], data_type.item_type)) if isinstance(it, tuple) else it for it in pairs]
    if isinstance(value, list) and hasattr(data_type, "value_type"):
        return [_as_plain(member, data_type.value_type) for member in value]
    if isinstance(value, Real) and pa.types.is_integer(data_type) and value % 1:
        raise ValueError(f"The function returned {value} where {data_type} is declared.")
    return value


def _described(value: Any) -> str:
    return "None" if value is None else f"a value of type {type(value).__name__}"
