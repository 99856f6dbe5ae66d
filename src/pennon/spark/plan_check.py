"""The check of a statement by Spark's own plan of it: what it reads, and what it would run.

The plan is what Spark will do, whichever way the text was read elsewhere. It is checked before anything runs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from lance_namespace.errors import InvalidInputError

from pennon.spark.needs import shows_plans
from pennon.views.sql.functions import ALLOWED, FORBIDDEN
from pennon.views.sql.spark_lexer import Normalised

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PLANS = "org.apache.spark.sql.catalyst.plans.logical."
_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions."
#: Nodes of an analysed query that compute rows from rows below them, or from literals.
_NODES = frozenset(
    """
    Aggregate AsOfJoin CTERelationDef CTERelationRef Deduplicate Distinct Except Expand Filter Generate GlobalLimit
    Intersect Join LateralJoin LimitAll LocalLimit LocalRelation Offset OneRowRelation Project Range
    RebalancePartitions Repartition RepartitionByExpression Sample Sort SubqueryAlias Tail Union UnionLoop UnionLoopRef
    UpdatingSessions View Window WithCTE
    """.split()  # noqa: SIM905 (it is far shorter than a list)
)
#: What the plan of a query may begin with before it is analysed; commands and scripts begin with other nodes.
_UNRESOLVED_ROOTS = frozenset({"UnresolvedHaving", "UnresolvedWith", "WithWindowDefinition"})
#: Expressions of Spark's own package that run other code, read files, or tell of the process that runs them.
_DENIED = frozenset(
    """
    ApplyFunctionExpression CallMethodViaReflection CurrentUser FromAvro FromProtobuf InputFileBlockLength
    InputFileBlockStart InputFileName PythonUDAF PythonUDF PythonUDTF ScalaUDF ScalarSubqueryReference SchemaOfAvro
    SchemaOfXml ToAvro ToProtobuf TryReflect UnresolvedPolymorphicPythonUDTF VariableReference XmlToStructs
    """.split()  # noqa: SIM905 (it is far shorter than a list)
)
#: More rows than this have to come from a table.
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
    """Give a session the settings under which a statement is read as it was checked, and files are not tables."""
    for name, value in _SETTINGS.items():
        if spark.conf.get(name) != value:
            spark.conf.set(name, value)


def check_statement(spark: Any, statement: Normalised, sources: Collection[str]) -> None:
    """Refuse a statement whose plan does more than compute rows from temporary views; nothing of it runs.

    Raises ``InvalidInputError``.

    Args:
        spark: A session that `restrict` was called for.
        statement: The statement.
        sources: The temporary views that it may read.
    """
    _check_functions(spark, statement)
    if shows_plans(spark):
        _check_classes(spark, statement.text, sources)
    else:
        _check_text(spark, statement, sources)


def _refused(what: str) -> InvalidInputError:
    return InvalidInputError(f"The query of a view may only compute rows of its tables: Spark would run {what}.")


def _check_functions(spark: Any, statement: Normalised) -> None:
    """Refuse functions that are not listed: Spark's own and those that somebody registered.

    It takes the names from the text, because the analysis itself runs functions whose arguments are constants.
    """
    for name in sorted(set(statement.calls()) - ALLOWED):
        quoted = "`" + name.replace("`", "``") + "`"
        if name in FORBIDDEN or spark.catalog.functionExists(quoted):
            raise _refused(f"{name}()")


# With a driver in this process, the plan itself.


def _check_classes(spark: Any, sql: str, sources: Collection[str]) -> None:
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
        for expression in _items(node.expressions()):
            _check_expression(expression)
        waiting += _items(node.subqueries())


def _below(node: Any, sources: Collection[str]) -> list[Any]:
    """Return the nodes below one that is allowed; what a source is made of is not the statement's."""
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
    return _items(node.children())


def _check_expression(expression: Any) -> None:
    waiting = [expression]
    while waiting:
        found = waiting.pop()
        package, name = _class_of(found)
        if not package.startswith(_EXPRESSIONS) or name in _DENIED:
            raise _refused(name)
        waiting += _items(found.children())


def _check_range(rows: int) -> None:
    if rows > _MOST_NUMBERS:
        raise InvalidInputError(f"range() of {rows} rows is too large for a view: {_MOST_NUMBERS} at most.")


def _class_of(node: Any) -> tuple[str, str]:
    package, dot, name = str(node.getClass().getName()).rpartition(".")
    return package + dot, name.rstrip("$")


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(index) for index in range(sequence.size())]


# With a Connect server, the text of the plan.


def _check_text(spark: Any, statement: Normalised, sources: Collection[str]) -> None:
    """Check the plan that EXPLAIN shows, a line for each node.

    A line is that of a node only as long as no name and no text in it has lines of its own.
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
    """Yield the nodes of a plan's text; those of which a source is made are left out."""
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
