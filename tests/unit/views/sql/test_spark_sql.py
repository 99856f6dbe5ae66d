"""Queries in Spark's SQL: what they read, what they make, what is kept of them, and what they may not do."""

from __future__ import annotations

import contextlib

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance_namespace.errors import InvalidInputError, LanceNamespaceError, TableColumnNotFoundError

from pennon.views.model.query import TableUse
from pennon.views.sql.simple_select import LanceDialect
from pennon.views.sql.spark_sql import BoundQuery, SparkQuery

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("Name", pa.string()),
        ("price", pa.decimal128(10, 2)),
        ("items", pa.list_(pa.int32())),
        ("vector", pa.list_(pa.float32(), 2)),
        ("owner", pa.struct([("name", pa.string())])),
    ]
)

#: Read as one statement by a parser that ends a comment with its line, and as another one by Spark.
CONTINUED_COMMENT = (
    "-- \\\nSELECT id FROM t WHERE id IN (SELECT id FROM t) /*\n"
    "SELECT TRANSFORM(id) USING \"sh -c 'id'\" AS (s string) FROM source_1\n-- */"
)
INNER_HINT = 'SELECT \'x=\' /* /*+ */ || reflect("java.lang.System","getProperty","user.dir") -- */\n AS s FROM t'


def bind(text: str) -> BoundQuery:
    query = SparkQuery(text)
    return query.bind(dict.fromkeys(query.uses, SCHEMA))


def types(text: str) -> dict[str, pa.DataType | None]:
    return dict(bind(text).fields)


class TestTables:
    @pytest.mark.parametrize(
        ("text", "uses"),
        [
            ("SELECT id FROM t", [(("t",), None)]),
            ("SELECT id FROM ns.t", [(("ns", "t"), None)]),
            ("SELECT id FROM a.b.c.t", [(("a", "b", "c", "t"), None)]),
            ("SELECT id FROM `odd name`.`t.x`", [(("odd name", "t.x"), None)]),
            ("SELECT id FROM t VERSION AS OF 3", [(("t",), 3)]),
            ("SELECT id FROM t VERSION AS OF 'gold' AS x", [(("t",), "gold")]),
            ("SELECT x.id FROM t x JOIN t y ON x.id = y.id", [(("t",), None)]),
            (
                "SELECT x.id FROM t x JOIN t VERSION AS OF 1 y ON x.id = y.id",
                [(("t",), None), (("t",), 1)],
            ),
            ("SELECT id FROM t WHERE id IN (SELECT id FROM u)", [(("t",), None), (("u",), None)]),
            ("WITH t AS (SELECT * FROM t) SELECT id FROM t", [(("t",), None)]),
            ("WITH x AS (SELECT * FROM t) SELECT id FROM x", [(("t",), None)]),
            ("SELECT id FROM t UNION SELECT id FROM u", [(("t",), None), (("u",), None)]),
            ("SELECT /*+ BROADCAST(t) */ t.id FROM t", [(("t",), None)]),
        ],
    )
    def test_each_is_found_once(self, text: str, uses: list[tuple[tuple[str, ...], int | str | None]]) -> None:
        assert list(SparkQuery(text).uses) == [TableUse(*use) for use in uses]

    def test_the_stored_query_uses_its_own_names_for_the_sources(self) -> None:
        bound = bind("SELECT x.id, y.Name FROM ns.t VERSION AS OF 3 x JOIN u y ON x.id = y.id")
        assert bound.sql == "SELECT x.id, y.Name FROM source_1 x JOIN source_2 y ON x.id = y.id"

    def test_columns_may_be_written_with_the_namespace(self) -> None:
        bound = bind("SELECT ns.t.id, count(*) AS c FROM ns.t GROUP BY ns.t.id")
        assert bound.sql == "SELECT t.id, count(*) AS c FROM source_1 AS `t` GROUP BY t.id"

    @pytest.mark.parametrize(
        "text",
        [
            "SELECT Name, percentile_cont(0.5) WITHIN GROUP (ORDER BY id) AS p FROM {} GROUP BY Name",
            "SELECT date_format(now(), 'y') AS y, 'it\\'s' AS q FROM {}",
            "SELECT id FROM {} MINUS SELECT id FROM {}",
            "SELECT * FROM (SELECT id, row_number() OVER (ORDER BY id) AS n FROM {}) WHERE n = 1",
        ],
    )
    def test_it_keeps_its_own_words(self, text: str) -> None:
        assert bind(text.format("ns.t AS x", "ns.t AS x")).sql == text.format("source_1 AS x", "source_1 AS x")

    def test_comments_and_hints_are_blanked_out_and_strings_are_written_in_one_way(self) -> None:
        text = (
            "SELECT /*+ REPARTITION(3) */ id -- the key\n, \"a'b\" 'c' AS c, 1a1 FROM t AS x /* a /* b */ */ ORDER BY 1"
        )
        query = SparkQuery(text)
        sql = query.bind({query.uses[0]: pa.schema([("id", pa.int64()), ("1a1", pa.int64())])}).sql
        assert " ".join(sql.split()) == "SELECT id , 'a\\'bc' AS c, `1a1` FROM source_1 AS x ORDER BY 1"

    @pytest.mark.parametrize(
        ("text", "has"),
        [
            ("SELECT * FROM t", True),
            ("SELECT x.*, 1 AS one FROM t AS x", True),
            ("SELECT * EXCEPT (id) FROM t", True),
            ("SELECT * FROM t UNION ALL SELECT * FROM u", True),
            ("SELECT count(*) AS n FROM t", False),
            ("SELECT id FROM (SELECT * FROM t)", False),
        ],
    )
    def test_a_star_is_known(self, text: str, has: bool) -> None:
        assert SparkQuery(text).has_star is has

    def test_sides_of_a_union_have_the_same_columns(self) -> None:
        with pytest.raises(InvalidInputError, match="sides of UNION have 6 and 1 columns"):
            bind("SELECT * FROM t UNION ALL SELECT id FROM u")

    def test_a_sample_stays_where_it_has_to_be(self) -> None:
        text = "SELECT id FROM ns.t FOR VERSION AS OF 3 TABLESAMPLE (5 ROWS) REPEATABLE (1);"
        assert bind(text).sql == "SELECT id FROM source_1 TABLESAMPLE (5 ROWS) REPEATABLE (1) AS `t`"

    def test_a_query_that_works_row_by_row_returns_the_ids_of_the_rows(self) -> None:
        assert bind("SELECT id FROM t WHERE id > 1").sql == (
            "SELECT `t`.`__source_row_id`, id FROM source_1 AS `t` WHERE id > 1"
        )

    def test_all_columns_are_written_out_then(self) -> None:
        assert bind("SELECT * EXCEPT (price, items, vector, owner), id + 1 AS next FROM ns.t AS x").sql == (
            "SELECT `x`.`__source_row_id`, `x`.`id`, `x`.`Name`, id + 1 AS next FROM source_1 AS x"
        )


