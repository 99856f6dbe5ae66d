"""Columns and rows that a query needs from each table, taken from Spark's optimized plan.

Spark's interface for Python sources cannot prune columns. It can push filters, but keeps them with the data frame: a
second query on the same frame, without the filter, would get the rows of the first. So the query is planned once on
empty placeholder views, and the columns and filters in that plan become options of the real sources.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from pennon.spark.java_objects import JavaObject, items
from pennon.spark.pushdown import translate
from pennon.spark.table_address import parse_name
from pennon.spark.types import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class ScanRequirement:
    """The columns and rows that a query needs from a table."""

    columns: tuple[str, ...]
    #: The rows it may need, in Lance's SQL; Spark still evaluates its own filters. None means all rows.
    filter: str | None = None


@dataclass(frozen=True)
class _TableScan:
    """One scan of a table in a plan."""

    columns: frozenset[str]
    conditions: tuple[JavaObject, ...]


def find_scan_requirements(
    spark: SparkSession, query: str, schemas: Mapping[str, pa.Schema]
) -> dict[str, ScanRequirement]:
    """Return the columns and rows that a query needs from each table.

    The names of the tables must not be those of temporary views. With Spark Connect, which does not show its plans,
    every column and row is needed.
    """
    session: JavaObject = spark  # for its private attributes
    if not has_local_plans(session):
        return {name: ScanRequirement(tuple(schema.names)) for name, schema in schemas.items()}
    try:
        placeholders = {_create_placeholder(session, name, schema): name for name, schema in schemas.items()}
        plan = session.sql(query)._jdf.queryExecution().optimizedPlan()  # noqa: SLF001 (nothing public shows it)
        uses: dict[str, list[_TableScan]] = {name: [] for name in schemas}
        for number, use in _uses(plan, ()):
            if number in placeholders:
                uses[placeholders[number]].append(use)
    finally:
        for name in schemas:
            session.catalog.dropTempView(name)
    sources: JavaObject = session._jvm.org.apache.spark.sql.execution.datasources  # noqa: SLF001 (nothing public translates filters)
    strategy = getattr(getattr(sources, "DataSourceStrategy$"), "MODULE$")
    return {name: _requirement(schemas[name], found, strategy) for name, found in uses.items()}


def has_local_plans(spark: SparkSession) -> bool:
    """Return whether a session runs in this process, so that its plans can be read; false with Spark Connect."""
    return hasattr(spark, "_jsparkSession")


def _create_placeholder(session: JavaObject, name: str, schema: pa.Schema) -> int:
    """Create an empty view that Spark cannot optimize away, and return the id of the RDD that it reads."""
    frame = session.createDataFrame(session.sparkContext.emptyRDD(), spark_schema(schema))
    frame.createOrReplaceTempView(name)
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()  # noqa: SLF001 (nothing public shows them)
    return int(leaves.apply(0).rdd().id())


def _uses(node: JavaObject, above: tuple[JavaObject, ...]) -> Iterator[tuple[int, _TableScan]]:
    """Yield the scans of a plan, each with the columns and filters of the nodes directly above it."""
    if _kind(node) == "LogicalRDD":
        yield int(node.rdd().id()), _use(node, above)
    for child in items(node.children()):
        yield from _uses(child, (node, *above))
    for subquery in items(node.subqueries()):
        yield from _uses(subquery, ())


def _use(leaf: JavaObject, above: tuple[JavaObject, ...]) -> _TableScan:
    names = {attribute.exprId().id(): attribute.name() for attribute in items(leaf.output())}
    needed: set[str] = set()
    conditions: list[JavaObject] = []
    for node in above:
        kind = _kind(node)
        if kind not in {"Filter", "Project", "Aggregate"}:
            break
        needed |= {names[found.exprId().id()] for found in items(node.references().toSeq())}
        if kind != "Filter":
            return _TableScan(frozenset(needed), tuple(conditions))
        conditions.append(node.condition())
    # No node directly above selects columns, so all of them are needed.
    return _TableScan(frozenset(names.values()), tuple(conditions))


def _requirement(schema: pa.Schema, uses: list[_TableScan], strategy: JavaObject) -> ScanRequirement:
    needed = frozenset[str]().union(*(use.columns for use in uses))
    columns = tuple(name for name in schema.names if name in needed)
    if len(uses) != 1:
        return ScanRequirement(columns)
    found = (strategy.translateFilter(part, True) for whole in uses[0].conditions for part in _conjuncts(whole))
    texts = [text for option in found if option.isDefined() and (text := _condition(option.get(), schema))]
    return ScanRequirement(columns, " AND ".join(texts) or None)


def _conjuncts(condition: JavaObject) -> Iterator[JavaObject]:
    if _kind(condition) == "And":
        yield from _conjuncts(condition.left())
        yield from _conjuncts(condition.right())
    else:
        yield condition


def _condition(given: JavaObject, schema: pa.Schema) -> str | None:
    """Translate a filter of Spark into one of Lance that keeps at least the same rows."""
    kind = _kind(given)
    if kind in {"And", "Or"}:
        sides = [_condition(given.left(), schema), _condition(given.right(), schema)]
        known = [side for side in sides if side is not None]
        if kind == "Or" and len(known) < len(sides):
            return None
        return f"({f' {kind.upper()} '.join(known)})" if known else None
    converted = _as_python(given)
    condition = translate(converted, schema) if converted is not None else None
    return condition.text if condition is not None else None


def _as_python(given: JavaObject) -> JavaObject:
    """Convert a Java filter to PySpark's class; none if there is no such class."""
    from pyspark.sql import datasource

    kind = _kind(given)
    made: JavaObject = getattr(datasource, kind, None)
    if made is None:
        return None
    if kind == "Not":
        child = _as_python(given.child())
        return made(child) if child is not None else None
    path = parse_name(given.attribute())
    if kind in {"IsNull", "IsNotNull"}:
        return made(path)
    if kind == "In":
        return made(path, tuple(_value(value) for value in given.values()))
    return made(path, _value(given.value()))


def _value(value: JavaObject) -> JavaObject:
    """Convert a Java value to Python; py4j has already converted numbers and strings."""
    if not hasattr(value, "getClass"):
        return value
    kind = _kind(value)
    if kind == "Timestamp":
        return dt.datetime.fromisoformat(value.toInstant().toString())
    if kind in {"Instant", "LocalDateTime"}:
        return dt.datetime.fromisoformat(value.toString())
    if kind in {"Date", "LocalDate"}:
        return dt.date.fromisoformat(value.toString())
    return value


def _kind(thing: JavaObject) -> str:
    return str(thing.getClass().getSimpleName())
