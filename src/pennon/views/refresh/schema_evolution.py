"""New columns of sources that become columns of a view which shows all there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from lance_namespace.errors import InvalidInputError, TableSchemaValidationError

from pennon.catalog.tables import Table
from pennon.catalog.views import View
from pennon.views.compilation import refuse_blobs, refuse_unfit, refuse_unknown_types, shown_schema
from pennon.views.model.definition import Column, Definition
from pennon.views.query_parser import parse_request
from pennon.views.sql.simple_select import quote
from pennon.views.sql.spark_sql import SparkQuery

Widened = tuple[Definition, list[pa.Field]]


def widen(view: View, opened: Sequence[tuple[Table, Any]], schema: pa.Schema) -> tuple[Definition, pa.Schema]:
    """Return the definition with the columns that its sources got since, and the fields that the view lacks for them.

    Args:
        view: The view.
        opened: Its sources, in their order, each with its dataset.
        schema: The schema of the view's table.
    """
    definition = Definition.from_json(view.definition)
    shown = [shown_schema(table, dataset) for table, dataset in opened]
    query = None if definition.sql is None else parse_request(view.request)
    wider, new = _widen_columns(definition, *shown) if query is None else _widen_statement(definition, query, shown)
    for source, columns in zip(wider.sources, shown, strict=True):
        read = set(source.columns).intersection(columns.names)
        refuse_blobs(columns, read)
        if definition.engine == "spark":
            refuse_unfit(columns, read)
    taken = [field.name for field in new if field.name in schema.names]
    if taken:
        raise TableSchemaValidationError(
            f"The source has a new column {taken[0]!r}, and the view has another one of that name; rename that one."
        )
    return wider, pa.schema(new)


def _widen_columns(definition: Definition, shown: pa.Schema) -> Widened:
    (source,) = definition.sources
    known = {column.name for column in definition.columns} | set(source.columns)
    new = [pa.field(field.name, field.type) for field in shown if field.name not in known]
    wider = replace(
        definition,
        sources=(replace(source, columns=(*source.columns, *(field.name for field in new))),),
        columns=(*definition.columns, *(Column(field.name, quote(field.name)) for field in new)),
    )
    return wider, new


def _widen_statement(definition: Definition, query: Any, shown: Sequence[pa.Schema]) -> Widened:
    """Read the statement again, over its sources as they were for it and as they are."""
    assert isinstance(query, SparkQuery)  # noqa: S101 - the definition has a statement
    known = [
        pa.schema([field for field in schema if field.name in source.columns])
        for schema, source in zip(shown, definition.sources, strict=True)
    ]
    before = query.bind(dict(zip(query.uses, known, strict=True)))
    try:
        after = query.bind(dict(zip(query.uses, shown, strict=True)))
    except InvalidInputError as error:
        raise TableSchemaValidationError(f"The view cannot show the new columns of its sources: {error}") from None
    old, names = {name for name, _ in before.fields}, [name for name, _ in after.fields]
    for name in names:
        if names.count(name) > 1:
            raise TableSchemaValidationError(f"With the new columns of its sources the view has two {name!r}.")
    new = pa.schema([pa.field(name, kind or pa.null()) for name, kind in after.fields if name not in old])
    refuse_unknown_types(new)
    sources = tuple(replace(source, columns=after.columns[source.name]) for source in definition.sources)
    return replace(definition, sources=sources, sql=after.sql), list(new)
