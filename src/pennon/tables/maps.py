"""Maps from clients that have no word for them: they send lists of entries, each a struct of a key and a value."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from lance_namespace.errors import InvalidInputError


def is_listing(given: pa.DataType, kind: pa.DataType) -> bool:
    """Tell whether a type is another one but for lists of entries where that has maps."""
    return bool(given != kind) and _is_alike(given, kind)


def to_maps(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return values whose type lists the entries of a type's maps as values of that type."""
    if values.type == kind:
        return values
    nulls = values.is_null() if values.null_count else None
    if pa.types.is_struct(kind):
        parts = [to_maps(part, field.type) for part, field in zip(values.flatten(), kind, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=nulls)
    offsets, flat = _offsets(values), values.flatten()
    if pa.types.is_map(kind):
        keys, items = flat.flatten()
        if keys.null_count:
            raise InvalidInputError(f"A value of the type {kind} has an entry without a key.")
        return pa.MapArray.from_arrays(offsets, keys, to_maps(items, kind.item_type), type=kind, mask=nulls)
    holder = pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray
    return holder.from_arrays(offsets, to_maps(flat, kind.value_type), type=kind, mask=nulls)


def _is_alike(given: pa.DataType, kind: pa.DataType) -> bool:
    if given == kind:
        return True
    if pa.types.is_struct(given) and pa.types.is_struct(kind):
        return given.names == kind.names and all(_is_alike(a.type, b.type) for a, b in zip(given, kind, strict=True))
    if not (pa.types.is_list(given) or pa.types.is_large_list(given)):
        return False
    entry = given.value_type
    if pa.types.is_map(kind):
        if not pa.types.is_struct(entry) or entry.num_fields != 2:
            return False
        return bool(entry[0].type == kind.key_type) and _is_alike(entry[1].type, kind.item_type)
    return given.id == kind.id and _is_alike(entry, kind.value_type)


def _offsets(lists: pa.Array) -> pa.Array:
    """Return where the values of each list begin among those of all, and where the last ones end."""
    lengths = pc.list_value_length(lists).fill_null(0)
    ends = pc.cumulative_sum(lengths)
    return pa.concat_arrays([pa.array([0], ends.type), ends])
