"""The check of a statement by Spark's own plan: what it reads, and what it would run.

The plan is what Spark will execute, however another parser reads the text. It is checked before anything runs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from lance_namespace.errors import InvalidInputError

from pennon.core.sql_names import quote_name
from pennon.spark.java_objects import JavaObject, items
from pennon.spark.scan_requirements import has_local_plans
from pennon.views.sql.spark_functions import ALLOWED, FORBIDDEN
from pennon.views.sql.spark_lexer import NormalizedSql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PLANS = "org.apache.spark.sql.catalyst.plans.logical."
_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions."
#: Nodes of an analyzed plan that compute rows from their children or from literals.
_NODES = frozenset(
    """
    Aggregate AsOfJoin CTERelationDef CTERelationRef Deduplicate Distinct Except Expand Filter Generate GlobalLimit
    Intersect Join LateralJoin LimitAll LocalLimit LocalRelation Offset OneRowRelation Project Range
    RebalancePartitions Repartition RepartitionByExpression Sample Sort SubqueryAlias Tail Union UnionLoop UnionLoopRef
    UpdatingSessions View Window WithCTE
    """.split()  # noqa: SIM905 (it is far shorter than a list)
)
#: Further root nodes of a query's plan before analysis; commands and scripts have other roots.
_UNRESOLVED_ROOTS = frozenset({"UnresolvedHaving", "UnresolvedWith", "WithWindowDefinition"})
#: Expressions in Spark's own package that run other code, read files, or reveal details of the process.
_DENIED = frozenset(
    """
    ApplyFunctionExpression CallMethodViaReflection CurrentUser FromAvro FromProtobuf InputFileBlockLength
    InputFileBlockStart InputFileName PythonUDAF PythonUDF PythonUDTF ScalaUDF ScalarSubqueryReference SchemaOfAvro
    SchemaOfXml ToAvro ToProtobuf TryReflect UnresolvedPolymorphicPythonUDTF VariableReference XmlToStructs
    """.split()  # noqa: SIM905 (it is far shorter than a list)
)
#: The maximum number of rows of range().
_MOST_NUMBERS = 10_000_000
_SECTION = "== Analyzed Logical Plan =="
_SECTION_END = "== Optimized Logical Plan =="
_LINE = re.compile(r"(?P<indent>[ :]*(?:[+:]- )?)'?(?P<node>\w+)(?P<rest>.*)")
_CALLED_BARE = re.compile(r"\b(?:current_user|session_user|user)\(\)")
_SETTINGS = {
    "spark.sql.runSQLOnFiles": "false",
    "spark.sql.variable.substitute": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
}


def restrict(spark: SparkSession) -> None:
    """Configure a session so that it parses a statement as it was checked, and does not query files as tables."""
    for name, value in _SETTINGS.items():
        if spark.conf.get(name) != value:
            spark.conf.set(name, value)


def check_statement(spark: SparkSession, statement: NormalizedSql, sources: Collection[str]) -> None:
    """Refuse a statement whose plan does more than compute rows from temporary views. Nothing of it is run.

    Raises ``InvalidInputError``.

    Args:
        spark: A session that `restrict` has configured.
        statement: The statement.
        sources: The temporary views that the statement may read.
    """
    _check_functions(spark, statement)
    if has_local_plans(spark):
        _check_classes(spark, statement.text, sources)
    else:
        _check_text(spark, statement, sources)


def _refused(what: str) -> InvalidInputError:
    return InvalidInputError(f"The query of a view may only compute rows of its tables: Spark would run {what}.")


def _check_functions(spark: SparkSession, statement: NormalizedSql) -> None:
    """Refuse functions that are not on the allow-list: Spark's own and those registered in the session.

    The names come from the text because analysis already evaluates functions whose arguments are constants.
    """
    for name in sorted(set(statement.calls()) - ALLOWED):
        if name in FORBIDDEN or spark.catalog.functionExists(quote_name(name)):
            raise _refused(f"{name}()")


# With a driver in this process, the plan itself.


def _check_classes(spark: JavaObject, sql: str, sources: Collection[str]) -> None:
    state = spark._jsparkSession.sessionState()  # noqa: SLF001 (nothing public shows a plan before it runs)
    parsed = state.sqlParser().parsePlan(sql)
    package, name = _class_of(parsed)
    if package != _PLANS or name not in _NODES | _UNRESOLVED_ROOTS:
        raise _refused(name)
    modes = spark._jvm.org.apache.spark.sql.execution.CommandExecutionMode  # noqa: SLF001
    waiting = [state.executePlan(parsed, modes.SKIP()).analyzed()]
    while waiting:
        node = waiting.pop()
        waiting += _below(node, sources)
        for expression in items(node.expressions()):
            _check_expression(expression)
        waiting += items(node.subqueries())


def _below(node: JavaObject, sources: Collection[str]) -> list[JavaObject]:
    """Return the children of an allowed node. The plan of a source is not part of the statement."""
    package, name = _class_of(node)
    if package != _PLANS or name not in _NODES:
        raise _refused(name)
    if name == "View":
        view = node.desc().identifier()
        if not node.isTempView() or view.table() not in sources or view.database().isDefined():
            raise _refused(f"a query on {view.unquotedString()!r}")
        return []
    if name == "Range":
        _check_range(int(str(node.numElements())))
    return items(node.children())


def _check_expression(expression: JavaObject) -> None:
    waiting = [expression]
    while waiting:
        found = waiting.pop()
        package, name = _class_of(found)
        if not package.startswith(_EXPRESSIONS) or name in _DENIED:
            raise _refused(name)
        waiting += items(found.children())


def _check_range(rows: int) -> None:
    if rows > _MOST_NUMBERS:
        raise InvalidInputError(f"range() of {rows} rows is too large for a view: {_MOST_NUMBERS} at most.")


def _class_of(node: JavaObject) -> tuple[str, str]:
    package, dot, name = str(node.getClass().getName()).rpartition(".")
    return package + dot, name.rstrip("$")


# With a Connect server, the text of the plan.


def _check_text(spark: SparkSession, statement: NormalizedSql, sources: Collection[str]) -> None:
    """Check the plan that EXPLAIN shows, one line per node.

    Names and strings with line breaks are refused because they could imitate lines of the plan.
    """
    for source in sources:
        if "\n" in spark.table(source).schema.simpleString():
            raise InvalidInputError("Columns whose names have line breaks cannot be read through Spark Connect.")
    if any("\n" in token.value for token in statement.tokens):
        raise InvalidInputError(
            "A text with a line break cannot be part of a query that runs through Spark Connect, where it could hide "
            "what else the query does: write chr(10) in its place."
        )
    plan = str(spark.sql(f"EXPLAIN EXTENDED {statement.text}").collect()[0][0])
    lines = plan.split("\n")
    if _SECTION not in lines or _SECTION_END not in lines:
        told = plan.partition(_SECTION)[2].strip() or plan.strip()
        raise InvalidInputError(f"Spark cannot run the query: {told[:500]}")
    for name, rest in _lines(lines, sources):
        if name not in _NODES:
            raise _refused(name)
        if name == "Range":
            _check_range(_numbers(rest))
        if name == "View":
            raise _refused(f"a query on{rest}")
        if _CALLED_BARE.search(rest):
            raise _refused("current_user()")


def _lines(lines: Sequence[str], sources: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the nodes in the text of a plan, except those inside of a source."""
    start = lines.index(_SECTION) + 2  # the first line has the names and types of the result; a command has none
    tree = [line for line in lines[start : lines.index(_SECTION_END, start)] if line.strip()]
    found = [_LINE.fullmatch(line) for line in tree]
    if not found or [bool(line and line["indent"]) for line in found] != [False] + [True] * (len(found) - 1):
        raise _refused("a command")
    hidden: int | None = None
    for line in filter(None, found):
        indent = len(line["indent"])
        if hidden is not None and indent > hidden:
            continue
        hidden = None
        if line["node"] == "View" and any(line["rest"].startswith(f" (`{name}`, ") for name in sources):
            hidden = indent
        else:
            yield line["node"], line["rest"]


def _numbers(rest: str) -> int:
    found = re.match(r" \((-?\d+), (-?\d+), step=(-?\d+)", rest)
    if found is None:
        raise _refused("a range whose size its plan does not show")
    first, end, step = map(int, found.groups())
    return max(0, -(-(end - first) // step))
