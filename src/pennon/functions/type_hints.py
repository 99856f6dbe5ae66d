"""Arrow types derived from Python type hints."""

from __future__ import annotations

import collections.abc
import dataclasses
import types
import typing
from datetime import date, datetime, time, timedelta
from typing import TYPE_CHECKING, Annotated, Union, cast, get_args, get_origin

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

_LISTS = (list, tuple, collections.abc.Sequence)


def data_type_of(hint: object) -> pa.DataType:
    """Return the Arrow type of the values that a type hint describes."""
    import pyarrow as pa

    plain = _plain_types().get(hint) if isinstance(hint, type) else None
    if plain is not None:
        return plain
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        declared = [extra for extra in arguments[1:] if isinstance(extra, pa.DataType)]
        return declared[0] if declared else data_type_of(arguments[0])
    if origin in (Union, types.UnionType):
        return _type_of_optional(hint, arguments)
    if origin in _LISTS:
        return _type_of_list(hint, arguments)
    if is_record(hint):
        members = typing.get_type_hints(hint, include_extras=True)
        return pa.struct([pa.field(name, data_type_of(members[name])) for name in _record_fields(hint)])
    if isinstance(hint, type) and hint.__module__ == "numpy":
        return _type_of_numpy(hint)
    raise _unmapped(hint)


def is_record(hint: object) -> bool:
    """Return whether a type hint is a NamedTuple, a dataclass or a TypedDict."""
    if not isinstance(hint, type):
        return False
    named_tuple = issubclass(hint, tuple) and hasattr(hint, "_fields")
    return named_tuple or dataclasses.is_dataclass(hint) or typing.is_typeddict(hint)


def _record_fields(hint: object) -> list[str]:
    """Return the names of a record's fields, in order."""
    if dataclasses.is_dataclass(hint):
        return [field.name for field in dataclasses.fields(hint)]
    return list(getattr(hint, "_fields", None) or typing.get_type_hints(hint))


def _plain_types() -> dict[type, pa.DataType]:
    import pyarrow as pa

    return {
        bool: pa.bool_(),
        int: pa.int64(),
        float: pa.float64(),
        str: pa.string(),
        bytes: pa.binary(),
        datetime: pa.timestamp("us"),
        date: pa.date32(),
        time: pa.time64("us"),
        timedelta: pa.duration("us"),
    }


def _type_of_optional(hint: object, arguments: tuple[object, ...]) -> pa.DataType:
    present = [argument for argument in arguments if argument is not type(None)]
    if len(present) != 1:
        raise _unmapped(hint)
    return data_type_of(present[0])


def _type_of_list(hint: object, arguments: tuple[object, ...]) -> pa.DataType:
    import pyarrow as pa

    elements = arguments[:-1] if arguments[-1] is Ellipsis else arguments
    if len(elements) != 1:
        raise _unmapped(hint)
    return pa.list_(data_type_of(elements[0]))


def _type_of_numpy(hint: type) -> pa.DataType:
    import pyarrow as pa

    try:
        return pa.from_numpy_dtype(cast("np.dtype[np.generic]", hint))  # a numpy type is accepted, too
    except (TypeError, pa.ArrowException):
        raise _unmapped(hint) from None


def _unmapped(hint: object) -> TypeError:
    shown = hint.__name__ if isinstance(hint, type) else str(hint)
    return TypeError(f"the type hint {shown!r} has no Arrow type; pass data_type=, for example pa.float32()")
