"""A view's query as SQL, for people and for clients that ask for it."""

from __future__ import annotations

import json
from typing import Any

from pennon.views.model.definition import Definition
from pennon.views.sql.simple_select import quote


def query_text(definition: Definition, request: dict[str, Any]) -> str:
    """Return the query of a view: as it was sent where that was SQL, else written out."""
    sent = request.get("query") or request.get("source_query") or ""
    if not sent.lstrip().startswith("{"):
        return str(sent)
    if definition.sql is not None:
        return str(json.loads(sent)["sql"])
    items = [
        column.expression if column.expression == quote(column.name) else f"{column.expression} AS {quote(column.name)}"
        for column in definition.columns
    ]
    text = f"SELECT {', '.join(items)} FROM {'.'.join(map(quote, definition.sources[0].identifier))}"  # noqa: S608 (to be read)
    if definition.where is not None:
        text += f" WHERE {definition.where}"
    if definition.limit is not None:
        text += f" LIMIT {definition.limit}"
    return text if definition.offset is None else f"{text} OFFSET {definition.offset}"


def without_functions(source_query: str) -> str:
    """Return a query in JSON without the bytes of its functions, which the view's folder keeps."""
    if not source_query.lstrip().startswith("{"):
        return source_query
    document = json.loads(source_query)
    for entry in (*(document.get("functions") or ()), *(document.get("column_udfs") or ())):
        entry["udf"] = None
    return json.dumps(document)
