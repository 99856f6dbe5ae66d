"""Which queries work row by row: put together at random from parts that do and parts that do not."""

from __future__ import annotations

from typing import Any

import pytest
import sqlglot
from hypothesis import given
from hypothesis import strategies as st

from pennon.views.sql.incremental import find_multi_row_clause

SCALARS = (
    "a",
    "t.a",
    "a + 1",
    "upper(b)",
    "coalesce(a, 0)",
    "CASE WHEN a > 1 THEN b ELSE 'x' END",
    "cast(a AS STRING)",
    "transform(arr, x -> x + a)",
    "exists(arr, x -> x > 1)",
    "array_max(arr)",
    "aggregate(arr, 0, (x, y) -> x + y)",
    "greatest(a, 2)",
    "b LIKE 'x%'",
    "unix_timestamp(ts)",
    "named_struct('f', a)",
    "s.f.g",
    "'rand()'",
    "`current_date`",
    "concat_ws(',', arr)",
)
#: Expressions that need more than their row, and a word of the reason that is given for them.
OTHERS = {
    "count(*)": "count()",
    "sum(a)": "sum()",
    "max_by(a, b)": "max_by()",
    "collect_list(a)": "collect_list()",
    "approx_count_distinct(a)": "approx_count_distinct()",
    "some(a)": "some()",
    "any_value(a)": "any_value()",
    "percentile(a, 0.5)": "percentile()",
    "row_number() OVER (ORDER BY a)": "a window",
    "lag(a) OVER (PARTITION BY b ORDER BY a)": "a window",
    "explode(arr)": "explode()",
    "posexplode(arr)": "posexplode()",
    "inline(arr)": "inline()",
    "stack(2, 1, 2)": "stack()",
    "rand()": "rand()",
    "randn(1)": "randn()",
    "uuid()": "uuid()",
    "now()": "now()",
    "current_timestamp()": "current_timestamp()",
    "current_date": "current_date",
    "localtimestamp": "localtimestamp",
    "unix_timestamp()": "changes from call to call",
    "shuffle(arr)": "shuffle()",
    "monotonically_increasing_id()": "monotonically_increasing_id()",
    "input_file_name()": "input_file_name()",
    "current_user()": "current_user()",
    "(SELECT max(a) FROM u)": "a subquery",
}
CONDITIONS = ("a > 1", "b IS NOT NULL", "a IN (1, 2)", "NOT (a > 1 OR b = 'x')", "exists(arr, x -> x = 1)")
WIDE_CONDITIONS = ("a IN (SELECT a FROM u)", "EXISTS (SELECT 1 FROM u)", "ts < now()", "a > (SELECT 1)", "rand() > 0.5")
TAILS = (
    "GROUP BY a",
    "GROUP BY ALL",
    "HAVING a > 1",
    "ORDER BY a",
    "SORT BY a",
    "CLUSTER BY a",
    "DISTRIBUTE BY a",
    "LIMIT 3",
    "LIMIT 3 OFFSET 1",
    "UNION ALL SELECT 1",
    "INTERSECT SELECT 1",
    "EXCEPT SELECT 1",
)
SOURCES = (
    "t JOIN u ON t.a = u.a",
    "t, u",
    "t LEFT ANTI JOIN u ON t.a = u.a",
    "(SELECT * FROM t) AS t",
    "t TABLESAMPLE (10 PERCENT)",
    "t LATERAL VIEW explode(arr) x AS item",
    "t PIVOT (sum(a) FOR b IN ('x', 'y'))",
    "range(10)",
)


def reason(text: str) -> str | None:
    query: Any = sqlglot.parse_one(text, read="spark")
    return find_multi_row_clause(query)


@st.composite
def plain_queries(draw: st.DrawFn) -> str:
    """Return queries of scalar expressions over one table."""
    items = draw(st.lists(st.sampled_from(SCALARS), min_size=1, max_size=5))
    table = draw(st.sampled_from(["t", "ns.t", "a.b.c.t", "`odd name`", "ns.t AS x", "t VERSION AS OF 3"]))
    where = draw(st.sampled_from(["", *(f" WHERE {condition}" for condition in CONDITIONS)]))
    return f"SELECT {', '.join(f'{item} AS c{n}' for n, item in enumerate(items))} FROM {table}{where}"


@given(plain_queries())
def test_scalar_expressions_and_a_condition_over_one_table_do(text: str) -> None:
    assert reason(text) is None


@pytest.mark.parametrize("star", ["*", "t.*", "* EXCEPT (a)", "*, a + 1 AS b"])
def test_all_columns_do(star: str) -> None:
    assert reason(f"SELECT {star} FROM t") is None


@given(plain_queries(), st.sampled_from(sorted(OTHERS)), st.sampled_from(["{}", "coalesce({}, 1)", "1 + {}"]))
def test_one_expression_that_needs_more_is_enough(text: str, other: str, inside: str) -> None:
    found = reason(text.replace("SELECT ", f"SELECT {inside.format(other)} AS other, ", 1))
    assert found is not None
    assert OTHERS[other] in found
    assert found.endswith("so every refresh computes the whole view.")


@pytest.mark.parametrize("condition", WIDE_CONDITIONS)
def test_a_condition_that_needs_more_does_not(condition: str) -> None:
    assert reason(f"SELECT a FROM t WHERE a > 1 AND {condition}") is not None


@given(st.sampled_from(SCALARS), st.sampled_from(TAILS))
def test_what_comes_after_the_condition_does_not(item: str, tail: str) -> None:
    assert reason(f"SELECT {item} AS c FROM t {tail}") is not None


@pytest.mark.parametrize("source", SOURCES)
def test_more_than_a_table_does_not(source: str) -> None:
    assert reason(f"SELECT 1 AS c FROM {source}") is not None


@pytest.mark.parametrize(
    "text", ["SELECT DISTINCT a FROM t", "WITH x AS (SELECT a FROM t) SELECT a FROM x", "SELECT 1"]
)
def test_others_do_not(text: str) -> None:
    assert reason(text) is not None
