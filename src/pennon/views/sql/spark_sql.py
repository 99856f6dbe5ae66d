"""Queries in Spark's SQL: the tables and columns they read, the schema they return, and what they must not do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from lance_namespace.errors import InvalidInputError, TableColumnNotFoundError
from sqlglot import exp
from sqlglot.dialects.dialect import DialectType
from sqlglot.errors import OptimizeError, SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import traverse_scope
from sqlglot.schema import MappingSchema
from sqlglot.tokenizer_core import TokenType

from pennon.core.errors import suggest
from pennon.views.model.query import TableUse
from pennon.views.sql.incremental import called, find_multi_row_clause, find_volatile, function_names
from pennon.views.sql.spark_functions import FORBIDDEN, GENERATORS
from pennon.views.sql.spark_lexer import NormalizedSql, normalize_sql
from pennon.views.sql.spark_types import arrow_type, spark_name
from pennon.views.sql.statement import SPARK, Edit, Statement, find_tables, parse, table_use, unreadable

_LONGEST = 100_000
#: The limit for the sum of the depths of all columns: resolving a column takes a step per level.
_MOST_STEPS = 2_000_000
_CONFUSION = (AttributeError, IndexError, KeyError, TypeError, StopIteration, RecursionError)
_QUOTED = {TokenType.STRING, TokenType.IDENTIFIER, TokenType.HEX_STRING, TokenType.NATIONAL_STRING}


@dataclass(frozen=True)
class BoundQuery:
    """A query whose tables are resolved."""

    #: The query with its tables renamed to source_1, source_2, …
    sql: str
    #: The columns read from each table, by those names.
    columns: Mapping[str, tuple[str, ...]]
    #: The columns of the view; the type is none if it cannot be inferred.
    fields: tuple[tuple[str, pa.DataType | None], ...]


class SparkQuery:
    """A SELECT in Spark's SQL, or in another dialect that is translated to Spark's."""

    def __init__(self, text: str, dialect: DialectType = SPARK) -> None:
        _refuse_long(text)
        if dialect != SPARK:
            text = _parse(text, dialect).sql(SPARK, comments=False)
        normal = normalize_sql(text)
        _refuse_calls(normal)
        self._query = _parse(normal.text, SPARK)
        self._statement = _read_tokens(normal)
        _refuse_code(self._query)
        #: Why every refresh computes the whole view; none if it can be refreshed incrementally.
        self.rebuild_reason = find_multi_row_clause(self._query)
        #: The first function whose value changes from call to call.
        self.volatile = find_volatile(self._query)
        #: Whether it selects all columns, so that new columns of a source become columns of the view.
        self.has_star = any(_is_star(item) for item in self._query.selects)
        self._tables = list(_real_tables(self._query))
        #: The distinct tables that the query reads.
        self.uses = tuple(dict.fromkeys(table_use(table) for table in self._tables))
        if not self.uses:
            raise InvalidInputError("The query of a view must read a table.")

    def bind(self, schemas: Mapping[TableUse, pa.Schema]) -> BoundQuery:
        """Resolve the query against the schemas of its tables."""
        try:
            return self._bind(schemas)
        except _CONFUSION:  # the parser's own, over what no grammar has
            raise InvalidInputError("The SQL cannot be read: its tables and columns cannot be resolved.") from None

    def _bind(self, schemas: Mapping[TableUse, pa.Schema]) -> BoundQuery:
        names = {use: f"source_{number}" for number, use in enumerate(self.uses, 1)}
        by_name = {name: schemas[use] for use, name in names.items()}
        edits = [edit for table in self._tables for edit in self._statement.rename(table, names[table_use(table)])]
        known = {tuple(part.lower() for part in use.name): use for use in self.uses}
        for column in self._query.find_all(exp.Column):
            edits += self._statement.shorten(column, known)
        renamed = _parse(self._edited(edits), SPARK)
        columns, fields = _analyse(renamed, by_name)
        if self.rebuild_reason is None:
            edits += self._statement.with_source_row(*self._items(next(iter(schemas.values()))))
        sql = self._edited(edits)
        _check(sql, set(by_name))
        return BoundQuery(sql, columns, fields)

    def _edited(self, edits: Sequence[Edit]) -> str:
        """Return the text with edits; a name in the place of a star needs blanks around it."""
        return normalize_sql(self._statement.edited(edits)).text

    def _items(self, schema: pa.Schema) -> tuple[list[list[str] | None], str]:
        """Return, for each item of the SELECT, the columns of a star or none, and the alias of the table."""
        table = self._tables[0].alias_or_name
        return [_columns_of_star(item, schema.names, table) for item in self._query.selects], table


def normalize_statement(sql: str) -> NormalizedSql:
    """Return the normalized statement of a view that is given to Spark. Older versions stored statements as sent."""
    normal = normalize_sql(sql)
    _refuse_calls(normal)
    _refuse_code(_parse(normal.text, SPARK))
    return normal


def _refuse_long(text: str) -> None:
    if len(text) > _LONGEST:
        raise InvalidInputError(f"The query has more than {_LONGEST} characters.")


def _refuse_calls(normal: NormalizedSql) -> None:
    """Refuse forbidden functions by the tokens alone, independently of any parser."""
    qualified = normal.qualified_call()
    if qualified is not None:
        raise InvalidInputError(f"The query of a view may not call {qualified}(): call functions by their plain names.")
    forbidden = next((name for name in normal.calls() if name in FORBIDDEN), None)
    if forbidden is not None:
        raise InvalidInputError(f"The query of a view may not call {forbidden}().")


def _parse(text: str, dialect: DialectType = SPARK) -> exp.Query:
    query = parse(text, dialect)
    while isinstance(query, exp.Subquery) and not query.alias:
        query = query.this
    if not isinstance(query, exp.Select | exp.SetOperation):
        raise InvalidInputError("The query of a view must be one SELECT.")
    if _count_steps(query) > _MOST_STEPS:
        raise InvalidInputError("The SQL is nested too deeply: write shorter chains of operators, or IN with a list.")
    return query


def _read_tokens(normal: NormalizedSql) -> Statement:
    """Return a statement's tokens, which must be those of its normalized text."""
    statement = Statement(normal.text)
    if any(token.token_type == TokenType.PIPE_GT for token in statement.tokens):
        raise InvalidInputError("The query of a view is a SELECT; '|>' is not offered.")
    quoted = [token.end for token in normal.tokens if token.kind in ("string", "name")]
    if quoted != [token.end + 1 for token in statement.tokens if token.token_type in _QUOTED]:
        raise InvalidInputError("The SQL cannot be read: its quotes can be taken in several ways.")
    return statement


