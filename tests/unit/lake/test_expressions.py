"""SQL that Lance must not get to see, and SQL that it may."""

from __future__ import annotations

import tracemalloc

import pytest
from lance_namespace.errors import InvalidInputError

from pennon.lake.expressions import check_expression

TOO_DEEP = {
    "a sum": "id = " + "+".join(["1"] * 1000),
    "a sum of parentheses": "id = " + "+".join(["(1)"] * 1000),
    "a sum of conditions": "id = " + " + ".join(["(true OR false)"] * 1000),
    "a sum of cases": "id = " + " + ".join(["CASE WHEN a AND b THEN 1 END"] * 1000),
    "a sum of calls": "id = " + " + ".join(["coalesce(a, b)"] * 1000),
    "sums in parentheses": "id = " + "(1" * 40 + "+1" * 300 + ")" * 40,
    "sums at every level": "id = " + ("1+" * 10 + "(") * 40 + "1" + ")" * 40,
    "texts": "word = " + "||".join(["'a or b, c'"] * 1000),
    "tests of a test": "id" + " IS NULL" * 1000,
    "ranges of a range": "id" + " BETWEEN 1 AND 2" * 1000,
    "casts": "id" + "::bigint" * 1000,
    "conditions": " OR ".join(["a = 1"] * 20_000),
    "a sum with comments": "id = " + " /* , */ + ".join(["1"] * 1000),
}
NO_VALUES = ["id = $1", "id = ?", "id = :value", "word = N'x'", "word = r'x'", "word = $$x$$", "a = 1 AND b = $x"]
FINE = [
    "",
    "id > 3 AND word LIKE '%why?%' OR price = '$5'",
    "word IN ('a''b', ':c', '?') AND `odd?name` = 1 AND \"$\" = 'x'",
    "stamp > timestamp '2024-01-01 10:00:00' AND id::bigint = 1",
    "id IN (" + ",".join(str(-number) for number in range(100_000)) + ")",
    "price IN (" + ",".join(f"{number}.5" for number in range(10_000)) + ")",
    " OR ".join(f"(id = {number} AND word = 'x' AND score BETWEEN 1 AND 2)" for number in range(3_000)),
    "array_distance(vector, [" + ",".join(["-1.5e-3"] * 1_500) + "]) < 1",
    "concat(" + ",".join(["word"] * 50) + ") = 'x'",
]


@pytest.mark.parametrize("kind", TOO_DEEP)
def test_what_would_overflow_the_stack_is_refused(kind: str) -> None:
    with pytest.raises(InvalidInputError, match="too deep"):
        check_expression(TOO_DEEP[kind])


@pytest.mark.parametrize("sql", NO_VALUES)
def test_what_has_no_value_is_refused(sql: str) -> None:
    with pytest.raises(InvalidInputError, match="write values out"):
        check_expression(sql)


@pytest.mark.parametrize("sql", FINE, ids=lambda sql: sql[:20])
def test_everything_else_passes_as_it_is(sql: str) -> None:
    assert check_expression(sql) == sql


@pytest.mark.parametrize("text", ["a" * 1_000_000, "''" * 500_000])
def test_a_long_text_takes_no_memory_of_its_own(text: str) -> None:
    tracemalloc.start()
    try:
        check_expression(f"word = '{text}'")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5 * len(text)
