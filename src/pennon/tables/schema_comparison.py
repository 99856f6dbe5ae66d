"""Comparing the schema a caller brings with the one a table has."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from lance_namespace.errors import TableSchemaValidationError

from pennon.tables.blobs import holds_blobs, is_blob


def require_same_schema(name: str, stored: pa.Schema, given: pa.Schema) -> None:
    """Refuse a schema that is not a table's own: its columns in their order, types, nullability and metadata.

    As in a local LanceDB; but blobs are the same column in whichever of their forms they are sent.
    """
    wrong = _first_difference(stored, given)
    if wrong is not None:
        raise TableSchemaValidationError(
            f"Provided schema does not match existing table schema of {name!r}: {wrong}. Send the table's own "
            "schema, or use mode overwrite to replace it."
        )


def _first_difference(stored: pa.Schema, given: pa.Schema) -> str | None:
    for number, (mine, theirs) in enumerate(zip(stored, given, strict=False), 1):
        if mine.name != theirs.name:
            return f"column {number} is {theirs.name!r}, not {mine.name!r}"
        if not _is_same(mine, theirs):
            return f"the column {mine.name!r} has another type, nullability or metadata"
    if len(stored) != len(given):
        return f"it has {len(given)} columns, not {len(stored)}"
    if (stored.metadata or {}) != (given.metadata or {}):
        return "the metadata of the schema is another"
    return None


def _is_same(stored: pa.Field, given: pa.Field) -> bool:
    if not holds_blobs(stored):
        return bool(stored.equals(given, check_metadata=True))
    if (stored.name, stored.nullable) != (given.name, given.nullable):
        return False
    if is_blob(stored):
        return is_blob(given)
    if stored.type.id != given.type.id or stored.type.num_fields != given.type.num_fields:
        return False
    return all(_is_same(*pair) for pair in zip(_parts(stored), _parts(given), strict=True))


def _parts(field: pa.Field) -> Iterable[pa.Field]:
    return (field.type.field(index) for index in range(field.type.num_fields))
