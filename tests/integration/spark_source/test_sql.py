"""SQL over tables of a server: names, versions, and how little of each table is read."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidInputError, TableNotFoundError
from pyspark.errors import AnalysisException

import pennon.spark
from pennon.spark import Snapshot
from pennon.spark.scan_requirements import ScanRequirement, find_scan_requirements
from tests.integration.spark_source.spark_namespace import SparkNamespace, numbers

SCHEMA = numbers(0).schema


def rows(frame: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.collect())


def need(spark: Any, query: str, schema: pa.Schema = SCHEMA) -> ScanRequirement:
    return find_scan_requirements(spark, query, {"t": schema})["t"]


def test_tables_are_named_as_the_server_names_them(namespace: SparkNamespace) -> None:
    namespace.create("orders", numbers(30))
    namespace.create("odd name", numbers(3))
    assert rows(namespace.sql("SELECT {0}.orders.id FROM {0}.orders WHERE orders.k = 1")) == [
        (n,) for n in range(10, 20)
    ]
    query = "SELECT o.id, n.text FROM {0}.orders AS o JOIN {0}.`odd name` AS n ON o.id = n.id ORDER BY 1"
    assert rows(namespace.sql(query)) == [(0, "number 0"), (1, "number 1"), (2, "number 2")]


def test_a_query_may_ask_for_versions_and_tags(namespace: SparkNamespace) -> None:
    namespace.create("t", numbers(10), numbers(10, 20)).tags.create("first", 1)
    query = (
        "SELECT count(*) FROM {0}.t VERSION AS OF 1 UNION ALL SELECT count(*) FROM {0}.t FOR VERSION AS OF 'first' x"
    )
    assert rows(namespace.sql(query)) == [(10,), (10,)]
    assert rows(namespace.sql("SELECT count(*) FROM {0}.t")) == [(20,)]


def test_temporary_views_and_given_versions_stand_beside_each_other(namespace: SparkNamespace) -> None:
    dataset = namespace.create("t", numbers(30))
    namespace.spark.range(2).createOrReplaceTempView("groups_of_spark")
    given = {"t": Snapshot(dataset.uri, {}, "", 1)}
    query = "SELECT g.id, count(*) FROM t JOIN groups_of_spark AS g ON t.k = g.id GROUP BY g.id"
    assert rows(pennon.spark.sql(namespace.spark, query, given)) == [(0, 10), (1, 10)]
    namespace.create("s", numbers(30))
    assert rows(namespace.sql("SELECT count(*) FROM {0}.s JOIN groups_of_spark AS g ON s.k = g.id")) == [(20,)]


def test_what_a_query_selects_may_be_used_again_and_again(namespace: SparkNamespace) -> None:
    namespace.create("t", numbers(100))
    found = namespace.sql("SELECT id, x FROM {0}.t WHERE k IN (1, 2)")
    assert (found.count(), found.where("id = 15").count(), found.count()) == (20, 1, 20)


def test_names_that_a_query_defines_are_its_own(namespace: SparkNamespace) -> None:
    namespace.create("t", numbers(10))
    query = "WITH t AS (SELECT id + 1 AS id FROM {0}.t) SELECT max(id) FROM t WHERE id > (SELECT min(id) FROM {0}.t)"
    assert rows(namespace.sql(query)) == [(10,)]


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        ("SELECT sum(x) FROM t", ("x",)),
        ("SELECT count(*) FROM t", ()),
        ("SELECT * FROM t", ("id", "k", "x", "text")),
        ("SELECT k, count(*) FROM t GROUP BY k HAVING max(x) > 3", ("k", "x")),
        ("SELECT id FROM t WHERE text LIKE 'a%' ORDER BY x LIMIT 3", ("id", "x", "text")),
        ("SELECT a.id FROM t a JOIN t b ON a.id = b.k", ("id", "k")),
        ("SELECT id FROM t WHERE k > (SELECT avg(x) FROM t)", ("id", "k", "x")),
        ("SELECT * FROM t UNION ALL SELECT * FROM t", ("id", "k", "x", "text")),
        ("FROM t |> WHERE k = 1 |> SELECT id", ("id", "k")),
        ("SELECT sum(x) OVER (PARTITION BY k) FROM t", ("k", "x")),
        ("SELECT text FROM t NATURAL JOIN (SELECT 1 AS id)", ("id", "text")),
        ("TABLE t", ("id", "k", "x", "text")),
    ],
)
def test_just_the_columns_that_a_query_uses_are_needed(
    namespace: SparkNamespace, query: str, columns: tuple[str, ...]
) -> None:
    assert need(namespace.spark, query).columns == columns


@pytest.mark.parametrize(
    ("condition", "pushed"),
    [
        ("k = 3", "`k` IS NOT NULL AND `k` = 3"),
        ("k < 3 OR text = 'it\\'s'", "(`k` < 3 OR `text` = 'it''s')"),
        ("k < 3 OR length(text) = 3", None),
        ("k IN (1, 2) AND length(text) = 3", "`text` IS NOT NULL AND `k` IN (1, 2)"),
        ("text LIKE 'ab%'", "`text` IS NOT NULL AND starts_with(`text`, 'ab')"),
        ("x > 0.5", "`x` IS NOT NULL AND (`x` > 0.5 OR isnan(`x`))"),
        ("x > 0", "`x` IS NOT NULL"),
        ("NOT (k <=> 3)", None),
        ("rand() < 0.5", None),
    ],
)
def test_filters_become_lances_where_they_mean_the_same(
    namespace: SparkNamespace, condition: str, pushed: str | None
) -> None:
    assert need(namespace.spark, f"SELECT id FROM t WHERE {condition}").filter == pushed


def test_dates_times_and_decimals_are_pushed_in_the_columns_own_type(namespace: SparkNamespace) -> None:
    schema = pa.schema(
        [
            ("day", pa.date32()),
            ("at", pa.timestamp("us", "UTC")),
            ("clock", pa.timestamp("ms")),
            ("price", pa.decimal128(10, 2)),
        ]
    )
    query = (
        "SELECT 1 FROM t WHERE day > DATE'2024-02-29' AND at <= TIMESTAMP'2024-03-01 12:00:00.000001+01:00' "
        "AND clock = TIMESTAMP_NTZ'2024-03-01 12:00:00.5' AND price = 1.50"
    )
    pushed = need(namespace.spark, query, schema).filter or ""
    assert "`day` > date '2024-02-29'" in pushed
    assert "`at` <= timestamp '2024-03-01 11:00:00.000001+00:00'" in pushed
    assert "`clock` = timestamp '2024-03-01 12:00:00.500000'" in pushed
    assert "`price` = cast('1.50' AS decimal(10, 2))" in pushed


def test_a_filter_that_holds_for_one_use_of_a_table_does_not_bind_the_others(namespace: SparkNamespace) -> None:
    query = "WITH c AS (SELECT * FROM t) SELECT id FROM c WHERE k = 1 UNION ALL SELECT id FROM c WHERE k = 2"
    assert need(namespace.spark, query).filter is None
    namespace.create("t", numbers(30))
    union = "WITH c AS (SELECT * FROM {0}.t) SELECT id FROM c WHERE k = 1 UNION ALL SELECT id FROM c WHERE k = 2"
    assert len(rows(namespace.sql(union))) == 20


def test_numbers_compare_as_spark_compares_them(namespace: SparkNamespace) -> None:
    nan = float("nan")
    table = pa.table({"id": pa.array(range(7)), "x": [0.0, -0.0, nan, 1.5, None, float("inf"), -1.0]})
    dataset = namespace.create("t", table)
    dataset.create_scalar_index("x", "BTREE")
    plain = namespace.load("t")
    conditions = ("x = 0", "x >= 0", "x > 1", "x < 0", "x <= -0.5", "x = 'NaN'", "x > 1e300", "x <> 1.5", "NOT x > 1")
    for condition in conditions:
        expected = rows(plain.where(condition).select("id"))
        assert rows(namespace.sql("SELECT id FROM {0}.t WHERE " + condition)) == expected, condition


def test_mistakes_are_told_as_such(namespace: SparkNamespace) -> None:
    namespace.create("orders", numbers(1))
    with pytest.raises(TableNotFoundError, match="Did you mean 'orders'"):
        namespace.sql("SELECT 1 FROM {0}.order_s")
    with pytest.raises(AnalysisException, match="UNRESOLVED_COLUMN"):
        namespace.sql("SELECT idd FROM {0}.orders")
    with pytest.raises(InvalidInputError, match="cannot be read: Expected table name"):
        namespace.sql("SELECT FROM WHERE")
    with pytest.raises(InvalidInputError, match="VERSION AS OF"):
        namespace.sql("SELECT 1 FROM {0}.orders TIMESTAMP AS OF '2024-01-01'")
    assert not [view for view in namespace.spark.catalog.listTables() if view.name.startswith("pennon_")]
