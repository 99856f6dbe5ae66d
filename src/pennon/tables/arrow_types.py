"""Arrow types, as far as Lance can store their values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from lance_namespace.errors import TableSchemaValidationError

from pennon.tables.blobs import check_blob_field

_VIEWS = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
#: Arrow hands types that are nested deeper than 64 levels to nobody.
_DEEPEST = 60


def holds(is_such: Callable[[pa.DataType], bool], kind: pa.DataType) -> bool:
    """Tell whether a type or a part of it is such a one."""
    # Types that are defined in Python, as Lance's blobs are, may not be hashable.
    return _holds(is_such, kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind)


# Not remembered: a type of many fields takes megabytes, and every request may bring its own.
def _holds(is_such: Callable[[pa.DataType], bool], kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return holds(is_such, kind.value_type)
    return bool(is_such(kind)) or any(holds(is_such, part) for part in _parts(kind))


def without_views(schema: pa.Schema) -> pa.Schema:
    """Return a schema with what views are views of in their places: Lance cannot read those inside of other types."""
    for index, field in enumerate(schema):
        if holds(_is_view, field.type):
            schema = schema.set(index, _viewed(field))
    return schema


def text_bytes(values: Any) -> int:
    """Return how many bytes the texts of an array's views have together: many views may be of one text."""
    if isinstance(values, pa.ExtensionArray):
        return text_bytes(values.storage)
    if isinstance(values, pa.DictionaryArray):
        return text_bytes(values.dictionary)
    if not _is_view(values.type):
        return sum(text_bytes(part) for part in _part_arrays(values))
    content = values.buffers()[1]
    if not len(values) or content is None:
        return 0
    lengths = np.frombuffer(content, dtype="<i4")[::4][values.offset : values.offset + len(values)]
    if values.null_count:
        lengths = lengths[values.is_valid().to_numpy(zero_copy_only=False)]
    return int(lengths.sum(dtype=np.int64))


def check_type(field: pa.Field) -> None:
    """Refuse a column that Lance could not write, or write but not read again."""
    if _depth(field.type) > _DEEPEST:
        raise TableSchemaValidationError(f"The type of {field.name!r} is nested more than {_DEEPEST} levels deep.")
    if _is_beyond_lance(field.type, listed=False):
        raise TableSchemaValidationError(
            f"The type of {field.name!r} has a fixed-size list of values that Lance cannot store in one: {field.type}."
        )
    check_blob_field(field)


def _parts(kind: pa.DataType) -> list[pa.DataType]:
    return [kind.field(index).type for index in range(kind.num_fields)]


def _part_arrays(values: Any) -> Iterator[Any]:
    if pa.types.is_struct(values.type):
        yield from (values.field(index) for index in range(values.type.num_fields))
    elif pa.types.is_map(values.type):
        yield from (values.keys, values.items)
    elif _is_list(values.type) or pa.types.is_fixed_size_list(values.type):
        yield values.values


def _is_view(kind: pa.DataType) -> bool:
    return kind in _VIEWS


def _is_text(kind: pa.DataType) -> bool:
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(is_kind(kind) for is_kind in kinds)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind))


def _depth(kind: pa.DataType) -> int:
    return 1 + max(map(_depth, _parts(kind)), default=0)


def _is_beyond_lance(kind: pa.DataType, *, listed: bool) -> bool:
    """Tell whether a type has a fixed-size list in it that Lance panics at, when it writes or reads its values."""
    parts = _parts(kind)
    if pa.types.is_fixed_size_list(kind):
        (value,) = parts
        if _is_text(value) or holds(_is_list, value) or (listed and holds(pa.types.is_struct, value)):
            return True
    return any(_is_beyond_lance(part, listed=listed or _is_list(kind)) for part in parts)


def _viewed(field: pa.Field) -> pa.Field:
    return field.with_type(_viewed_type(field.type))


def _viewed_type(kind: pa.DataType) -> pa.DataType:
    if not holds(_is_view, kind):
        return kind
    if isinstance(kind, pa.BaseExtensionType):
        raise TableSchemaValidationError(f"Values of {kind.extension_name} cannot be stored as views.")
    if kind in _VIEWS:
        return _VIEWS[kind]
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _viewed_type(kind.value_type), kind.ordered)
    if pa.types.is_struct(kind):
        return pa.struct([_viewed(part) for part in kind])
    if pa.types.is_map(kind):
        return pa.map_(_viewed(kind.key_field), _viewed(kind.item_field), kind.keys_sorted)
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_viewed(kind.value_field), kind.list_size)
    if pa.types.is_large_list(kind):
        return pa.large_list(_viewed(kind.value_field))
    return pa.list_(_viewed(kind.value_field)) if pa.types.is_list(kind) else kind
