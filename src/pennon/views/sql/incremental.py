"""Telling whether a query works row by row: each row of it comes from one row of one table, whatever the others are."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from pennon.views.sql.functions import AGGREGATES, GENERATORS, VOLATILE

#: Parts of a SELECT that look at more than one row, and what they are called.
_CLAUSES = {
    "with_": "WITH",
    "joins": "a join",
    "laterals": "LATERAL",
    "group": "GROUP BY",
    "having": "HAVING",
    "qualify": "QUALIFY",
    "windows": "WINDOW",
    "distinct": "DISTINCT",
    "order": "ORDER BY",
    "sort": "SORT BY",
    "cluster": "CLUSTER BY",
    "distribute": "DISTRIBUTE BY",
    "limit": "LIMIT",
    "offset": "OFFSET",
    "match": "MATCH_RECOGNIZE",
    "pivots": "PIVOT",
    "sample": "TABLESAMPLE",
}


def why_not_row_by_row(query: exp.Query) -> str | None:
    """Return why a query has to be computed as a whole, in one sentence; none when it works row by row."""
    found = _looks_further(query)
    if found is None:
        return None
    return f"The query uses {found}, so every refresh computes the whole view."


def find_volatile(query: exp.Query) -> str | None:
    """Return what a query calls whose value changes from call to call, if there is anything like that."""
    return next((name for node in query.walk() if (name := _volatile(node)) is not None), None)


def called(node: exp.Func) -> str:
    """Return the name of a function as SQL calls it, in lower case."""
    return node.sql("spark").partition("(")[0].strip().lower()


def names_of(node: exp.Func) -> set[str]:
    """Return all names of a function, in lower case."""
    if isinstance(node, exp.Anonymous | exp.AnonymousAggFunc):
        return {str(node.name).lower()}
    return {str(name).lower() for name in type(node).sql_names()}


def _looks_further(query: exp.Query) -> str | None:
    if isinstance(query, exp.SetOperation):
        return type(query).__name__.upper()
    if not isinstance(query, exp.Select):
        return "a subquery"
    for part, name in _CLAUSES.items():
        if query.args.get(part):
            return name
    source = query.args.get("from_")
    table = source.this if source is not None else None
    if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier | exp.Dot):
        return "no table" if table is None else "a subquery" if isinstance(table, exp.Query) else "a table function"
    for part, name in _CLAUSES.items():
        if table.args.get(part):
            return name
    return next(_reasons_in(query), None)


def _reasons_in(query: exp.Select) -> Iterator[str]:
    for node in query.walk():
        if node is query:
            continue
        if isinstance(node, exp.Query):
            yield "a subquery"
        elif isinstance(node, exp.Window):
            yield "a window"
        elif (name := _volatile(node)) is not None:
            yield f"{name}, whose value changes from call to call"
        elif isinstance(node, exp.Func):
            names = names_of(node)
            if isinstance(node, exp.AggFunc | exp.AnonymousAggFunc) or names & AGGREGATES:
                yield f"the aggregate {called(node)}()"
            elif isinstance(node, exp.UDTF) or names & GENERATORS:
                yield f"{called(node)}(), which makes several rows of one"


def _volatile(node: exp.Expr) -> str | None:
    if isinstance(node, exp.Column):  # some are called without brackets
        name = node.name.lower()
        bare = not node.table and not node.this.quoted and name.startswith(("current_", "local"))
        return name if bare and name in VOLATILE else None
    if not isinstance(node, exp.Func):
        return None
    names = names_of(node)
    changes = names & VOLATILE or (names & {"unix_timestamp"} and not list(node.iter_expressions()))
    return f"{called(node)}()" if changes else None
