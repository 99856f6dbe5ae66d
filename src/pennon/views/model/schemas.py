"""The schema of the table of a view: declared columns, columns of the query, and hidden columns."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from lance_namespace.errors import TableSchemaValidationError

from pennon.core.arrow_messages import check_schema_message
from pennon.core.errors import suggest
from pennon.views.model.definition import CHILD, SOURCE_ROW, Kind

if TYPE_CHECKING:
    from pennon.core.arrow_typing import AnyField

#: A hidden column of geneva's views: whether a row is filled.
IS_SET = "__is_set"
HIDDEN: dict[str, pa.DataType] = {SOURCE_ROW: pa.int64(), CHILD: pa.int32(), IS_SET: pa.bool_()}


def decode_schema(text: str) -> pa.Schema:
    """Decode an Arrow schema from the base64 of an IPC message."""
    try:
        content = base64.b64decode(text, validate=True)
        check_schema_message(content)
        schema = pa.ipc.read_schema(pa.py_buffer(content))
    except (binascii.Error, TypeError, ValueError, OSError, pa.ArrowException):
        raise TableSchemaValidationError("output_schema is not a base64-encoded Arrow schema.") from None
    if not len(schema):
        raise TableSchemaValidationError("output_schema has no columns.")
    return schema


def hidden_names(kind: Kind, *, incremental: bool) -> tuple[str, ...]:
    """Return the hidden columns of a view."""
    if kind == "chunker":
        return (SOURCE_ROW, CHILD)
    return (SOURCE_ROW,) if kind == "query" and incremental else ()


def stored_schema(made: pa.Schema, declared: pa.Schema | None, hidden: Sequence[str]) -> pa.Schema:
    """Return the schema of the table of a view: the hidden columns, then the declared ones or those of the query."""
    visible = made if declared is None else _declared(made, declared)
    for name in hidden:
        if name in visible.names:
            raise TableSchemaValidationError(f"The column name {name!r} is reserved for a hidden column of the view.")
    kept = [] if declared is None else [name for name in (IS_SET,) if name in declared.names]
    own = [pa.field(name, HIDDEN[name]) for name in (*hidden, *kept)]
    return pa.schema([*own, *visible]).with_metadata((declared or made).metadata)


def _declared(made: pa.Schema, declared: pa.Schema) -> pa.Schema:
    """Return the declared columns without the hidden ones, and check that they fit those of the query."""
    for name, kind in HIDDEN.items():
        if name in declared.names and declared.field(name).type != kind:
            raise TableSchemaValidationError(
                f"The column {name!r} in output_schema has type {declared.field(name).type}; it must be {kind}."
            )
    visible = [field for field in declared if field.name not in HIDDEN]
    names = [field.name for field in visible]
    missing = [name for name in made.names if name not in names]
    if missing:
        raise TableSchemaValidationError(f"output_schema lacks the column {missing[0]!r} of the query.")
    for field in visible:
        if field.name not in made.names:
            hint = suggest(field.name, made.names)
            raise TableSchemaValidationError(
                f"output_schema has the column {field.name!r}, which the view does not have.{hint}"
            )
        _check_type(field, made.field(field.name).type)
    return pa.schema(visible)


def _check_type(field: AnyField, made: pa.DataType) -> None:
    if pa.types.is_null(made) or field.type == made:
        return  # a null type means that the type is unknown before the query runs
    try:
        pa.nulls(0, made).cast(field.type)  # type: ignore[call-overload]  # the stubs have no overload for any type
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        raise TableSchemaValidationError(
            f"The column {field.name!r} has type {field.type} in output_schema, but {made} in the query."
        ) from None
