"""The schema of a view's table: what a request declares, what its query makes, and what ties it to its source."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence

import pyarrow as pa
from lance_namespace.errors import TableSchemaValidationError

from pennon.core.arrow_messages import check_schema_message
from pennon.core.errors import suggest
from pennon.views.model.definition import CHILD, SOURCE_ROW, Kind

#: A column of geneva's views: whether a row has been filled.
IS_SET = "__is_set"
HIDDEN: dict[str, pa.DataType] = {SOURCE_ROW: pa.int64(), CHILD: pa.int32(), IS_SET: pa.bool_()}


def decode_schema(text: str) -> pa.Schema:
    """Return the Arrow schema that a request sends as base64 of an IPC message."""
    try:
        content = base64.b64decode(text, validate=True)
        check_schema_message(content)
        schema = pa.ipc.read_schema(pa.py_buffer(content))
    except (binascii.Error, TypeError, ValueError, OSError, pa.ArrowException):
        raise TableSchemaValidationError("output_schema is not the base64 of an Arrow schema.") from None
    if not len(schema):
        raise TableSchemaValidationError("output_schema has no columns.")
    return schema


def hidden_names(kind: Kind, *, incremental: bool) -> tuple[str, ...]:
    """Return the columns of a view that its query does not name."""
    if kind == "chunker":
        return (SOURCE_ROW, CHILD)
    return (SOURCE_ROW,) if kind == "query" and incremental else ()


def stored_schema(made: pa.Schema, declared: pa.Schema | None, hidden: Sequence[str]) -> pa.Schema:
    """Return the schema of a view's table: the columns it needs, then those it was declared with, else those made."""
    visible = made if declared is None else _declared(made, declared)
    for name in hidden:
        if name in visible.names:
            raise TableSchemaValidationError(f"A view's own column cannot be called {name!r}.")
    kept = [] if declared is None else [name for name in (IS_SET,) if name in declared.names]
    own = [pa.field(name, HIDDEN[name]) for name in (*hidden, *kept)]
    return pa.schema([*own, *visible], metadata=(declared or made).metadata)


def _declared(made: pa.Schema, declared: pa.Schema) -> pa.Schema:
    """Return the declared columns without the hidden ones, or raise the error that tells why they do not fit."""
    for name, kind in HIDDEN.items():
        if name in declared.names and declared.field(name).type != kind:
            raise TableSchemaValidationError(
                f"{name!r} in output_schema is {declared.field(name).type}; it must be {kind}."
            )
    visible = [field for field in declared if field.name not in HIDDEN]
    names = [field.name for field in visible]
    missing = [name for name in made.names if name not in names]
    if missing:
        raise TableSchemaValidationError(f"output_schema lacks the column {missing[0]!r}, which the query makes.")
    for field in visible:
        if field.name not in made.names:
            hint = suggest(field.name, made.names)
            raise TableSchemaValidationError(f"output_schema has the column {field.name!r}, which nothing makes.{hint}")
        _check_type(field, made.field(field.name).type)
    return pa.schema(visible)


def _check_type(field: pa.Field, made: pa.DataType) -> None:
    if pa.types.is_null(made) or field.type == made:
        return  # a null type stands for one that is not known before the query runs
    try:
        pa.nulls(0, made).cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        raise TableSchemaValidationError(
            f"{field.name!r} is {field.type} in output_schema, but {made} in the query."
        ) from None
