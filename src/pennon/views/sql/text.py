"""The query of a view as SQL text, for people and clients."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pennon.core.sql_names import quote_name
from pennon.views.model.definition import Definition


def query_text(definition: Definition, request: Mapping[str, str | None]) -> str:
    """Return the query of a view: the SQL of the request, or SQL generated from the definition."""
    sent = request.get("query") or request.get("source_query") or ""
    if not sent.lstrip().startswith("{"):
        return str(sent)
    if definition.sql is not None:
        return str(json.loads(sent)["sql"])
    items = [
        column.expression
        if column.expression == quote_name(column.name)
        else f"{column.expression} AS {quote_name(column.name)}"
        for column in definition.columns
    ]
    text = f"SELECT {', '.join(items)} FROM {'.'.join(map(quote_name, definition.sources[0].identifier))}"  # noqa: S608 (for display only)
    if definition.where is not None:
        text += f" WHERE {definition.where}"
    if definition.limit is not None:
        text += f" LIMIT {definition.limit}"
    return text if definition.offset is None else f"{text} OFFSET {definition.offset}"


def without_functions(source_query: str) -> str:
    """Remove the bytes of functions from a JSON query; the folder of the view has them."""
    if not source_query.lstrip().startswith("{"):
        return source_query
    document = json.loads(source_query)
    for entry in (*(document.get("functions") or ()), *(document.get("column_udfs") or ())):
        entry["udf"] = None
    return json.dumps(document)
