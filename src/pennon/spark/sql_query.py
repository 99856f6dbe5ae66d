"""SQL on tables of a server, or on versions of tables at known locations."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lance_namespace.errors import InvalidInputError

from pennon.core.identifiers import Identifier
from pennon.core.sql_names import quote_name
from pennon.spark.scan_requirements import find_scan_requirements, has_local_plans
from pennon.spark.session import create_view
from pennon.spark.table_address import TableAddress, parse_name
from pennon.tables.snapshots import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from sqlglot import exp


@dataclass(frozen=True)
class _TableReference:
    """A reference to a table in a statement: the characters to replace, and the alias to keep."""

    start: int
    stop: int
    identifier: Identifier
    version: str | None
    alias: str | None


def sql(spark: SparkSession, query: str, tables: Mapping[str, Snapshot] | None = None, **options: str) -> DataFrame:
    """Run a query in Spark's SQL on Lance tables, each at a fixed version.

    Only the columns that the query needs are read, and only rows that pass its filters.

    Args:
        spark: A session; the source is registered in it.
        query: A SELECT on tables named ``namespace.table``; ``VERSION AS OF`` takes a number or a tag.
        tables: Versions of tables by their names in the query, instead of tables of a server. Other names are
            resolved by Spark, such as its temporary views.
        options: The options ``url``, ``api_key`` and ``database`` of the source.
    """
    found = [(reference, _find(spark, reference, tables, options)) for reference in _table_references(query)]
    snapshots = {f"pennon_{uuid.uuid4().hex}": (reference, known) for reference, known in found if known is not None}
    text = _replace_tables(query, {name: reference for name, (reference, _) in snapshots.items()})
    needs = find_scan_requirements(spark, text, {name: known.schema() for name, (_, known) in snapshots.items()})
    try:
        for name, (_, known) in snapshots.items():
            create_view(spark, name, known, columns=needs[name].columns, filter=needs[name].filter)
        return spark.sql(text)
    finally:
        if has_local_plans(spark):  # a Connect server resolves the views only when the frame is used
            for name in snapshots:
                spark.catalog.dropTempView(name)


def _find(
    spark: SparkSession, reference: _TableReference, tables: Mapping[str, Snapshot] | None, options: Mapping[str, str]
) -> Snapshot | None:
    """Return the version that a reference selects; none for a name that Spark resolves."""
    if tables is not None:
        known = {parse_name(name): snapshot for name, snapshot in tables.items()}.get(reference.identifier)
        if known is not None and reference.version is not None:
            raise InvalidInputError("The query cannot use VERSION AS OF: the versions of its tables are given.")
        return known
    if len(reference.identifier) == 1 and spark.catalog.tableExists(reference.identifier[0]):
        return None
    wanted = (
        {} if reference.version is None else {"version" if reference.version.isdecimal() else "tag": reference.version}
    )
    table = ".".join(map(quote_name, reference.identifier))
    return TableAddress.from_options({**options, "table": table}).pin(wanted)


def _parse(query: str) -> exp.Expr:
    import sqlglot
    from sqlglot.errors import SqlglotError

    try:
        return sqlglot.parse_one(query, read="spark")
    except SqlglotError as error:
        raise InvalidInputError(f"Invalid query: {error}") from None
    except (ValueError, TypeError, AttributeError, LookupError) as error:  # of functions that lack arguments
        raise InvalidInputError("The query cannot be read: a function lacks arguments or has invalid ones.") from error


def _table_references(query: str) -> list[_TableReference]:
    """Return the references to tables in a query, except to its own common table expressions."""
    from sqlglot import exp

    tree = _parse(query)
    defined = {cte.alias_or_name.lower() for cte in tree.find_all(exp.CTE)}
    hints = {id(table) for hint in tree.find_all(exp.Hint) for table in hint.find_all(exp.Table)}
    found = []
    for table in tree.find_all(exp.Table):
        parts = table.parts
        if id(table) in hints or not all(isinstance(part, exp.Identifier) for part in parts):
            continue
        if len(parts) == 1 and parts[0].name.lower() in defined:
            continue
        stop = parts[-1].meta["end"] + 1
        version = table.args.get("version")
        if version is not None:
            stop = _end_of_version(query, stop)
        alias = None if table.alias else parts[-1].name
        named = version.expression.name if version is not None else None
        identifier = tuple(part.name for part in parts)
        found.append(_TableReference(parts[0].meta["start"], stop, identifier, named, alias))
    return found


def _qualified_columns(query: str, tables: Iterable[Identifier]) -> list[tuple[int, int]]:
    """Return the positions of namespaces before column names, which temporary views do not have."""
    from sqlglot import exp

    known = {tuple(part.lower() for part in identifier) for identifier in tables}
    found = []
    for column in _parse(query).find_all(exp.Column):
        parts = column.parts
        if tuple(part.name.lower() for part in parts[:-1]) in known and len(parts) > 2:
            found.append((parts[0].meta["start"], parts[-2].meta["start"]))
    return found


def _end_of_version(query: str, start: int) -> int:
    """Return the end of the ``[FOR] VERSION AS OF value`` after a table name."""
    import sqlglot

    tokens = [token for token in sqlglot.tokenize(query, read="spark") if token.start >= start]
    if tokens and tokens[0].text.upper() == "FOR":
        tokens = tokens[1:]
    words = [token.text.upper() for token in tokens[:3]]
    if words[1:] != ["AS", "OF"] or words[0] not in {"VERSION", "SYSTEM_VERSION"} or len(tokens) < 4:
        raise InvalidInputError("Write VERSION AS OF with a number or a tag to read an earlier version of a table.")
    return int(tokens[3].end) + 1


def _replace_tables(query: str, references: Mapping[str, _TableReference]) -> str:
    """Replace table names with names of temporary views; a table without an alias gets its own name as alias."""
    changes = [
        (start, stop, "") for start, stop in _qualified_columns(query, (p.identifier for p in references.values()))
    ]
    for name, reference in references.items():
        alias = f" AS {quote_name(reference.alias)}" if reference.alias is not None else ""
        changes.append((reference.start, reference.stop, name + alias))
    for start, stop, text in sorted(changes, reverse=True):
        query = query[:start] + text + query[stop:]
    return query
