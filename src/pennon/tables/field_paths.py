"""Field paths: parsing them, and finding their fields, including nested ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import pyarrow as pa
from lance_namespace.errors import InvalidInputError, TableColumnNotFoundError

from pennon.core.errors import suggest
from pennon.core.sql_names import quote_name

if TYPE_CHECKING:
    from lance import LanceDataset

    from pennon.core.arrow_typing import AnyField


def split_path(path: str) -> list[str]:
    """Return the segments of a field path: separated by dots, in backticks if they contain dots."""
    segments: list[str] = []
    at, length = 0, len(path)
    while at < length:
        if path[at] == "`":
            end = at + 1
            while (end := path.find("`", end)) != -1 and path[end : end + 2] == "``":
                end += 2
            if end == -1:
                raise InvalidInputError(f"The field path {path!r} has an unclosed backtick.")
            segments.append(path[at + 1 : end].replace("``", "`"))
            at = end + 1
        else:
            end = path.find(".", at)
            segments.append(path[at : end if end != -1 else length])
            at += len(segments[-1])
        if at < length and path[at] != ".":
            raise InvalidInputError(f"The field path {path!r} is invalid: a dot must follow a name in backticks.")
        if at == length - 1 or (at < length and not segments[-1]):
            raise InvalidInputError(f"The field path {path!r} has an empty segment.")
        at += 1
    if not segments:
        raise InvalidInputError("The field path is empty.")
    return segments


def join_path(segments: Sequence[str]) -> str:
    """Return the path of segments."""
    return ".".join(quote_name(name) if set(name) & set(".`") else name for name in segments)


def plain_path(path: str) -> str:
    """Return the canonical form of a path, with no unnecessary backticks: each field has exactly one."""
    return join_path(split_path(path))


def path_expression(path: str) -> str:
    """Return the SQL expression of a field, including nested ones."""
    return ".".join(map(quote_name, split_path(path)))


def find_field(schema: pa.Schema, path: str) -> AnyField:
    """Return the field at a path; raises ``TableColumnNotFoundError`` otherwise.

    A top-level column whose name is the whole path comes first: its name may contain dots and backticks.
    """
    if schema.names.count(path) == 1:
        return schema.field(path)
    parent: pa.Schema | pa.DataType = schema
    for segment in split_path(path):
        names = _child_names(parent)
        if segment not in names:
            raise TableColumnNotFoundError(f"There is no column {path!r}.{suggest(segment, names)}")
        found: AnyField = cast("pa.StructType", parent).field(names.index(segment))
        parent = found.type
    return found


def stored_metadata(dataset: LanceDataset, path: str) -> dict[str, str]:
    """Return the stored metadata of a dataset's field: Arrow does not expose that of extension types."""
    find_field(dataset.schema, path)
    fields = dataset.lance_schema.fields()
    metadata: dict[str, str] = {}
    for segment in split_path(path):
        found = next(field for field in fields if field.name() == segment)
        metadata = found.metadata  # type: ignore[attr-defined]  # missing from the stubs
        fields = found.children()
    return dict(metadata)


def has_field(schema: pa.Schema, segments: Sequence[str]) -> bool:
    """Return whether a schema has a field at a path."""
    try:
        find_field(schema, join_path(segments))
    except TableColumnNotFoundError:
        return False
    return True


def _child_names(kind: pa.Schema | pa.DataType) -> list[str]:
    if isinstance(kind, pa.Schema):
        return list(kind.names)
    if pa.types.is_struct(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [kind.field(i).name for i in range(kind.num_fields)]
    return []
