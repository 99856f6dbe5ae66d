"""SQL that Lance must not get to see, and SQL that it may."""

from __future__ import annotations

import tracemalloc

import pytest
from lance_namespace.errors import InvalidInputError

from pennon.tables.query.expressions import SqlLimits, check_expression, find_isolation_reason, parse_expression

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
#: Also where a name is written so that another reader could miss it.
REFUSED = [
    "pg_sleep(10) = 1",
    "`pg sleep`(1)",
    "word = 'x' AND sleep (1)",
    "'it''s' = word OR sleep\u3000(1)",
    "sleep/* ' */(1) = 1 -- '",
    "sleep -- x\n (1)",
    "{fn sleep(1)} = 1",
    "größe(1) = 1",
    "repeat2(word, 10)",
]
GROWING = [
    "array_repeat(id, 100000000000)",
    "`repeat`(word, 1000) = 'x'",
    "REPEAT (word, id) = 'x'",
    "repeat(word, 1000 + 0) = 'x'",
    "repeat(repeat(word, 9), 9) = 'x'",
    "lpad(word, 2000000000) = 'x'",
    "rpad(word, 1000 * 1000) = 'x'",
    "lpad('x', id) = 'x'",
    "range(0, 10) = [1]",
    "generate_series(1, 2) = [1]",
    "replace(word, 'a', word) = 'x'",
    f"replace(word, 'a', '{'b' * 100}') = 'x'",
    "replace(replace(word, '', 'bbbbbbbb'), '', 'bbbbbbbb') = 'x'",
    "regexp_replace(word, '.*', word) = 'x'",
    f"regexp_match(word, '{'(' * 70}.*{')' * 70}') = 'x'",
    f"regexp_replace(word, '.*', '{'$0' * 50}') = 'x'",
    f"coalesce(word, '{'x' * 20_000}') = 'x'",
    f"word || '{'x' * 20_000}' = 'x'",
    f"concat(word, ('{'x' * 20_000}')) = 'x'",
    "concat(" + ",".join(["word"] * 100) + ") = 'x'",
    "||".join(["word"] * 100) + " = 'x'",
    "array_to_string(list, repeat('x', 100)) = 'x'",
    "array_resize(list, 2000000000) = [1]",
    "levenshtein(word, word) = 1",
    "arrow_cast(word, 'FixedSizeBinary(2000000000)') = word",
    "arrow_cast(list, 'FixedSizeList(3000, FixedSizeList(3000, Int8))') = list",
    "arrow_cast(word, concat('FixedSizeBinary', '(9)')) = word",
    "length(concat(" + ",".join(["'x'"] * 100) + ")) = 1",
    "array_length([" + ",".join(["word"] * 100) + "]) = 1",
    "array_length(ARRAY[" + ",".join(["(lower(word))"] * 100) + "]) = 1",
    "word = " + "encode(" * 7 + "word" + ", 'hex')" * 7,
    "array_to_string(list, ',', word) = 'x'",
    f"array_to_string(list, ',', '{'x' * 100}') = 'x'",
    "array_replace_all(list, '', word) = list",
    f"array_replace_n(list, '', '{'x' * 100}', 5) = list",
    "array_resize(list, 1000, word) = list",
    "arrow_typeof(struct) = 'x'",
    f"'{'x' * 20_000}' IN (word, word)",
    f"('{'x' * 20_000}') NOT IN (word)",
]
BOUNDED = [
    "repeat(word, 3) = 'x'",
    "lpad(word, 8, '0') = 'x'",
    "replace(word, 'a', 'b') = 'x'",
    "lower(word) IN ('a', 'b') AND concat(word, '-', word) = 'x'",
    "lower(word) IN (" + ",".join(["'x'"] * 5_000) + ")",
    f"word = '{'x' * 100_000}'",
    "regexp_like(word, '^(a|b)+$') AND array_has(list, 1)",
    "arrow_cast(id, 'Timestamp(Microsecond, None)') = arrow_cast(word, 'Decimal128(38, 10)')",
    "arrow_cast(list, 'FixedSizeList(384, Float32)') = list",
    "array_has([1, 2, NULL], id) AND array_to_string(list, ', ', '-') = 'x' AND encode(word, 'hex') = 'ff'",
    "array_has([word, other], 'x') OR array_replace_all(list, 1, 2) = [1]",
    f"word = '{'x' * 100_000}' AND id IN (1, 2)",
    "date_trunc('day', stamp) = now() AND to_char(stamp, '%Y-%m-%d') = '2024-01-01'",
]
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
    with pytest.raises(InvalidInputError, match="Write the value as a plain literal"):
        check_expression(sql)


@pytest.mark.parametrize("sql", FINE, ids=lambda sql: sql[:20])
def test_everything_else_passes_as_it_is(sql: str) -> None:
    assert check_expression(sql) == sql


