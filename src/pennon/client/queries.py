"""Queries of materialized views, built up step by step."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pennon.client.manifests import manifest_text
from pennon.functions import Function

if TYPE_CHECKING:
    from pennon.client.columns import ColumnNames

#: What a column of a view is: an SQL expression over the source, or a function of some of its columns.
Item = str | Function[..., Any]


@dataclass(frozen=True)
class Query:
    """Rows of one table: some columns, expressions and functions of them, where a condition holds.

    Each step returns another query.
    """

    source: str | tuple[str, ...]
    columns: tuple[str, ...] | Mapping[str, str] | None = None
    condition: str | None = None
    version: int | str | None = None
    most: int | None = None
    skipped: int | None = None
    functions: Mapping[ColumnNames, Function[..., Any]] = field(default_factory=dict)

    def select(self, *columns: str | Sequence[str] | Mapping[ColumnNames, Item]) -> Query:
        """Choose the columns: their names, or ``{"x": "a + b", "y": f}`` with expressions and functions.

        A function with several outputs fills as many columns: ``{("width", "height"): size}``.
        """
        names: list[str] = []
        expressions: dict[str, str] = {}
        functions: dict[ColumnNames, Function[..., Any]] = {}
        for given in columns:
            if isinstance(given, Mapping):
                for name, item in given.items():
                    if isinstance(item, Function):
                        functions[name] = item
                    elif isinstance(item, str) and isinstance(name, str):
                        expressions[name] = item
                    else:
                        raise TypeError(f"The column {name!r} is an SQL expression or a function, not {item!r}.")
            else:
                names += [given] if isinstance(given, str) else list(given)
        chosen: tuple[str, ...] | dict[str, str] = tuple(names)
        if expressions:
            chosen = {**{name: quote(name) for name in names}, **expressions}
        return replace(self, columns=chosen, functions=functions)

    def where(self, condition: str) -> Query:
        """Keep the rows for which an SQL condition holds."""
        return replace(self, condition=condition)

    def limit(self, rows: int) -> Query:
        """Keep so many rows; such a view is computed as a whole at every refresh."""
        return replace(self, most=rows)

    def offset(self, rows: int) -> Query:
        """Leave out so many rows; such a view is computed as a whole at every refresh."""
        return replace(self, skipped=rows)

    def at(self, version: int | str) -> Query:
        """Read the table at a version or a tag, for good."""
        return replace(self, version=version)

    def to_json(self) -> dict[str, Any]:
        """Return the query as the server reads it."""
        stated = {
            "source": list(self.source) if isinstance(self.source, tuple) else self.source,
            "version": self.version,
            "columns": list(self.columns) if isinstance(self.columns, tuple) else self.columns,
            "where": self.condition,
            "limit": self.most,
            "offset": self.skipped,
            "functions": [_function(names, function) for names, function in self.functions.items()] or None,
        }
        return {key: value for key, value in stated.items() if value is not None}


def query(source: str | Any) -> Query:
    """Begin the query of a view: over a table, called ``namespace.table``, or an open one."""
    return Query(source if isinstance(source, str) else path_of(source))


def path_of(table: Any) -> tuple[str, ...]:
    """Return the names that lead to an open table."""
    path = getattr(table, "path", None)
    if not isinstance(path, tuple):
        raise TypeError(f"A query reads a table, called by its name or open; {table!r} is neither.")
    branch = table.current_branch() if hasattr(table, "current_branch") else None
    if branch not in (None, "", "main"):
        raise ValueError(f"A view reads the main branch of its sources, and {table!r} is on {branch!r}: open main.")
    return path


def quote(name: str) -> str:
    """Return a column as SQL names it, whatever its name is."""
    return f"`{name.replace('`', '``')}`"


def _function(names: ColumnNames, function: Function[..., Any]) -> dict[str, Any]:
    columns = (names,) if isinstance(names, str) else tuple(names)
    fields = [output.struct_field or "" for output in function.outputs]
    if len(columns) != len(fields):
        raise ValueError(f"The function {function.name!r} has {len(fields)} outputs, but {len(columns)} columns.")
    stated = {
        "udf": base64.b64encode(function.pack()).decode(),
        "inputs": list(function.inputs),
        "outputs": dict(zip(columns, fields, strict=True)),
        "manifest": manifest_text(function.options.manifest),
    }
    return {key: value for key, value in stated.items() if value is not None}