class TestColumns:
    @pytest.mark.parametrize(
        ("text", "columns"),
        [
            ("SELECT id FROM t", {"source_1": ("id",)}),
            ("SELECT upper(NAME) AS n FROM t WHERE price > 1", {"source_1": ("Name", "price")}),
            ("SELECT * FROM t", {"source_1": tuple(SCHEMA.names)}),
            ("SELECT owner.name AS n FROM t", {"source_1": ("owner",)}),
            ("SELECT transform(items, x -> x + id) AS i FROM t", {"source_1": ("id", "items")}),
            ("SELECT count(*) AS c FROM t", {"source_1": ()}),
            ("SELECT c FROM (SELECT id AS c, Name FROM t)", {"source_1": ("id", "Name")}),
            (
                "SELECT x.id FROM t x JOIN u y ON x.id = y.id ORDER BY y.Name",
                {"source_1": ("id",), "source_2": ("id", "Name")},
            ),
            (
                "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.id = t.id AND u.price > 1)",
                {"source_1": ("id",), "source_2": ("id", "price")},
            ),
            ("SELECT * FROM t PIVOT (count(id) FOR Name IN ('x'))", {"source_1": tuple(SCHEMA.names)}),
            ("SELECT id, i FROM t LATERAL VIEW explode(items) x AS i", {"source_1": ("id", "items")}),
        ],
    )
    def test_those_that_are_read_are_known(self, text: str, columns: dict[str, tuple[str, ...]]) -> None:
        assert bind(text).columns == columns

    def test_one_that_is_not_there_is_named(self) -> None:
        with pytest.raises(TableColumnNotFoundError, match=r"no column 'prise'\. Did you mean 'price'"):
            bind("SELECT prise FROM t")

    def test_one_that_is_in_two_tables_is_named(self) -> None:
        with pytest.raises(InvalidInputError, match="'id' is ambiguous"):
            bind("SELECT id FROM t JOIN u ON t.id = u.id")


