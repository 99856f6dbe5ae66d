"""Paths of fields, also nested ones: parsing them, and finding what they name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from lance_namespace.errors import InvalidInputError, TableColumnNotFoundError

from pennon.core.errors import suggest


def split_path(path: str) -> list[str]:
    """Return the segments of a field path: separated by dots, with backticks around those that hold dots."""
    segments: list[str] = []
    at, length = 0, len(path)
    while at < length:
        if path[at] == "`":
            end = at + 1
            while (end := path.find("`", end)) != -1 and path[end : end + 2] == "``":
                end += 2
            if end == -1:
                raise InvalidInputError(f"The path {path!r} has a backtick without its partner.")
            segments.append(path[at + 1 : end].replace("``", "`"))
            at = end + 1
        else:
            end = path.find(".", at)
            segments.append(path[at : end if end != -1 else length])
            at += len(segments[-1])
        if at < length and path[at] != ".":
            raise InvalidInputError(f"The path {path!r} is not a field path.")
        if at == length - 1 or (at < length and not segments[-1]):
            raise InvalidInputError(f"The path {path!r} has an empty segment.")
        at += 1
    if not segments:
        raise InvalidInputError("The field path is empty.")
    return segments


def join_path(segments: Sequence[str]) -> str:
    """Return the path that has these segments."""
    return ".".join(_quoted(name) if set(name) & set(".`") else name for name in segments)


def plain_path(path: str) -> str:
    """Return a path as it is written with no more backticks than it needs: every field has one such path."""
    return join_path(split_path(path))


def path_expression(path: str) -> str:
    """Return the SQL expression of a field, also of one inside of another."""
    return ".".join(map(_quoted, split_path(path)))


def find_field(schema: pa.Schema, path: str) -> pa.Field:
    """Return the field at a path, or raise the error that names what is missing.

    A column of the table that has the whole path as its name comes first: its name may hold dots and backticks.
    """
    if schema.names.count(path) == 1:
        return schema.field(path)
    fields: Any = schema
    found: pa.Field | None = None
    for segment in split_path(path):
        names = _child_names(fields)
        if segment not in names:
            raise TableColumnNotFoundError(f"There is no column {path!r}.{suggest(segment, names)}")
        found = fields.field(names.index(segment))
        fields = found.type
    return found


def stored_metadata(dataset: Any, path: str) -> dict[str, str]:
    """Return the metadata of a dataset's field as it is stored: Arrow keeps that of extension types to itself."""
    find_field(dataset.schema, path)
    fields, found = dataset.lance_schema.fields(), None
    for segment in split_path(path):
        found = next(field for field in fields if field.name() == segment)
        fields = found.children()
    return dict(found.metadata) if found is not None else {}


def has_field(schema: pa.Schema, segments: Sequence[str]) -> bool:
    """Tell whether there is a field at a path."""
    try:
        find_field(schema, join_path(segments))
    except TableColumnNotFoundError:
        return False
    return True


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _child_names(kind: Any) -> list[str]:
    if isinstance(kind, pa.Schema):
        return list(kind.names)
    if pa.types.is_struct(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [kind.field(i).name for i in range(kind.num_fields)]
    return []