def _count_steps(query: exp.Query) -> int:
    steps = 0
    waiting: list[tuple[exp.Expr, int]] = [(query, 0)]
    while waiting:
        item, depth = waiting.pop()
        steps += depth if isinstance(item, exp.Column) else 0
        waiting += [(part, depth + 1) for part in item.iter_expressions()]
    return steps


def _refuse_code(query: exp.Query) -> None:
    """Refuse statements that run code, or whose text depends on parameters."""
    for node in query.walk():
        if isinstance(node, exp.QueryTransform | exp.Command | exp.Into):
            raise InvalidInputError("The query of a view may only read: TRANSFORM … USING and commands are refused.")
        if isinstance(node, exp.Placeholder | exp.Parameter):
            raise InvalidInputError("The query of a view has no parameters; write the values themselves.")
        if isinstance(node, exp.Func) and function_names(node) & FORBIDDEN:
            raise InvalidInputError(f"The query of a view may not call {called(node)}().")


def _real_tables(query: exp.Query) -> Iterator[exp.Table]:
    """Yield the tables of a query; refuse table functions, except those that return rows from their arguments."""
    for table in find_tables(query):
        if not isinstance(table.this, exp.Func):
            yield table
        elif not function_names(table.this) & {*GENERATORS, "range"}:
            raise InvalidInputError(f"The table function {called(table.this)}() is not supported in views.")


def _check(sql: str, names: set[str]) -> None:
    """Check that a rewritten statement reads exactly the tables with these names."""
    read = {table.sql(SPARK).split(" ")[0] for table in _real_tables(_parse(sql, SPARK))}
    if read != names:
        raise InvalidInputError("Cannot resolve the tables in this query; give each table an alias, and try again.")


def _columns_of_star(item: exp.Expr, names: Sequence[str], table: str) -> list[str] | None:
    """Return the columns of an item of a SELECT that is a star; none for any other item."""
    star = item if isinstance(item, exp.Star) else item.this if isinstance(item, exp.Column) else None
    if not isinstance(star, exp.Star):
        return None
    if star.args.get("replace") or star.args.get("rename"):
        raise InvalidInputError("'*' with REPLACE or RENAME is not supported in a view; name the columns.")
    if isinstance(item, exp.Column) and item.table.lower() != table.lower():
        raise InvalidInputError(f"{item.sql(SPARK)!r} is not supported in a view; name the fields.")
    left_out = {column.name.lower() for column in star.args.get("except_") or ()}
    return [name for name in names if name.lower() not in left_out]


