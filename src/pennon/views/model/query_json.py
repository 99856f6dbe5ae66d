"""Queries written as JSON: Pennon's own form, and geneva's."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection
from typing import Any

from lance_namespace.errors import InvalidInputError, UnsupportedOperationError

from pennon.core.errors import suggest
from pennon.core.identifiers import DEFAULT_DELIMITER
from pennon.views.model.definition import Column
from pennon.views.model.query import FunctionUse, StructuredQuery, TableUse
from pennon.views.sql.simple_select import quote

Json = dict[str, Any]

_KEYS = ("source", "version", "columns", "where", "limit", "offset", "functions")
_FUNCTION_KEYS = ("udf", "inputs", "outputs", "manifest")
#: Of geneva's queries and what they are based on: what would choose or order rows in other ways than a view does.
_NOT_OFFERED = ("shuffle", "fragment_ids", "fragments", "take_offsets", "vector", "full_text_query", "order_by")
#: Where a query of geneva's may name a branch.
_BRANCHES = ("branch", "source_branch", "table_branch")


def read_query(document: Json) -> StructuredQuery:
    """Return what a query in Pennon's form asks for."""
    _refuse_unknown(document, _KEYS, "The query")
    return StructuredQuery(
        source=TableUse(_table_name(document.get("source")), _version(document.get("version"))),
        columns=_columns(document.get("columns")),
        where=_text(document, "where"),
        limit=_count(document, "limit"),
        offset=_count(document, "offset"),
        functions=tuple(_function(entry) for entry in _list(document, "functions")),
    )


def is_geneva(document: Json) -> bool:
    """Tell whether a query has geneva's form."""
    return "source_table" in document and "source" not in document


def read_geneva_query(document: Json) -> StructuredQuery:
    """Return what a query in geneva's form asks for."""
    base = document.get("base") or {}
    if not isinstance(base, dict):
        raise InvalidInputError("The query's 'base' must be an object.")
    branch = next((found for place in (document, base) for key in _BRANCHES if (found := place.get(key))), "main")
    if branch != "main":
        raise UnsupportedOperationError(f"A view reads the main branch of its sources, and no other: {branch!r}.")
    refused = next((key for key in _NOT_OFFERED if document.get(key) or base.get(key)), None)
    if refused is not None:
        raise UnsupportedOperationError(f"A view's query cannot have {refused!r}.")
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


def _refuse_unknown(document: Json, known: Collection[str], what: str) -> None:
    unknown = sorted(document.keys() - set(known))
    if unknown:
        hint = suggest(unknown[0], known)
        raise InvalidInputError(
            f"{what} has a key that is not known: {unknown[0]!r}.{hint} It may have {', '.join(known)}."
        )


def _table_name(given: Any) -> tuple[str, ...]:
    if isinstance(given, str) and given:
        return tuple(given.split("."))
    if isinstance(given, list) and given and all(isinstance(part, str) for part in given):
        return tuple(given)
    raise InvalidInputError("The query's 'source' must name a table, as 'namespace.table' or as a list of names.")


def _version(given: Any) -> int | str | None:
    if given is None or (type(given) is int and given > 0) or (isinstance(given, str) and given):
        return given
    raise InvalidInputError("The query's 'version' must be the number of a version, or a tag.")


def _columns(given: Any) -> tuple[Column, ...] | None:
    if given is None:
        return None
    if isinstance(given, list) and all(isinstance(name, str) and name for name in given):
        return tuple(Column(name, quote(name)) for name in given)
    if isinstance(given, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in given):
        given = dict(given) if all(isinstance(pair[0], str) for pair in given) else None
    if isinstance(given, dict) and all(isinstance(text, str) and text for text in given.values()):
        return tuple(Column(name, text) for name, text in given.items())
    raise InvalidInputError("The query's 'columns' must be a list of names, or an object of names and expressions.")


def _text(document: Json, name: str) -> str | None:
    value = document.get(name)
    if value is None or (isinstance(value, str) and value.strip()):
        return value
    raise InvalidInputError(f"The query's {name!r} must be text, or left out.")


def _count(document: Json, name: str) -> int | None:
    value = document.get(name)
    if value is None or (type(value) is int and 0 <= value < 2**63):
        return value
    raise InvalidInputError(f"The query's {name!r} must be a whole number, 0 or more, of 64 bits at most.")


def _list(document: Json, name: str) -> list[Any]:
    value = document.get(name)
    if value is None or isinstance(value, list):
        return value or []
    raise InvalidInputError(f"The query's {name!r} must be a list.")


def _function(entry: Any) -> FunctionUse:
    if not isinstance(entry, dict):
        raise InvalidInputError("Each of the query's 'functions' must be an object.")
    _refuse_unknown(entry, _FUNCTION_KEYS, "A function of the query")
    outputs = entry.get("outputs")
    if not isinstance(outputs, dict) or not outputs or not all(isinstance(value, str) for value in outputs.values()):
        raise InvalidInputError("A function's 'outputs' must be an object: the view's columns, and fields or ''.")
    manifest = entry.get("manifest")
    if manifest is not None and not isinstance(manifest, str):
        raise InvalidInputError("A function's 'manifest' must be text.")
    return FunctionUse(_bytes(entry.get("udf"), "udf"), _names(entry, "inputs"), tuple(outputs.items()), manifest)


def _geneva_function(entry: Any) -> FunctionUse:
    """Return a function as geneva sends it; running it takes geneva, keeping it does not."""
    udf = entry.get("udf") if isinstance(entry, dict) else None
    name = entry.get("output_name") if isinstance(entry, dict) else None
    if not isinstance(udf, dict) or not isinstance(name, str) or not name:
        raise InvalidInputError("Each of the query's 'column_udfs' must have a 'udf' and an 'output_name'.")
    payload = udf.get("udf_payload")
    return FunctionUse(_bytes(payload, "udf_payload"), _names(entry, "input_columns"), ((name, ""),), is_foreign=True)


def _names(entry: Json, key: str) -> tuple[str, ...]:
    names = entry.get(key)
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise InvalidInputError(f"A function's {key!r} must be a list of columns.")
    return tuple(names)


def _bytes(given: Any, key: str) -> bytes:
    try:
        return base64.b64decode(given, validate=True)
    except (TypeError, binascii.Error, ValueError):
        raise InvalidInputError(f"A function's {key!r} is not base64.") from None
