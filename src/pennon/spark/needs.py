"""What a query needs of each of its tables: the columns, and the rows, as far as Spark's optimised plan tells.

Spark's interface for sources in Python cannot prune columns. It can push filters, but keeps what was pushed with the
data frame: a second query over the same one, without the filter, gets the rows of the first. So the query is planned
once over stand-ins without rows, and what Spark asks of them is written into the options of the real sources.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pennon.spark.pushdown import translate
from pennon.spark.tables import parse_name
from pennon.spark.types import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Need:
    """What a query needs of a table."""

    columns: tuple[str, ...]
    #: Rows that it may need, as a filter of Lance; Spark still evaluates its own. None means all rows.
    filter: str | None = None


@dataclass(frozen=True)
class _Use:
    """One place of a plan that reads a table."""

    columns: frozenset[str]
    conditions: tuple[Any, ...]


def needs_of(spark: SparkSession, query: str, schemas: Mapping[str, pa.Schema]) -> dict[str, Need]:
    """Return what a query needs of its tables, which it calls by the names given here, and no view has yet.

    A session of Spark Connect does not show its plans: there, every table is needed whole.
    """
    session: Any = spark
    if not shows_plans(session):
        return {name: Need(tuple(schema.names)) for name, schema in schemas.items()}
    try:
        stand_ins = {_stand_in(session, name, schema): name for name, schema in schemas.items()}
        plan = session.sql(query)._jdf.queryExecution().optimizedPlan()  # noqa: SLF001 (nothing public shows it)
        uses: dict[str, list[_Use]] = {name: [] for name in schemas}
        for number, use in _uses(plan, ()):
            if number in stand_ins:
                uses[stand_ins[number]].append(use)
    finally:
        for name in schemas:
            session.catalog.dropTempView(name)
    sources: Any = session._jvm.org.apache.spark.sql.execution.datasources  # noqa: SLF001 (nor tells what it means)
    strategy = getattr(getattr(sources, "DataSourceStrategy$"), "MODULE$")
    return {name: _need(schemas[name], found, strategy) for name, found in uses.items()}


def shows_plans(spark: SparkSession) -> bool:
    """Tell whether a session is one of this process, and not of a Connect server."""
    return hasattr(spark, "_jsparkSession")


def _stand_in(session: Any, name: str, schema: pa.Schema) -> int:
    """Make a view of no rows that Spark does not know to have none, and return the number of what it reads."""
    frame = session.createDataFrame(session.sparkContext.emptyRDD(), spark_schema(schema))
    frame.createOrReplaceTempView(name)
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()  # noqa: SLF001 (nothing public shows them)
    return int(leaves.apply(0).rdd().id())


def _uses(node: Any, above: tuple[Any, ...]) -> Iterator[tuple[int, _Use]]:
    """Yield the leaves of a plan with what the nodes right above them ask for."""
    if _kind(node) == "LogicalRDD":
        yield int(node.rdd().id()), _use(node, above)
    for child in _items(node.children()):
        yield from _uses(child, (node, *above))
    for subquery in _items(node.subqueries()):
        yield from _uses(subquery, ())


def _use(leaf: Any, above: tuple[Any, ...]) -> _Use:
    names = {attribute.exprId().id(): attribute.name() for attribute in _items(leaf.output())}
    needed: set[str] = set()
    conditions: list[Any] = []
    for node in above:
        kind = _kind(node)
        if kind not in {"Filter", "Project", "Aggregate"}:
            break
        needed |= {names[found.exprId().id()] for found in _items(node.references().toSeq())}
        if kind != "Filter":
            return _Use(frozenset(needed), tuple(conditions))
        conditions.append(node.condition())
    # No node right above chooses columns, so all of them go further up.
    return _Use(frozenset(names.values()), tuple(conditions))


def _need(schema: pa.Schema, uses: list[_Use], strategy: Any) -> Need:
    needed = frozenset[str]().union(*(use.columns for use in uses))
    columns = tuple(name for name in schema.names if name in needed)
    if len(uses) != 1:
        return Need(columns)
    found = (strategy.translateFilter(part, True) for whole in uses[0].conditions for part in _conjuncts(whole))
    texts = [text for option in found if option.isDefined() and (text := _condition(option.get(), schema))]
    return Need(columns, " AND ".join(texts) or None)


def _conjuncts(condition: Any) -> Iterator[Any]:
    if _kind(condition) == "And":
        yield from _conjuncts(condition.left())
        yield from _conjuncts(condition.right())
    else:
        yield condition


def _condition(given: Any, schema: pa.Schema) -> str | None:
    """Return a filter of Lance that keeps at least the rows that a filter of Spark keeps."""
    kind = _kind(given)
    if kind in {"And", "Or"}:
        sides = [_condition(given.left(), schema), _condition(given.right(), schema)]
        told = [side for side in sides if side is not None]
        if kind == "Or" and len(told) < len(sides):
            return None
        return f"({f' {kind.upper()} '.join(told)})" if told else None
    converted = _as_python(given)
    condition = translate(converted, schema) if converted is not None else None
    return condition.text if condition is not None else None


def _as_python(given: Any) -> Any:
    """Return a filter of Java as the one of Python; none for those that have none."""
    from pyspark.sql import datasource

    kind = _kind(given)
    made: Any = getattr(datasource, kind, None)
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


def _value(value: Any) -> Any:
    """Return a value of Java as one of Python; py4j itself converts numbers and texts."""
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


def _kind(thing: Any) -> str:
    return str(thing.getClass().getSimpleName())


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(index) for index in range(sequence.size())]
