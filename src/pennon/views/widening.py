"""New columns of a source that become columns of a view which shows all there are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
from lance_namespace.errors import TableSchemaValidationError

from pennon.catalog.tables import Table
from pennon.views.definition import Column, Definition
from pennon.views.drafting import shown_schema
from pennon.views.select_text import quote


def widen(definition: Definition, table: Table, dataset: Any, view: pa.Schema) -> tuple[Definition, pa.Schema]:
    """Return the definition with the columns that its source got since, and the fields that the view lacks for them."""
    (source,) = definition.sources
    known = {column.name for column in definition.columns} | set(source.columns)
    new = [field for field in shown_schema(table, dataset) if field.name not in known]
    taken = [field.name for field in new if field.name in view.names]
    if taken:
        raise TableSchemaValidationError(
            f"The source has a new column {taken[0]!r}, and the view has another one of that name; rename that one."
        )
    wider = replace(
        definition,
        sources=(replace(source, columns=(*source.columns, *(field.name for field in new))),),
        columns=(*definition.columns, *(Column(field.name, quote(field.name)) for field in new)),
    )
    return wider, pa.schema([pa.field(field.name, field.type) for field in new])
