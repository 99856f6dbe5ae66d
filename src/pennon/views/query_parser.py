"""Reading the query of a view, in whichever form it comes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lance_namespace.errors import InvalidInputError

from pennon.views.model.query import StructuredQuery
from pennon.views.model.query_json import is_geneva, read_geneva_query, read_query
from pennon.views.sql.simple_select import Plain, take_apart
from pennon.views.sql.spark_sql import SparkQuery

Query = StructuredQuery | SparkQuery


def parse_source_query(text: str) -> Query:
    """Return what a ``source_query`` asks for: JSON of Pennon's or geneva's, or Spark's SQL."""
    plain = text.strip()
    if not plain:
        raise InvalidInputError("The query is empty.")
    if not plain.startswith("{"):
        return SparkQuery(plain)
    document = _object(plain)
    if "sql" in document:
        sql = document["sql"]
        if len(document) > 1 or not isinstance(sql, str) or not sql.strip():
            raise InvalidInputError("A query with 'sql' has no other key, and a SELECT as its value.")
        return SparkQuery(sql)
    return read_geneva_query(document) if is_geneva(document) else read_query(document)


def parse_client_query(text: str) -> Query:
    """Return what a query of LanceDB's client asks for: row by row in Lance's SQL, or else by Spark."""
    plain = text.strip()
    if not plain:
        raise InvalidInputError("The query is empty.")
    return take_apart(plain) or SparkQuery(plain, Plain)


def parse_request(request: Mapping[str, Any]) -> Query:
    """Return what the request for a view asks for, by the one of its two fields that it has."""
    query, source_query = request.get("query"), request.get("source_query")
    if (query is None) == (source_query is None):
        raise InvalidInputError("A view needs its query: 'source_query', or 'query' as LanceDB's client sends it.")
    return parse_client_query(query) if query is not None else parse_source_query(source_query or "")


def _object(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise InvalidInputError("The query begins like JSON, but is not a JSON object.")
    return document