@pytest.mark.parametrize("sql", REFUSED)
def test_a_function_that_is_not_offered_is_refused_by_its_name(sql: str) -> None:
    with pytest.raises(InvalidInputError, match=r"function '.*' is not offered"):
        parse_expression(sql)


@pytest.mark.parametrize("sql", GROWING, ids=lambda sql: sql[:30])
def test_what_can_grow_is_kept_from_the_api_process_and_from_writes(sql: str) -> None:
    assert parse_expression(sql).isolation_reason
    with pytest.raises(InvalidInputError, match="more memory"):
        check_expression(sql)


@pytest.mark.parametrize("sql", BOUNDED, ids=lambda sql: sql[:30])
def test_what_cannot_grow_much_runs_anywhere(sql: str) -> None:
    assert parse_expression(sql).isolation_reason is None
    check_expression(sql)


@pytest.mark.parametrize(
    "sql",
    [
        *("CAST(w AS INT) = n", "w::int = 1", "w = n", "n IN (w)", "w IN (n)", "w = 1 + 1", "w = (true AND flag)"),
        *("w > date '2020-01-01'", "w = timestamp '2020-01-01'", "w BETWEEN n AND 5", "(true AND w) = n"),
        *("lower(w) = 5", "(lower(w)) = (5)", "w || 'x' = 5", "coalesce(w, 5) > 1", "upper(w) = true", "`W` = n"),
        *("regexp_like('a', w)", "regexp_match('x', 'y', w) IS NULL", "array_has(w, 5)", "w.x = n", "x = 1 OR w = n"),
        "w IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)",
        "w IN ('1', 2, 3, 4, 5, 6, 7, 8, 9, '10')",
    ],
)
def test_names_of_values_that_may_be_converted_are_known(sql: str) -> None:
    assert "w" in parse_expression(sql).converted


@pytest.mark.parametrize(
    "sql",
    [
        *("w = 'x' AND n = 1", "n > 1 AND (w = 'a' OR v = 'b')", "w IN ('x', 'y')", "w LIKE 'x%'", "w IS NOT NULL"),
        *("length(w) > 5", "lower(w) = 'x'", "substr(w, 1, 2) = 'ab'", "regexp_like(w, 'a')", "array_has(w, 'x')"),
        *("w BETWEEN '1' AND '2'", "w.x = 'y'", "n = 1 AND strpos(w, 'x') = 2", "NOT w = 'x'"),
        f"w IN ({', '.join(repr(str(number)) for number in range(20))})",
    ],
)
def test_texts_that_are_compared_as_they_are_count_as_unconverted(sql: str) -> None:
    assert "w" not in parse_expression(sql).converted


def test_comments_are_left_out_as_lance_reads_them() -> None:
    assert check_expression("a = 1 -- b\r OR c = '\nAND d = '/*' /* ' */") == "a = 1  \nAND d = '/*'  "
    assert check_expression("a = '--' AND b = \"/*\" AND `--` = 1") == "a = '--' AND b = \"/*\" AND `--` = 1"


def test_many_literals_and_long_values_need_a_query_process_where_they_are_written_into_rows() -> None:
    many = parse_expression(f"id IN ({','.join(['1'] * 20_000)})")
    assert (many.literals, many.value_bytes, bool(many.isolation_reason)) == (20_000, 0, True)
    long = parse_expression(f"('{'x' * 50_000}')")
    assert long.isolation_reason is None
    anything = parse_expression("")
    assert find_isolation_reason(long, []) is None
    assert find_isolation_reason(anything, [long]) is not None
    several = [parse_expression(f"concat(word, '{number}')") for number in range(100)]
    assert find_isolation_reason(anything, several) is not None
    named = [parse_expression(f"c{number}") for number in range(500)]
    assert find_isolation_reason(anything, named) is None
    again = [parse_expression(spelling) for spelling in ("word", "`word`", " Word") for _ in range(50)]
    assert find_isolation_reason(anything, again) is not None


def test_limits_are_those_of_the_settings() -> None:
    limits = SqlLimits(max_bytes=2_000, max_literals=100)
    assert check_expression(f"id IN ({','.join(['1'] * 100)})" + " " * 400, limits)
    with pytest.raises(InvalidInputError, match="max_expression_literals"):
        check_expression("word IN (" + ",".join(["','"] * 101) + ")" + " " * 400, limits)
    with pytest.raises(InvalidInputError, match="max_expression_bytes"):
        check_expression("ä" * 1_001, limits)


@pytest.mark.parametrize("text", ["a" * 1_000_000, "''" * 500_000])
def test_a_long_text_takes_no_memory_of_its_own(text: str) -> None:
    tracemalloc.start()
    try:
        check_expression(f"word = '{text}'")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5 * len(text)
