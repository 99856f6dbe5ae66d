"""Parsing of the query of a view, in any of its forms."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from lance_namespace.errors import InvalidInputError

from pennon.views.model.query import StructuredQuery
from pennon.views.model.query_json import is_geneva_query, read_geneva_query, read_query
from pennon.views.sql.simple_select import LanceDialect, parse_simple_select
from pennon.views.sql.spark_sql import SparkQuery

if TYPE_CHECKING:
    from pydantic import JsonValue

Query = StructuredQuery | SparkQuery


def parse_source_query(text: str) -> Query:
    """Parse a ``source_query``: JSON in Pennon's or geneva's form, or Spark's SQL."""
    plain = text.strip()
    if not plain:
        raise InvalidInputError("The query is empty.")
    if not plain.startswith("{"):
        return SparkQuery(plain)
    document = _object(plain)
    if "sql" in document:
        sql = document["sql"]
        if len(document) > 1 or not isinstance(sql, str) or not sql.strip():
            raise InvalidInputError("A query with the key 'sql' must have a SELECT as its value, and no other key.")
        return SparkQuery(sql)
    return read_geneva_query(document) if is_geneva_query(document) else read_query(document)


def parse_client_query(text: str) -> Query:
    """Parse a query of LanceDB's client: a simple SELECT is evaluated by Lance, any other query by Spark."""
    plain = text.strip()
    if not plain:
        raise InvalidInputError("The query is empty.")
    return parse_simple_select(plain) or SparkQuery(plain, LanceDialect)


def parse_request(request: Mapping[str, str | None]) -> Query:
    """Parse the query of a request, from the one of the two fields that it has."""
    query, source_query = request.get("query"), request.get("source_query")
    if (query is None) == (source_query is None):
        raise InvalidInputError("Exactly one of 'source_query' and 'query' (as LanceDB's client sends it) is required.")
    return parse_client_query(query) if query is not None else parse_source_query(source_query or "")


def _object(text: str) -> dict[str, JsonValue]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise InvalidInputError("The query begins with '{', but is not a valid JSON object.")
    return document
