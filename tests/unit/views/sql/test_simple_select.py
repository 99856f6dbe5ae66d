"""Taking the SELECT of LanceDB's client apart: what works row by row keeps its expressions as they were written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance_namespace.errors import InvalidInputError

from pennon.core.sql_names import quote_name
from pennon.views.model.definition import Column
from pennon.views.model.query import StructuredQuery, TableUse
from pennon.views.sql.simple_select import find_volatile_name, parse_simple_select

NAMES = st.text(st.characters(codec="utf-8", exclude_characters='"\0', exclude_categories=["Cs", "Cc"]), min_size=1)


class TestWhatWorksRowByRow:
    def test_all_columns(self) -> None:
        assert parse_simple_select('SELECT * FROM "t"') == StructuredQuery(TableUse(("t",)))

    def test_every_clause(self) -> None:
        query = parse_simple_select("SELECT a + 1 AS b, `c d` FROM ns.inner.t WHERE a > 1 AND b < 2 LIMIT 5 OFFSET 3")
        assert query == StructuredQuery(
            TableUse(("ns", "inner", "t")),
            (Column("b", "a + 1"), Column("c d", "`c d`")),
            "a > 1 AND b < 2",
            5,
            3,
        )

    def test_names_in_double_quotes_become_what_lance_takes_for_names(self) -> None:
        query = parse_simple_select("""SELECT upper("B c") AS "X" FROM "t" WHERE "B c" = 'say "x"'""")
        assert query is not None
        assert query.columns == (Column("X", "upper(`B c`)"),)
        assert query.where == """`B c` = 'say "x"'"""

    @pytest.mark.parametrize(
        "expression",
        ["extract(year FROM d)", "f(a, b)", "'a, b FROM t'", "case when a then b else c end", "a[1]", "cast(a AS int)"],
    )
    def test_what_looks_like_a_clause_inside_of_an_expression_is_none(self, expression: str) -> None:
        query = parse_simple_select(f"SELECT {expression} AS x FROM t")
        assert query is not None
        assert query.columns == (Column("x", expression),)

    def test_comments_and_a_semicolon_do_no_harm(self) -> None:
        query = parse_simple_select("SELECT a -- the key\nFROM t /* all of it */ WHERE a > 1;")
        assert query is not None
        assert query.where == "a > 1"

    @given(NAMES, NAMES)
    def test_any_name_comes_through(self, table: str, column: str) -> None:
        query = parse_simple_select(f'SELECT "{column}" FROM "{table}"')
        assert query == StructuredQuery(TableUse((table,)), (Column(column, quote_name(column)),))


class TestWhatDoesNot:
    @pytest.mark.parametrize(
        "text",
        [
            "SELECT count(*) AS c FROM t",
            "SELECT max(a) AS m FROM t",
            "SELECT DISTINCT a FROM t",
            "SELECT a FROM t GROUP BY a",
            "SELECT a FROM t ORDER BY a",
            "SELECT a FROM t, u",
            "SELECT a FROM t JOIN u USING (a)",
            "SELECT a FROM t WHERE a IN (SELECT b FROM u)",
            "SELECT a FROM (SELECT a FROM t)",
            "SELECT a FROM t UNION SELECT a FROM u",
            "SELECT row_number() OVER (ORDER BY a) AS r FROM t",
            "SELECT unnest(a) AS x FROM t",
            "SELECT a FROM f('t')",
            "WITH x AS (SELECT a FROM t) SELECT a FROM x",
            "SELECT a FROM t AS u",
            "UPDATE t SET a = 1",
            "SELECT a",
            "a FROM t",
        ],
    )
    def test_it_is_left_to_spark(self, text: str) -> None:
        assert parse_simple_select(text) is None

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("SELECT a + 1 FROM t", "'a + 1' has no name"),
            ("SELECT a, * FROM t", "'*' must be the only item"),
            ("SELECT a FROM t LIMIT many", "LIMIT must be a whole number"),
            ("SELECT a FROM t LIMIT ²", "LIMIT must be a whole number"),
            (f"SELECT a FROM t LIMIT {2**63}", "LIMIT must be a whole number"),
            (f"SELECT a FROM t LIMIT {'9' * 5000}", "LIMIT must be a whole number"),
            ("SELECT a FROM t WHERE a = 'x", "is not closed"),
        ],
    )
    def test_errors_name_what_is_wrong(self, text: str, message: str) -> None:
        with pytest.raises(InvalidInputError, match=message.replace("*", r"\*").replace("+", r"\+")):
            parse_simple_select(text)


class TestChangingNames:
    @pytest.mark.parametrize(
        ("expression", "found"),
        [
            ("now() > a", "now()"),
            ("RANDOM() * a", "random()"),
            ("current_date", "current_date"),
            ("_rowaddr + 1", "_rowaddr"),
            ("a + 1", None),
            ("'now()'", None),
            ("`current_date`", None),
            ("uuid", None),
            ("_rowid", None),
        ],
    )
    def test_they_are_found(self, expression: str, found: str | None) -> None:
        assert find_volatile_name(expression) == found
