"""Map values from clients without a map type: they send lists of entries, each a struct of a key and a value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from lance_namespace.errors import InvalidInputError

if TYPE_CHECKING:
    from pennon.core.arrow_typing import AnyArray


def is_entry_list(given: pa.DataType, kind: pa.DataType) -> bool:
    """Return whether two types differ only in that the first one has lists of entries instead of maps."""
    return given != kind and _matches(given, kind)


def maps_from_entries(values: AnyArray, kind: pa.DataType) -> AnyArray:
    """Convert lists of entries to maps, at any depth; ``kind`` is the type with maps."""
    if values.type == kind:
        return values
    nulls = values.is_null() if values.null_count else None
    if pa.types.is_struct(kind):
        children = cast("pa.StructArray", values).flatten()
        parts = [maps_from_entries(part, field.type) for part, field in zip(children, kind, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=nulls)
    offsets: Any = _offsets(values)
    flat = cast("pa.ListArray[Any]", values).flatten()
    if pa.types.is_map(kind):
        keys, items = cast("pa.StructArray", flat).flatten()
        if keys.null_count:
            raise InvalidInputError(f"A value of type {kind} has an entry without a key.")
        values_of_keys = maps_from_entries(items, kind.item_type)
        maps: AnyArray = pa.MapArray.from_arrays(  # type: ignore[call-overload]  # the stubs have no keys with a type
            offsets, keys, values_of_keys, type=kind, mask=nulls
        )
        return maps
    if pa.types.is_large_list(kind):
        return pa.LargeListArray.from_arrays(offsets, maps_from_entries(flat, kind.value_type), type=kind, mask=nulls)
    value_type = cast("pa.ListType[Any]", kind).value_type
    return pa.ListArray.from_arrays(offsets, maps_from_entries(flat, value_type), type=kind, mask=nulls)


def _matches(given: pa.DataType, kind: pa.DataType) -> bool:
    if given == kind:
        return True
    if pa.types.is_struct(given) and pa.types.is_struct(kind):
        return given.names == kind.names and all(_matches(a.type, b.type) for a, b in zip(given, kind, strict=True))
    if not (pa.types.is_list(given) or pa.types.is_large_list(given)):
        return False
    entry = given.value_type
    if pa.types.is_map(kind):
        if not pa.types.is_struct(entry) or entry.num_fields != 2:
            return False
        return bool(entry[0].type == kind.key_type) and _matches(entry[1].type, kind.item_type)
    return given.id == kind.id and _matches(entry, cast("pa.ListType[Any]", kind).value_type)


def _offsets(lists: AnyArray) -> AnyArray:
    """Return the offset of each list among the values of all lists, and the end of the last one."""
    lengths = pc.list_value_length(lists).fill_null(0)
    ends = pc.cumulative_sum(lengths)
    return pa.concat_arrays([pa.array([0], ends.type), ends])
