"""Bodies of queries: those of the specification, and those of LanceDB's remote client, which sends plainer values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from lance_namespace.errors import InvalidInputError

from pennon.storage.layout import check_branch
from pennon.tables.query.expressions import (
    DEFAULT_LIMITS,
    Expression,
    SqlLimits,
    find_isolation_reason,
    parse_expression,
    total_growth,
)
from pennon.tables.query.full_text import FullText
from pennon.tables.query.scan import Selection, TableQuery

#: A JSON object, as a client sent it.
Body = Mapping[str, object]
Value = TypeVar("Value", int, str, bool)

#: Options of a vector search, by their names in bodies and in Lance.
_NEAREST = {
    "distance_type": "metric",
    "metric_type": "metric",
    "nprobes": "nprobes",
    "minimum_nprobes": "minimum_nprobes",
    "maximum_nprobes": "maximum_nprobes",
    "refine_factor": "refine_factor",
    "ef": "ef",
    "approx_mode": "approx_mode",
}

#: Lance searches for the vectors of a query one by one and cannot be interrupted. Queries with more vectors run in a
#: query process, which is ended when the client disconnects.
_MAX_INLINE_VECTORS = 1_000

_TYPE_NAMES = {int: "a whole number", str: "a text", bool: "true or false"}


def parse_query(body: Body, limits: SqlLimits = DEFAULT_LIMITS) -> TableQuery:
    """Return the query of a body of either kind."""
    vectors = _vectors(body.get("vector"))
    condition = parse_expression(_optional(body, "filter", str) or "", limits)
    columns, expressions = _columns(body.get("columns"), limits)
    full_text = _full_text(body.get("full_text_query"))
    reason = find_isolation_reason(condition, expressions) or (full_text.isolation_reason if full_text else None)
    if vectors is not None and isinstance(vectors[0], list) and len(vectors) > _MAX_INLINE_VECTORS:
        reason = reason or "its many vectors"
    return TableQuery(
        vectors=vectors,
        vector_column=_optional(body, "vector_column", str),
        k=_optional(body, "k", int),
        offset=_optional(body, "offset", int),
        filter=condition.text,
        prefilter=_optional(body, "prefilter", bool) is not False,
        columns=columns,
        full_text=full_text,
        order_by=_order(body.get("order_by")),
        with_row_id=bool(_optional(body, "with_row_id", bool)),
        fast_search=bool(_optional(body, "fast_search", bool)),
        nearest=_nearest(body) if vectors is not None else {},
        version=_optional(body, "version", int),
        branch=check_branch(_optional(body, "branch", str)),
        isolation_reason=reason,
        copies=total_growth(condition, expressions).copies,
        converted=tuple(frozenset().union(*(each.converted for each in (condition, *expressions)))),
    )


def _optional(body: Body, name: str, kind: type[Value]) -> Value | None:
    value = body.get(name)
    if value is None:
        return None
    if type(value) is not kind:
        raise InvalidInputError(f"{name} must be {_TYPE_NAMES[kind]}.")
    if type(value) is int and value < 0:
        raise InvalidInputError(f"{name} is {value}; it must be 0 or more.")
    if type(value) is int and value >= 2**63 and name != "k":  # any k that large means all rows
        raise InvalidInputError(f"{name} is {value}; it must be a 64-bit integer.")
    return value


def _unwrap(field: str, value: object, one: str, other: str) -> object:
    """Return the value of a field that the specification wraps in an object with one of two keys."""
    if not isinstance(value, dict) or not {one, other} & value.keys():
        return value
    if value.get(one) and value.get(other):
        raise InvalidInputError(f"{field} must hold {one} or {other}, not both.")
    return value.get(one) or value.get(other)


def _vectors(value: object) -> list[object] | None:
    value = _unwrap("vector", value, "single_vector", "multi_vector")
    if value in (None, [], {}):
        return None
    if not isinstance(value, list):
        raise InvalidInputError("vector must be a list of numbers, or a list of such lists.")
    return value


def _columns(value: object, limits: SqlLimits) -> tuple[Selection, list[Expression]]:
    """Return the selected columns, and the expressions among them."""
    value = _unwrap("columns", value, "column_names", "column_aliases")
    if value in (None, [], {}):
        return None, []
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return value, []
    if isinstance(value, dict) and all(isinstance(expression, str) for expression in value.values()):
        parsed = {name: parse_expression(expression, limits) for name, expression in value.items()}
        return {name: expression.text for name, expression in parsed.items()}, list(parsed.values())
    raise InvalidInputError("columns must be a list of names, or a map of names to SQL expressions.")


def _full_text(value: object) -> FullText | None:
    if value is None:
        return None
    value = _unwrap("full_text_query", value, "string_query", "structured_query")
    query, columns = (value.get("query"), value.get("columns") or []) if isinstance(value, dict) else (None, [])
    if isinstance(query, str) and isinstance(columns, list) and all(isinstance(name, str) for name in columns):
        return FullText(text=query, columns=tuple(columns))
    if isinstance(query, dict):
        return FullText(structured=query)
    raise InvalidInputError("full_text_query must hold a string or a structured query.")


def _order(value: object) -> list[tuple[str, bool, bool]]:
    """Return the columns to sort by, each with whether it is ascending and has nulls first."""
    orders = value or []
    if not isinstance(orders, list) or not all(isinstance(each, dict) and "column_name" in each for each in orders):
        raise InvalidInputError("order_by must be a list of objects with a column_name.")
    return [
        (str(each["column_name"]), bool(each.get("ascending", True)), bool(each.get("nulls_first", False)))
        for each in orders
    ]


def _nearest(body: Body) -> dict[str, object]:
    options = {target: body[name] for name, target in _NEAREST.items() if body.get(name) is not None}
    if "minimum_nprobes" in options or "maximum_nprobes" in options:
        options.pop("nprobes", None)
        if not options.get("maximum_nprobes"):
            options.pop("maximum_nprobes", None)
    if _optional(body, "bypass_vector_index", bool):
        options["use_index"] = False
    bounds = (body.get("lower_bound"), body.get("upper_bound"))
    if bounds != (None, None):
        options["distance_range"] = bounds
    return options
