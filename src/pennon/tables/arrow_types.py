"""Arrow types: which ones Lance can store, and their conversion to those."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
from lance_namespace.errors import TableSchemaValidationError

from pennon.tables.blobs import check_blob_field

if TYPE_CHECKING:
    from pennon.core.arrow_typing import AnyArray, AnyField

_STRING_VIEWS: dict[pa.DataType, pa.DataType] = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
#: Arrow's C data interface supports 64 levels of nesting.
_MAX_DEPTH = 60


def contains_type(predicate: Callable[[pa.DataType], bool], kind: pa.DataType) -> bool:
    """Return whether a predicate is true for a type or a part of it."""
    # Without a cache: a type with many fields takes megabytes, and every request may have a new one.
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pa.types.is_dictionary(kind):
        return contains_type(predicate, kind.value_type)
    return bool(predicate(kind)) or any(contains_type(predicate, part) for part in _parts(kind))


def without_string_views(schema: pa.Schema) -> pa.Schema:
    """Replace string_view and binary_view by string and binary: Lance cannot read nested views."""
    for index, field in enumerate(schema):
        if contains_type(_is_string_view, field.type):
            schema = schema.set(index, _without_views(field))
    return schema


def string_view_bytes(values: Any) -> int:
    """Return how many bytes the texts of an array's views have together: many views may be of one text."""
    if isinstance(values, pa.ExtensionArray):
        return string_view_bytes(values.storage)
    if isinstance(values, pa.DictionaryArray):
        return string_view_bytes(values.dictionary)
    if not _is_string_view(values.type):
        return sum(string_view_bytes(part) for part in _part_arrays(values))
    content = values.buffers()[1]
    if not len(values) or content is None:
        return 0
    lengths = np.frombuffer(content, dtype="<i4")[::4][values.offset : values.offset + len(values)]
    if values.null_count:
        lengths = lengths[values.is_valid().to_numpy(zero_copy_only=False)]
    return int(lengths.sum(dtype=np.int64))


def check_type(field: AnyField) -> None:
    """Reject a column that Lance cannot write, or cannot read back."""
    if _depth(field.type) > _MAX_DEPTH:
        raise TableSchemaValidationError(f"The type of {field.name!r} is nested more than {_MAX_DEPTH} levels deep.")
    if _has_unsupported_list(field.type, in_list=False):
        raise TableSchemaValidationError(
            f"The type of {field.name!r} has a fixed-size list with values that Lance cannot store there: {field.type}."
        )
    check_blob_field(field)


def _parts(kind: pa.DataType) -> list[pa.DataType]:
    return [cast("pa.StructType", kind).field(index).type for index in range(kind.num_fields)]


def _part_arrays(values: Any) -> Iterator[AnyArray]:
    if pa.types.is_struct(values.type):
        yield from (values.field(index) for index in range(values.type.num_fields))
    elif pa.types.is_map(values.type):
        yield from (values.keys, values.items)
    elif _is_list(values.type) or pa.types.is_fixed_size_list(values.type):
        yield values.values


def _is_string_view(kind: pa.DataType) -> bool:
    return kind in _STRING_VIEWS


def _is_text(kind: pa.DataType) -> bool:
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(is_kind(kind) for is_kind in kinds)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind))


def _depth(kind: pa.DataType) -> int:
    return 1 + max(map(_depth, _parts(kind)), default=0)


def _has_unsupported_list(kind: pa.DataType, *, in_list: bool) -> bool:
    """Return whether a type contains a fixed-size list that makes Lance panic when it writes or reads values."""
    parts = _parts(kind)
    if pa.types.is_fixed_size_list(kind):
        (value,) = parts
        if _is_text(value) or contains_type(_is_list, value) or (in_list and contains_type(pa.types.is_struct, value)):
            return True
    return any(_has_unsupported_list(part, in_list=in_list or _is_list(kind)) for part in parts)


def _without_views(field: AnyField) -> AnyField:
    return field.with_type(_type_without_views(field.type))


def _type_without_views(kind: pa.DataType) -> pa.DataType:
    if not contains_type(_is_string_view, kind):
        return kind
    if isinstance(kind, pa.BaseExtensionType):
        raise TableSchemaValidationError(
            f"Values of the extension type {kind.extension_name} cannot be stored as string views; store them as "
            "strings or binaries."
        )
    if kind in _STRING_VIEWS:
        return _STRING_VIEWS[kind]
    if pa.types.is_dictionary(kind):
        values: Any = _type_without_views(kind.value_type)
        return pa.dictionary(kind.index_type, values, kind.ordered)
    if pa.types.is_struct(kind):
        return pa.struct([_without_views(part) for part in kind])
    if pa.types.is_map(kind):
        key, item = cast("list[pa.DataType]", [_without_views(kind.key_field), _without_views(kind.item_field)])
        return pa.map_(key, item, kind.keys_sorted)  # the stubs know no fields here
    if pa.types.is_fixed_size_list(kind):
        fixed: pa.DataType = pa.list_(_without_views(kind.value_field), kind.list_size)
        return fixed
    if pa.types.is_large_list(kind):
        return pa.large_list(_without_views(kind.value_field))
    return pa.list_(_without_views(kind.value_field)) if pa.types.is_list(kind) else kind