def _analyse(
    query: exp.Query, schemas: Mapping[str, pa.Schema]
) -> tuple[dict[str, tuple[str, ...]], tuple[tuple[str, pa.DataType | None], ...]]:
    """Return the columns that a query reads, by table, and those that it returns."""
    unnamed = next((item for item in query.selects if not _has_name(item)), None)
    if unnamed is not None:
        raise InvalidInputError(f"The column {unnamed.sql(SPARK)!r} has no name; write 'AS' and a name after it.")
    known: dict[str, object] = {
        name: {field.name: spark_name(field.type) or "unknown" for field in schema} for name, schema in schemas.items()
    }
    schema = MappingSchema(known, dialect=SPARK, normalize=True)
    try:
        qualified = qualify(query.copy(), schema=schema, dialect=SPARK)
        typed = annotate_types(qualified, schema=schema, dialect=SPARK)
    except OptimizeError as error:
        raise _unresolved(error, schemas) from None
    except SqlglotError as error:
        raise unreadable(error) from None
    if any(_is_star(item) or item.alias_or_name == "*" for item in typed.selects):
        raise InvalidInputError("'*' of a struct is not supported in a view; name the fields.")
    read = _columns_read(typed, schemas)
    names = _output_names(query, typed, schemas)
    return read, tuple(zip(names, _types(typed, schemas), strict=True))


def _has_name(item: exp.Expr) -> bool:
    return _is_star(item) or item.alias_or_name not in ("", "*")


def _is_star(item: exp.Expr) -> bool:
    return isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star))


def _unresolved(error: OptimizeError, schemas: Mapping[str, pa.Schema]) -> InvalidInputError | TableColumnNotFoundError:
    text = str(error).split(". Line", 1)[0].strip()
    name = text.split("'")[1] if "'" in text else text.rpartition(": ")[2]
    names = [column for schema in schemas.values() for column in schema.names]
    if sum(column.lower() == name.lower() for column in names) > 1:
        return InvalidInputError(
            f"The column {name!r} is ambiguous: several tables have it. Write the table before it."
        )
    return TableColumnNotFoundError(f"There is no column {name!r}.{suggest(name, names)}")


def _columns_read(query: exp.Query, schemas: Mapping[str, pa.Schema]) -> dict[str, tuple[str, ...]]:
    if query.find(exp.Pivot) is not None:  # PIVOT groups by all columns that it does not name
        return {table: tuple(schema.names) for table, schema in schemas.items()}
    read: dict[str, set[str]] = {name: set() for name in schemas}
    for scope in traverse_scope(query):
        for column in scope.columns:
            source = scope.sources.get(column.table)
            if isinstance(source, exp.Table) and source.name in read:
                read[source.name].add(column.name.lower())
    return {
        table: tuple(name for name in schema.names if name.lower() in read[table]) for table, schema in schemas.items()
    }


def _output_names(query: exp.Query, typed: exp.Query, schemas: Mapping[str, pa.Schema]) -> list[str]:
    """Return the column names of a query, in the spelling of the query or of its tables."""
    written = [item.alias_or_name for item in query.selects if not _is_star(item)]
    stored = [column for schema in schemas.values() for column in schema.names]
    spelled: dict[str, str] = {}
    for name in (*written, *stored):
        spelled.setdefault(name.lower(), name)
    return [spelled.get(item.alias_or_name.lower(), item.alias_or_name) for item in typed.selects]


def _types(query: exp.Query, schemas: Mapping[str, pa.Schema]) -> list[pa.DataType | None]:
    """Return the column types of a query; none for those that cannot be inferred."""
    if isinstance(query, exp.SetOperation):
        left, right = _types(query.left, schemas), _types(query.right, schemas)
        if len(left) != len(right):
            name = type(query).__name__.upper()
            raise InvalidInputError(f"The sides of {name} have {len(left)} and {len(right)} columns.")
        return [one if one == other else None for one, other in zip(left, right, strict=True)]
    if not isinstance(query, exp.Select):
        return [None] * len(query.selects)
    made = {lateral.alias_or_name for lateral in query.find_all(exp.Lateral, exp.UDTF)}
    (*_, scope) = traverse_scope(query)
    stored = {
        (name, field.name.lower()): field.type
        for name, source in scope.sources.items()
        if isinstance(source, exp.Table)
        for field in schemas.get(source.name, ())
    }
    return [_type_of(item.unalias(), made, stored) for item in query.selects]


def _type_of(item: exp.Expr, made: set[str], stored: Mapping[tuple[str, str], pa.DataType]) -> pa.DataType | None:
    """Return the type of an item: that of a stored column, or the type inferred from the SQL."""
    if isinstance(item, exp.Column) and (item.table, item.name.lower()) in stored:
        return stored[item.table, item.name.lower()]
    if isinstance(item, exp.Explode | exp.UDTF) or (isinstance(item, exp.Column) and item.table in made):
        return None
    kind = arrow_type(item.type)
    if isinstance(item, exp.Cast | exp.Column) or kind is None:
        return kind
    if pa.types.is_decimal(kind):
        return None  # Spark has its own rules for the precision of decimal arithmetic
    return pa.int32() if kind in (pa.int8(), pa.int16()) else kind
