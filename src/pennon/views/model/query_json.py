"""Parsing of queries in JSON: Pennon's form and geneva's."""

from __future__ import annotations

import base64
from collections.abc import Collection
from contextlib import suppress

from lance_namespace.errors import InvalidInputError, UnsupportedOperationError
from pydantic import JsonValue

from pennon.core.errors import suggest
from pennon.core.identifiers import DEFAULT_DELIMITER
from pennon.core.sql_names import quote_name
from pennon.views.model.definition import Column
from pennon.views.model.query import QueryFunction, StructuredQuery, TableUse

JsonObject = dict[str, JsonValue]

_KEYS = ("source", "version", "columns", "where", "limit", "offset", "functions")
_FUNCTION_KEYS = ("udf", "inputs", "outputs", "manifest")
#: Keys of geneva's queries that select or order rows in ways that a view does not support.
_UNSUPPORTED = ("shuffle", "fragment_ids", "fragments", "take_offsets", "vector", "full_text_query", "order_by")
#: Keys of geneva's queries that name a branch.
_BRANCH_KEYS = ("branch", "source_branch", "table_branch")


def read_query(document: JsonObject) -> StructuredQuery:
    """Parse a query in Pennon's form."""
    _refuse_unknown(document, _KEYS, "The query")
    return StructuredQuery(
        source=TableUse(_table_name(document.get("source")), _version(document.get("version"))),
        columns=_columns(document.get("columns")),
        where=_text(document, "where"),
        limit=_count(document, "limit"),
        offset=_count(document, "offset"),
        functions=tuple(_function(entry) for entry in _list(document, "functions")),
    )


def is_geneva_query(document: JsonObject) -> bool:
    """Return whether a query has geneva's form."""
    return "source_table" in document and "source" not in document


def read_geneva_query(document: JsonObject) -> StructuredQuery:
    """Parse a query in geneva's form."""
    base = document.get("base") or {}
    if not isinstance(base, dict):
        raise InvalidInputError("The query's 'base' must be an object.")
    branch = next((found for place in (document, base) for key in _BRANCH_KEYS if (found := place.get(key))), "main")
    if branch != "main":
        raise UnsupportedOperationError(f"A view can only read the main branch of its sources, not {branch!r}.")
    refused = next((key for key in _UNSUPPORTED if document.get(key) or base.get(key)), None)
    if refused is not None:
        raise UnsupportedOperationError(f"The query of a view does not support {refused!r}.")
    name = document.get("source_table")
    if not isinstance(name, str) or not name:
        raise InvalidInputError("The query's 'source_table' must name a table.")
    return StructuredQuery(
        source=TableUse(tuple(name.split(DEFAULT_DELIMITER))),
        columns=_columns(base.get("columns")),
        where=_text(base, "filter"),
        limit=_count(base, "limit"),
        offset=_count(base, "offset"),
        functions=tuple(_geneva_function(entry) for entry in _list(document, "column_udfs")),
    )


def _refuse_unknown(document: JsonObject, known: Collection[str], what: str) -> None:
    unknown = sorted(document.keys() - set(known))
    if unknown:
        hint = suggest(unknown[0], known)
        raise InvalidInputError(f"{what} has the unknown key {unknown[0]!r}.{hint} The keys are {', '.join(known)}.")


def _table_name(given: JsonValue) -> tuple[str, ...]:
    if isinstance(given, str) and given:
        return tuple(given.split("."))
    names = _strings(given)
    if names:
        return tuple(names)
    raise InvalidInputError("The query's 'source' must name a table, as 'namespace.table' or as a list of names.")


def _version(given: JsonValue) -> int | str | None:
    if given is None or (type(given) is int and given > 0) or (isinstance(given, str) and given):
        return given
    raise InvalidInputError("The query's 'version' must be the number of a version, or a tag.")


def _columns(given: JsonValue) -> tuple[Column, ...] | None:
    if given is None:
        return None
    names = _strings(given)
    if names is not None and all(names):
        return tuple(Column(name, quote_name(name)) for name in names)
    pairs = list(map(_strings, given)) if isinstance(given, list) else []
    if isinstance(given, dict):
        pairs = [_strings([name, text]) for name, text in given.items()]
    found = [pair for pair in pairs if pair is not None and len(pair) == 2]
    expressions = dict(found)
    if len(found) == len(pairs) and all(expressions.values()) and isinstance(given, list | dict):
        return tuple(Column(name, text) for name, text in expressions.items())
    raise InvalidInputError("The query's 'columns' must be a list of names, or an object of names and expressions.")


def _strings(given: JsonValue) -> list[str] | None:
    """Return a list of strings; none for any other value."""
    found = [item for item in given if isinstance(item, str)] if isinstance(given, list) else []
    return found if isinstance(given, list) and len(found) == len(given) else None


def _text(document: JsonObject, name: str) -> str | None:
    value = document.get(name)
    if value is None or (isinstance(value, str) and value.strip()):
        return value
    raise InvalidInputError(f"The query's {name!r} must be a non-empty string, or omitted.")


def _count(document: JsonObject, name: str) -> int | None:
    value = document.get(name)
    if value is None or (type(value) is int and 0 <= value < 2**63):
        return value
    raise InvalidInputError(f"The query's {name!r} must be a non-negative whole number of at most 63 bits.")


def _list(document: JsonObject, name: str) -> list[JsonValue]:
    value = document.get(name)
    if value is None or isinstance(value, list):
        return value or []
    raise InvalidInputError(f"The query's {name!r} must be a list.")


def _function(entry: JsonValue) -> QueryFunction:
    if not isinstance(entry, dict):
        raise InvalidInputError("Each of the query's 'functions' must be an object.")
    _refuse_unknown(entry, _FUNCTION_KEYS, "A function of the query")
    given = entry.get("outputs")
    outputs = (
        {name: field for name, field in given.items() if isinstance(field, str)} if isinstance(given, dict) else {}
    )
    if not outputs or outputs != given:
        raise InvalidInputError("A function's 'outputs' must be an object of columns and result fields (or '').")
    manifest = entry.get("manifest")
    if manifest is not None and not isinstance(manifest, str):
        raise InvalidInputError("A function's 'manifest' must be a string.")
    return QueryFunction(_bytes(entry.get("udf"), "udf"), _names(entry, "inputs"), tuple(outputs.items()), manifest)


def _geneva_function(entry: JsonValue) -> QueryFunction:
    """Parse a function of geneva, which is needed to run it, but not to store it."""
    entry = entry if isinstance(entry, dict) else {}
    udf, name = entry.get("udf"), entry.get("output_name")
    if not isinstance(udf, dict) or not isinstance(name, str) or not name:
        raise InvalidInputError("Each of the query's 'column_udfs' must have a 'udf' and an 'output_name'.")
    payload = udf.get("udf_payload")
    return QueryFunction(_bytes(payload, "udf_payload"), _names(entry, "input_columns"), ((name, ""),), is_foreign=True)


def _names(entry: JsonObject, key: str) -> tuple[str, ...]:
    names = _strings(entry.get(key))
    if names is None or not all(names):
        raise InvalidInputError(f"A function's {key!r} must be a list of column names.")
    return tuple(names)


def _bytes(given: JsonValue, key: str) -> bytes:
    if isinstance(given, str):
        with suppress(ValueError):
            return base64.b64decode(given, validate=True)
    raise InvalidInputError(f"A function's {key!r} is not base64.")
