"""Column lineage: the source columns of each column of a view."""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError
from sqlglot.lineage import lineage
from sqlglot.tokenizer_core import TokenType

from pennon.views.model.definition import CHILD, SOURCE_ROW, Definition, Source
from pennon.views.sql.simple_select import tokenize

#: A table id and a column of that table.
Origin = tuple[str, str]

_HIDDEN = (SOURCE_ROW, CHILD)


def column_origins(definition: Definition) -> dict[str, list[Origin]]:
    """Return the columns of a view, each with the source columns that it is computed from."""
    if definition.sql is not None:
        return _of_sql(definition, definition.sql)
    (source,) = definition.sources
    found = {column.name: _named_in(column.expression, source) for column in definition.columns}
    for function in definition.functions:
        found |= {name: [(source.table_id, path) for path in function.inputs] for name, _ in function.outputs}
    expansion = definition.expansion
    if expansion is not None and definition.kind == "udtf":
        taken = found.keys() if expansion.inputs is None else expansion.inputs
        return dict.fromkeys(expansion.outputs, _unique(origin for name in taken for origin in found.get(name, [])))
    if expansion is not None:
        found |= {name: [(source.table_id, path) for path in expansion.inputs or ()] for name in expansion.outputs}
    return found


def _named_in(expression: str, source: Source) -> list[Origin]:
    words = {token.text.lower() for token in tokenize(expression) if token.token_type != TokenType.STRING}
    return [(source.table_id, path) for path in source.columns if path.split(".")[0].lower() in words]


def _of_sql(definition: Definition, sql: str) -> dict[str, list[Origin]]:
    known = {source.name: source for source in definition.sources}
    schema: dict[str, object] = {
        name: dict.fromkeys((*source.columns, *_HIDDEN), "unknown") for name, source in known.items()
    }
    parsed = parse_one(sql, dialect="spark")
    names = parsed.named_selects if isinstance(parsed, exp.Query) else []
    found: dict[str, list[Origin]] = {}
    for name in names:
        if name in _HIDDEN:
            continue
        try:
            leaves = [node for node in lineage(name, sql, schema, dialect="spark").walk() if not node.downstream]
        except (SqlglotError, ValueError):
            return {}  # the lineage of columns is unknown; that of tables is known
        read = [(leaf.expression.name, leaf.name) for leaf in leaves if isinstance(leaf.expression, exp.Table)]
        found[name] = _unique((known[t].table_id, _spelled(c, known[t])) for t, c in read if t in known)
    return found


def _spelled(name: str, source: Source) -> str:
    """Return a column name without its table, in the spelling of the table; SQL ignores the case."""
    plain = name.rpartition(".")[2].strip('`"')
    return next((column for column in source.columns if column.lower() == plain.lower()), plain)


def _unique(origins: Iterable[Origin]) -> list[Origin]:
    return list(dict.fromkeys(origins))