class TestTypes:
    def test_a_column_that_is_shown_keeps_its_type_and_spelling(self) -> None:
        assert types("SELECT * FROM t") == {field.name: field.type for field in SCHEMA}
        assert types("SELECT name, v FROM (SELECT NAME, vector AS v FROM t)")["name"] == pa.string()

    def test_a_field_may_have_any_name(self) -> None:
        odd = pa.struct([("a`b: c>", pa.int64())])
        query = SparkQuery("SELECT s, id FROM t")
        bound = query.bind(dict.fromkeys(query.uses, pa.schema([("s", odd), ("id", pa.int64())])))
        assert bound.fields == (("s", odd), ("id", pa.int64()))

    def test_a_table_inside_may_have_the_name_of_one_outside(self) -> None:
        query = SparkQuery("SELECT x.id FROM t AS x WHERE EXISTS (SELECT 1 FROM u AS x WHERE x.id = 'a')")
        inner, outer = pa.schema([("id", pa.string())]), pa.schema([("id", pa.int64())])
        bound = query.bind({use: outer if use.name == ("t",) else inner for use in query.uses})
        assert bound.fields == (("id", pa.int64()),)
        assert types("SELECT x.id FROM (SELECT cast(id AS INT) AS id FROM t AS x) AS x") == {"id": pa.int32()}

    @pytest.mark.parametrize(
        ("expression", "kind"),
        [
            ("id + 1", pa.int64()),
            ("id / 2", pa.float64()),
            ("upper(Name)", pa.string()),
            ("length(Name)", pa.int32()),
            ("id > 1", pa.bool_()),
            ("count(*)", pa.int64()),
            ("avg(id)", pa.float64()),
            ("sum(id)", pa.int64()),
            ("collect_list(Name)", pa.list_(pa.string())),
            ("cast(price * 2 AS DECIMAL(12, 2))", pa.decimal128(12, 2)),
            ("cast(id AS DATE)", pa.date32()),
            ("cast(id AS TIMESTAMP)", pa.timestamp("us", "UTC")),
            ("cast(id AS TIMESTAMP_NTZ)", pa.timestamp("us")),
            ("cast(id AS TINYINT)", pa.int8()),
            ("year(to_date(Name))", pa.int32()),
            ("items[0]", pa.int32()),
            ("owner.name", pa.string()),
            ("cast(NULL AS ARRAY<STRUCT<a: INT, b: MAP<STRING, BINARY>>>)", None),
        ],
    )
    def test_the_type_of_an_expression_is_inferred(self, expression: str, kind: pa.DataType | None) -> None:
        if kind is None:
            kind = pa.list_(pa.struct([("a", pa.int32()), ("b", pa.map_(pa.string(), pa.binary()))]))
        assert types(f"SELECT {expression} AS x FROM t") == {"x": kind}

    @pytest.mark.parametrize("expression", ["price * 2", "sum(price)", "my_function(id)", "NULL", "explode(items)"])
    def test_what_only_spark_knows_is_not_guessed(self, expression: str) -> None:
        assert types(f"SELECT {expression} AS x FROM t") == {"x": None}

    def test_sides_of_a_union_that_differ_are_not_guessed(self) -> None:
        assert types("SELECT id FROM t UNION ALL SELECT cast(id AS INT) AS id FROM u") == {"id": None}


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "cannot be read|must be one SELECT"),
            ("SELECT", "must read a table|cannot be read"),
            ("SELECT id FROM", "cannot be read"),
            ("SELECT id FROM t; DROP TABLE t", "must be one SELECT"),
            ("DROP TABLE t", "must be one SELECT"),
            ("INSERT INTO t SELECT * FROM t", "must be one SELECT"),
            ("SET spark.x = 1", "must be one SELECT"),
            ("SELECT 1 AS a", "must read a table"),
            ("SELECT id + 1 FROM t", "has no name"),
            ("SELECT count(*) FROM t", "has no name"),
            ("SELECT reflect('java.lang.System', 'exit', 1) AS x FROM t", r"may not call reflect\(\)"),
            ("SELECT java_method('a', 'b') AS x FROM t", r"may not call java_method\(\)"),
            ("SELECT upper(try_reflect('a', 'b')) AS x FROM t", r"may not call try_reflect\(\)"),
            ("SELECT TRANSFORM(id) USING 'cat' FROM t", "may only read"),
            (CONTINUED_COMMENT, "may only read"),
            (INNER_HINT, r"may not call reflect\(\)"),
            ("SELECT system.builtin.reflect('a', 'b') AS x FROM t", "by their plain names"),
            ("SELECT `Reflect` ('a', 'b') AS x FROM t", r"may not call reflect\(\)"),
            ("SELECT from_xml(name, 'a INT') AS x FROM t", r"may not call from_xml\(\)"),
            ("SELECT xpath_string(name, 'a') AS x FROM t", r"may not call xpath_string\(\)"),
            ("SELECT current_user() AS x FROM t", r"may not call current_user\(\)"),
            ("SELECT current_user AS x FROM t", r"may not call current_user\(\)"),
            ("SELECT '\\u0024{env:HOME}' AS x FROM t", "may not contain"),
            ("SELECT id # FROM t", "'#' is not allowed outside of quotes"),
            ("SELECT id /* FROM t", "comment is not closed"),
            ("SELECT 'id FROM t", "quote is not closed"),
            ("SELECT id FROM identifier('t')", r"may not call identifier\(\)"),
            ("SELECT identifier('id') AS x FROM t", r"may not call identifier\(\)"),
            ("SELECT '${env:HOME}' AS x FROM t", "may not contain"),
            ("SELECT :x AS x FROM t", "no parameters"),
            ("SELECT owner.* FROM t", "name the fields"),
            ("SELECT id, FROM t", "is missing|cannot be read"),
            (r"SELECT r'\' AS x FROM t", "Raw strings"),
            ("SELECT 1.5D0x1F AS x FROM t", "is not a number"),
            ("SELECT id FROM s3://bucket/t", "outside of quotes; name a table"),
            ("FROM t |> SELECT id", "is not offered"),
            ("SELECT id AS größe FROM t", "'größe' must be quoted in backticks"),
            (
                "SELECT x.* FROM vector_dedup('t', 1, 'v', 4.0) AS x",
                r"table function vector_dedup\(\) is not supported",
            ),
            ("SELECT id FROM t TIMESTAMP AS OF '2026-01-01'", "VERSION AS OF"),
            ("SELECT id FROM t VERSION AS OF -1", "VERSION AS OF|cannot be read"),
            (f"SELECT id FROM t VERSION AS OF {'9' * 5000}", "VERSION AS OF takes a whole number"),
            ("SELECT CAST(id AS DECIMAL(39, 2)) AS x FROM t", "Invalid type DECIMAL"),
            ("SELECT CAST(id AS DECIMAL(9, 10)) AS x FROM t", "Invalid type DECIMAL"),
            ("SELECT CAST(id AS DECIMAL(few)) AS x FROM t", "Invalid type DECIMAL"),
            ("SELECT " + "(" * 3000 + "1" + ")" * 3000 + " AS x FROM t", "nested too deeply|cannot be read"),
            ("SELECT " + "a + " * 2500 + "a AS x FROM t", "nested too deeply: write shorter chains"),
            ("SELECT a FROM t WHERE " + " OR ".join(["a = 1"] * 2500), "nested too deeply: write shorter chains"),
            (f"SELECT a AS {'x' * 100_000} FROM t", "more than 100000 characters"),
            ("SELECT t.5d FROM t", "quote the name after the point"),
            ("SELECT date_trunc( LATERAL VIEW explode(xs) e AS x 'MONTH', id) AS e FROM t", "lacks arguments"),
        ],
    )
    def test_the_error_gives_the_reason(self, text: str, message: str) -> None:
        with pytest.raises(InvalidInputError, match=message):
            bind(text)

    @given(st.text(max_size=60))
    def test_whatever_is_sent_is_read_or_refused(self, text: str) -> None:
        for words in (text, f"SELECT {text} FROM t", f"SELECT id FROM t WHERE {text}"):
            with contextlib.suppress(LanceNamespaceError):
                bind(words)


@pytest.mark.parametrize(
    ("text", "volatile"),
    [
        ("SELECT id FROM t WHERE id > 1", None),
        ("SELECT id FROM t WHERE id > rand()", "rand()"),
        ("SELECT count(*) AS n FROM t GROUP BY id HAVING max(id) > rand()", "rand()"),
        ("WITH s AS (SELECT id, current_date AS day FROM t) SELECT id FROM s", "current_date()"),
    ],
)
def test_volatile_functions_are_found_anywhere_in_a_query(text: str, volatile: str | None) -> None:
    assert SparkQuery(text).volatile == volatile


def test_another_dialect_is_put_into_sparks() -> None:
    query = SparkQuery('SELECT "Name", count(*) AS "c" FROM "ns"."t" GROUP BY "Name"', LanceDialect)
    bound = query.bind(dict.fromkeys(query.uses, SCHEMA))
    assert bound.sql == "SELECT `Name`, COUNT(*) AS `c` FROM source_1 AS `t` GROUP BY `Name`"
