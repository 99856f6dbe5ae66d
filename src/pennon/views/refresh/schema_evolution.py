"""Schema evolution: new columns of sources become columns of views that select all columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
from lance_namespace.errors import InvalidInputError, TableSchemaValidationError

from pennon.catalog.tables import Table
from pennon.catalog.views import View
from pennon.core.sql_names import quote_name
from pennon.views.compilation import check_known_types, check_no_blobs, check_spark_types, visible_schema
from pennon.views.model.definition import Column, Definition
from pennon.views.query_parser import parse_request
from pennon.views.sql.spark_sql import SparkQuery

if TYPE_CHECKING:
    from lance import LanceDataset

    from pennon.core.arrow_typing import AnyField
    from pennon.views.query_parser import Query

Evolved: TypeAlias = "tuple[Definition, list[AnyField]]"


def add_new_columns(
    view: View, opened: Sequence[tuple[Table, LanceDataset]], schema: pa.Schema
) -> tuple[Definition, pa.Schema]:
    """Return the definition with the new columns of its sources, and the fields to add to the table of the view.

    Args:
        view: The view.
        opened: Its sources in order, with their datasets.
        schema: The schema of the view's table.
    """
    definition = Definition.from_json(view.definition)
    shown = [visible_schema(table, dataset) for table, dataset in opened]
    query = None if definition.sql is None else parse_request(view.request)
    evolved, new = _evolve_columns(definition, *shown) if query is None else _evolve_statement(definition, query, shown)
    for source, columns in zip(evolved.sources, shown, strict=True):
        read = set(source.columns).intersection(columns.names)
        check_no_blobs(columns, read)
        if definition.engine == "spark":
            check_spark_types(columns, read)
    taken = [field.name for field in new if field.name in schema.names]
    if taken:
        raise TableSchemaValidationError(
            f"The source has a new column {taken[0]!r}, but the view already has a column of that name; rename it."
        )
    return evolved, pa.schema(new)


def _evolve_columns(definition: Definition, shown: pa.Schema) -> Evolved:
    (source,) = definition.sources
    known = {column.name for column in definition.columns} | set(source.columns)
    new = [pa.field(field.name, field.type) for field in shown if field.name not in known]
    evolved = replace(
        definition,
        sources=(replace(source, columns=(*source.columns, *(field.name for field in new))),),
        columns=(*definition.columns, *(Column(field.name, quote_name(field.name)) for field in new)),
    )
    return evolved, new


def _evolve_statement(definition: Definition, query: Query, shown: Sequence[pa.Schema]) -> Evolved:
    """Bind the statement to its sources as they were and as they are, and compare the results."""
    assert isinstance(query, SparkQuery)  # noqa: S101 - the definition has a statement
    known = [
        pa.schema([field for field in schema if field.name in source.columns])
        for schema, source in zip(shown, definition.sources, strict=True)
    ]
    before = query.bind(dict(zip(query.uses, known, strict=True)))
    try:
        after = query.bind(dict(zip(query.uses, shown, strict=True)))
    except InvalidInputError as error:
        raise TableSchemaValidationError(f"The view cannot include the new columns of its sources: {error}") from None
    old, names = {name for name, _ in before.fields}, [name for name, _ in after.fields]
    for name in names:
        if names.count(name) > 1:
            raise TableSchemaValidationError(
                f"With the new columns of its sources, the view has two columns named {name!r}."
            )
    new = pa.schema([pa.field(name, kind or pa.null()) for name, kind in after.fields if name not in old])
    check_known_types(new)
    sources = tuple(replace(source, columns=after.columns[source.name]) for source in definition.sources)
    return replace(definition, sources=sources, sql=after.sql), list(new)
