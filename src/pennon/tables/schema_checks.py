"""Checks of a caller's schema: its columns, and its equality with a table's schema."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from lance_namespace.errors import TableSchemaValidationError

from pennon.tables.arrow_types import check_type
from pennon.tables.blobs import has_blobs, is_blob

if TYPE_CHECKING:
    from pennon.core.arrow_typing import AnyField


_RESERVED_COLUMNS = frozenset(
    {"_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version", "_row_last_updated_at_version"}
)


def check_schema(schema: pa.Schema) -> None:
    """Reject columns that Lance cannot write, or cannot read back."""
    check_column_names(schema.names)
    for field in schema:
        check_type(field)


def check_column_names(names: Sequence[str]) -> None:
    """Reject column names that Lance cannot read back or reserves for itself."""
    for name, count in Counter(names).items():
        if not name or any(char in name for char in ".`\0"):
            raise TableSchemaValidationError(
                f"Invalid column name {name!r}: it must not be empty or contain a dot, a backtick or NUL."
            )
        if name in _RESERVED_COLUMNS:
            raise TableSchemaValidationError(f"Invalid column name {name!r}: Lance reserves it for its own columns.")
        if count > 1:
            raise TableSchemaValidationError(f"Duplicate column name {name!r}: column names must be unique.")


def require_same_schema(name: str, stored: pa.Schema, given: pa.Schema) -> None:
    """Reject a schema that differs from a table's in the columns, their order, types, nullability or metadata.

    As in a local LanceDB, except that a blob column may be sent in either of its forms.
    """
    difference = _first_difference(stored, given)
    if difference is not None:
        raise TableSchemaValidationError(
            f"Provided schema does not match existing table schema of {name!r}: {difference}. Send the table's own "
            "schema, or use mode overwrite to replace it."
        )


def _first_difference(stored: pa.Schema, given: pa.Schema) -> str | None:
    for number, (mine, theirs) in enumerate(zip(stored, given, strict=False), 1):
        if mine.name != theirs.name:
            return f"column {number} is {theirs.name!r}, not {mine.name!r}"
        if not _is_same(mine, theirs):
            return f"the column {mine.name!r} differs in type, nullability or metadata"
    if len(stored) != len(given):
        return f"it has {len(given)} columns, not {len(stored)}"
    if (stored.metadata or {}) != (given.metadata or {}):
        return "the metadata of the schema differs"
    return None


def _is_same(stored: AnyField, given: AnyField) -> bool:
    if not has_blobs(stored):
        return bool(stored.equals(given, check_metadata=True))
    if (stored.name, stored.nullable) != (given.name, given.nullable):
        return False
    if is_blob(stored):
        return is_blob(given)
    if stored.type.id != given.type.id or stored.type.num_fields != given.type.num_fields:
        return False
    return all(_is_same(*pair) for pair in zip(_parts(stored), _parts(given), strict=True))


def _parts(field: AnyField) -> Iterable[AnyField]:
    return (field.type.field(index) for index in range(field.type.num_fields))
