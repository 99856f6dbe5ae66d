"""Tokens of Spark SQL: where parsers could disagree about them, the normalized text leaves no doubt."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pennon.views.sql.spark_lexer import normalize_sql
from pennon.views.sql.spark_sql import SparkQuery


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("SELECT * FROM t.`a`1e", "SELECT * FROM t.`a` `1e`"),
        ("SELECT a AS`b`", "SELECT a AS `b`"),
        ("SELECT 'a'AS b", "SELECT 'a' AS b"),
        ("SELECT `a``b`", "SELECT `a``b`"),
    ],
)
def test_tokens_without_a_blank_between_them_stay_apart(text: str, written: str) -> None:
    assert normalize_sql(text).text == written
    assert normalize_sql(written).text == written


@pytest.mark.parametrize("number", ["2L", "3s", "4Y", "1.5BD", "1e3", ".5", "7.F", "1E-2bd", "12.34", ".5f", "1.5d"])
def test_numbers_of_every_type_are_numbers(number: str) -> None:
    assert [token.kind for token in normalize_sql(f"SELECT {number}").tokens] == ["word", "number"]


@pytest.mark.parametrize("text", [".3S", ".3L"])
def test_only_whole_numbers_have_the_suffix_of_an_integer(text: str) -> None:
    assert [token.value for token in normalize_sql(f"SELECT {text}").tokens] != ["SELECT", text]


@pytest.mark.parametrize(
    "text", ["SELECT* FROM t", "SELECT*FROM t", "SELECT id, s FROM`t`WHERE id > 1", "SELECT *FROM t;"]
)
def test_names_in_the_place_of_stars_and_tables_have_blanks_around_them(text: str) -> None:
    query = SparkQuery(text)
    bound = query.bind(dict.fromkeys(query.uses, pa.schema({"id": pa.int64(), "s": pa.string()})))
    assert " FROM source_1 AS `t`" in bound.sql
    assert normalize_sql(bound.sql).text == bound.sql
