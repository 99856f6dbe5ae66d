"""SQL over tables of a server, or over versions of tables whose place is known."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lance_namespace.errors import InvalidInputError

from pennon.core.identifiers import Identifier
from pennon.spark.needs import needs_of, shows_plans
from pennon.spark.session import create_view
from pennon.spark.tables import Address, parse_name
from pennon.tables.snapshots import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class _Place:
    """Where a statement names a table: the characters to replace, and what the statement calls it then."""

    start: int
    stop: int
    identifier: Identifier
    version: str | None
    alias: str | None


def sql(spark: SparkSession, query: str, tables: Mapping[str, Snapshot] | None = None, **options: str) -> DataFrame:
    """Return what a query in Spark's SQL selects from Lance tables, each at one version.

    Of each table only those columns are read that the query needs, and only rows that its filters let through.

    Args:
        spark: A session; the source is registered in it if need be.
        query: A SELECT. Its tables are called ``namespace.table``; ``VERSION AS OF`` takes a number or a tag.
        tables: Versions of tables by the names that the query has for them; by default they are those of a server.
            Other names are left to Spark, as are its own temporary views.
        options: How to reach the server: ``url``, ``api_key`` and ``database``, as the source has them.
    """
    found = [(place, _find(spark, place, tables, options)) for place in _table_references(query)]
    snapshots = {f"pennon_{uuid.uuid4().hex}": (place, known) for place, known in found if known is not None}
    text = _spliced(query, {name: place for name, (place, _) in snapshots.items()})
    needs = needs_of(spark, text, {name: known.schema() for name, (_, known) in snapshots.items()})
    try:
        for name, (_, known) in snapshots.items():
            create_view(spark, name, known, columns=needs[name].columns, filter=needs[name].filter)
        return spark.sql(text)
    finally:
        if shows_plans(spark):  # a Connect server looks for the views only when the frame is used
            for name in snapshots:
                spark.catalog.dropTempView(name)


def _find(
    spark: SparkSession, place: _Place, tables: Mapping[str, Snapshot] | None, options: Mapping[str, str]
) -> Snapshot | None:
    """Return the version that a place of a query means; none for what Spark itself knows."""
    if tables is not None:
        known = {parse_name(name): snapshot for name, snapshot in tables.items()}.get(place.identifier)
        if known is not None and place.version is not None:
            raise InvalidInputError("The versions of the tables are given, so the query cannot ask for others.")
        return known
    if len(place.identifier) == 1 and spark.catalog.tableExists(place.identifier[0]):
        return None
    wanted = {} if place.version is None else {"version" if place.version.isdecimal() else "tag": place.version}
    table = ".".join("`" + part.replace("`", "``") + "`" for part in place.identifier)
    return Address.from_options({**options, "table": table}).pin(wanted)


def _parse(query: str) -> Any:
    import sqlglot
    from sqlglot.errors import SqlglotError

    try:
        return sqlglot.parse_one(query, read="spark")
    except SqlglotError as error:
        raise InvalidInputError(f"The query cannot be read: {error}") from None


def _table_references(query: str) -> list[_Place]:
    """Return where a query names tables, without those that it defines itself."""
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
        found.append(_Place(parts[0].meta["start"], stop, identifier, named, alias))
    return found


def _long_columns(query: str, tables: Iterable[Identifier]) -> list[tuple[int, int]]:
    """Return where columns are written with the namespace of their table, which is no part of a view's name."""
    from sqlglot import exp

    known = {tuple(part.lower() for part in identifier) for identifier in tables}
    found = []
    for column in _parse(query).find_all(exp.Column):
        parts = column.parts
        if tuple(part.name.lower() for part in parts[:-1]) in known and len(parts) > 2:
            found.append((parts[0].meta["start"], parts[-2].meta["start"]))
    return found


def _end_of_version(query: str, start: int) -> int:
    """Return where ``[FOR] VERSION AS OF value`` ends that follows a table's name."""
    import sqlglot

    tokens: list[Any] = [token for token in sqlglot.tokenize(query, read="spark") if token.start >= start]
    if tokens and tokens[0].text.upper() == "FOR":
        tokens = tokens[1:]
    words = [token.text.upper() for token in tokens[:3]]
    if words[1:] != ["AS", "OF"] or words[0] not in {"VERSION", "SYSTEM_VERSION"} or len(tokens) < 4:
        raise InvalidInputError("A table's earlier content is named by VERSION AS OF, with a number or a tag.")
    return int(tokens[3].end) + 1


def _spliced(query: str, references: Mapping[str, _Place]) -> str:
    """Put names of views in the places of tables; a table without another name keeps its own."""
    changes = [(start, stop, "") for start, stop in _long_columns(query, (p.identifier for p in references.values()))]
    for name, place in references.items():
        alias = " AS `" + place.alias.replace("`", "``") + "`" if place.alias is not None else ""
        changes.append((place.start, place.stop, name + alias))
    for start, stop, text in sorted(changes, reverse=True):
        query = query[:start] + text + query[stop:]
    return query
