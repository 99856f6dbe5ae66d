"""Whether a query can be refreshed incrementally: each row depends on a single row of a single table."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from pennon.views.sql.spark_functions import AGGREGATES, GENERATORS, VOLATILE

#: Arguments of a SELECT in sqlglot that involve several rows, and their names in SQL.
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


def find_multi_row_clause(query: exp.Query) -> str | None:
    """Return the sentence that explains why a query cannot be refreshed incrementally; none if it can."""
    found = _multi_row_part(query)
    if found is None:
        return None
    return f"The query uses {found}, so every refresh computes the whole view."


def find_volatile(query: exp.Query) -> str | None:
    """Return the first function of a query whose value changes from call to call."""
    return next((name for node in query.walk() if (name := _volatile(node)) is not None), None)


def called(node: exp.Func) -> str:
    """Return the name of a function as the statement writes it, in lower case."""
    return node.sql("spark").partition("(")[0].strip().lower()


def function_names(node: exp.Func) -> set[str]:
    """Return all names of a function, in lower case."""
    if isinstance(node, exp.Anonymous | exp.AnonymousAggFunc):
        return {str(node.name).lower()}
    return {str(name).lower() for name in type(node).sql_names()}


def _multi_row_part(query: exp.Query) -> str | None:
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
            names = function_names(node)
            if isinstance(node, exp.AggFunc | exp.AnonymousAggFunc) or names & AGGREGATES:
                yield f"the aggregate {called(node)}()"
            elif isinstance(node, exp.UDTF) or names & GENERATORS:
                yield f"{called(node)}(), which returns several rows for one"


def _volatile(node: exp.Expr) -> str | None:
    if isinstance(node, exp.Column):  # some functions are called without parentheses
        name = node.name.lower()
        bare = not node.table and not node.this.quoted and name.startswith(("current_", "local"))
        return name if bare and name in VOLATILE else None
    if not isinstance(node, exp.Func):
        return None
    names = function_names(node)
    changes = names & VOLATILE or (names & {"unix_timestamp"} and not list(node.iter_expressions()))
    return f"{called(node)}()" if changes else None
