"""SQL on tables of a server, or on versions of tables at known locations."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING

from lance_namespace.errors import InvalidInputError

from pennon.core.sql_names import quote_name
from pennon.spark.scan_requirements import find_scan_requirements, has_local_plans
from pennon.spark.session import create_view
from pennon.spark.table_address import TableAddress, parse_name
from pennon.tables.snapshots import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from sqlglot import exp

    from pennon.views.model.query import TableUse


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
    from sqlglot import exp

    from pennon.views.sql.statement import Statement, find_tables, parse, table_use

    tree = parse(query)
    statement = Statement(query)
    found = [
        (table, _find(spark, table_use(table), tables, options)) for table in find_tables(tree) if _is_named(table)
    ]
    snapshots = {f"pennon_{uuid.uuid4().hex}": (table, known) for table, known in found if known is not None}
    edits = [edit for name, (table, _) in snapshots.items() for edit in statement.rename(table, name)]
    names = {tuple(part.lower() for part in table_use(table).name) for table, _ in snapshots.values()}
    for column in tree.find_all(exp.Column):  # temporary views have no namespace
        edits += statement.shorten(column, names)
    text = statement.edited(edits)
    needs = find_scan_requirements(spark, text, {name: known.schema() for name, (_, known) in snapshots.items()})
    try:
        for name, (_, known) in snapshots.items():
            create_view(spark, name, known, columns=needs[name].columns, filter=needs[name].filter)
        return spark.sql(text)
    finally:
        if has_local_plans(spark):  # a Connect server resolves the views only when the frame is used
            for name in snapshots:
                spark.catalog.dropTempView(name)


def _is_named(table: exp.Table) -> bool:
    """Return whether a table is named, and not computed by a function."""
    from sqlglot import exp

    return all(isinstance(part, exp.Identifier) for part in table.parts)


def _find(
    spark: SparkSession, use: TableUse, tables: Mapping[str, Snapshot] | None, options: Mapping[str, str]
) -> Snapshot | None:
    """Return the version that a query reads of a table; none for a name that Spark resolves."""
    if tables is not None:
        known = {parse_name(name): snapshot for name, snapshot in tables.items()}.get(use.name)
        if known is not None and use.version is not None:
            raise InvalidInputError("The query cannot use VERSION AS OF: the versions of its tables are given.")
        return known
    if len(use.name) == 1 and spark.catalog.tableExists(use.name[0]):
        return None
    version = str(use.version)
    wanted = {} if use.version is None else {"version" if version.isdecimal() else "tag": version}
    table = ".".join(map(quote_name, use.name))
    return TableAddress.from_options({**options, "table": table}).pin(wanted)
