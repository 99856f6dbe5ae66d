"""Queries that define materialized views, built step by step."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypedDict

from pennon.client.manifests import manifest_text
from pennon.core.sql_names import quote_name
from pennon.functions import Function

if TYPE_CHECKING:
    from pennon.client.columns import ColumnNames
    from pennon.client.transport import JsonObject

#: Any function of the user's.
AnyFunction: TypeAlias = Function[..., object]
#: A column of a view: an SQL expression over the source, or a UDF of some of its columns.
Item: TypeAlias = str | AnyFunction


class OpenTable(Protocol):
    """A table that is open, for example ``connection.open_table("t")``."""

    @property
    def path(self) -> tuple[str, ...]:
        """The names of its namespaces, and its own."""
        ...


class _FunctionEntry(TypedDict, total=False):
    udf: str
    inputs: list[str]
    outputs: dict[str, str]
    manifest: str


@dataclass(frozen=True)
class Query:
    """A query over one table: columns, SQL expressions and UDFs of its rows, with an optional filter.

    Each method returns a new query.
    """

    source: str | tuple[str, ...]
    columns: tuple[str, ...] | Mapping[str, str] | None = None
    condition: str | None = None
    version: int | str | None = None
    max_rows: int | None = None
    skipped_rows: int | None = None
    functions: Mapping[ColumnNames, AnyFunction] = field(default_factory=dict)

    def select(self, *columns: str | Sequence[str] | Mapping[ColumnNames, Item]) -> Query:
        """Select columns: their names, or ``{"x": "a + b", "y": f}`` with SQL expressions and UDFs.

        A UDF with several outputs computes as many columns: ``{("width", "height"): size}``.
        """
        names: list[str] = []
        expressions: dict[str, str] = {}
        functions: dict[ColumnNames, AnyFunction] = {}
        for given in columns:
            if isinstance(given, Mapping):
                for name, item in given.items():
                    if isinstance(item, Function):
                        functions[name] = item
                    elif isinstance(item, str) and isinstance(name, str):
                        expressions[name] = item
                    else:
                        raise TypeError(f"The column {name!r} must be an SQL expression or a UDF, not {item!r}.")
            else:
                names += [given] if isinstance(given, str) else list(given)
        chosen: tuple[str, ...] | dict[str, str] = tuple(names)
        if expressions:
            chosen = {**{name: quote_name(name) for name in names}, **expressions}
        return replace(self, columns=chosen, functions=functions)

    def where(self, condition: str) -> Query:
        """Keep the rows that match an SQL filter."""
        return replace(self, condition=condition)

    def limit(self, rows: int) -> Query:
        """Keep the first rows only. A view with a limit is recomputed in full at every refresh."""
        return replace(self, max_rows=rows)

    def offset(self, rows: int) -> Query:
        """Skip the first rows. A view with an offset is recomputed in full at every refresh."""
        return replace(self, skipped_rows=rows)

    def at(self, version: int | str) -> Query:
        """Read the table at a fixed version or tag."""
        return replace(self, version=version)

    def to_json(self) -> JsonObject:
        """Return the query as JSON, as the server reads it."""
        document = {
            "source": list(self.source) if isinstance(self.source, tuple) else self.source,
            "version": self.version,
            "columns": list(self.columns) if isinstance(self.columns, tuple) else self.columns,
            "where": self.condition,
            "limit": self.max_rows,
            "offset": self.skipped_rows,
            "functions": [_function_entry(names, function) for names, function in self.functions.items()] or None,
        }
        return {key: value for key, value in document.items() if value is not None}


def query(source: str | OpenTable) -> Query:
    """Start the query of a materialized view over a table, given as ``"namespace.table"`` or as an open table."""
    return Query(source if isinstance(source, str) else path_of(source))


def path_of(table: OpenTable) -> tuple[str, ...]:
    """Return the names of an open table's namespaces, and its own; only the main branch can be a source."""
    path = getattr(table, "path", None)
    if not isinstance(path, tuple):
        raise TypeError(f"The source of a query must be the name of a table or an open table, not {table!r}.")
    branch = table.current_branch() if hasattr(table, "current_branch") else None
    if branch not in (None, "", "main"):
        raise ValueError(f"A view reads the main branch of a source, but {table!r} is on branch {branch!r}; open main.")
    return path


def quote(name: str) -> str:
    """Quote a column name for SQL."""
    return f"`{name.replace('`', '``')}`"


def _function_entry(names: ColumnNames, function: AnyFunction) -> _FunctionEntry:
    columns = (names,) if isinstance(names, str) else tuple(names)
    fields = [output.struct_field or "" for output in function.outputs]
    if len(columns) != len(fields):
        raise ValueError(
            f"The function {function.name!r} has {len(fields)} outputs; name as many columns, not {len(columns)}."
        )
    entry: _FunctionEntry = {
        "udf": base64.b64encode(function.pack()).decode(),
        "inputs": list(function.inputs),
        "outputs": dict(zip(columns, fields, strict=True)),
    }
    if (manifest := manifest_text(function.options.manifest)) is not None:
        entry["manifest"] = manifest
    return entry
