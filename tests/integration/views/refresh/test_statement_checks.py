"""What Spark is given of a view's SQL: it means what was written, and a plan that does more than read is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidInputError

from pennon.catalog import views
from pennon.pipeline.cluster.session import Sessions
from pennon.spark.plan_check import check_statement, restrict
from pennon.views.compilation import columns_by_table
from pennon.views.sql.spark_functions import ALLOWED, FORBIDDEN
from pennon.views.sql.spark_lexer import normalize_sql
from tests.integration.views.refresh.refresh_harness import RefreshHarness
from tests.support.view_sql import CONTINUED_COMMENT, INNER_HINT, QUERIES, REFUSED, SOURCES, register_sources

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def spark(local_sessions: Sessions) -> Iterator[Any]:
    """A session with two sources, and with what the worker of somebody else may have registered beside them."""
    with local_sessions.use() as session:
        opened: Any = session.spark
        opened = opened.newSession()
        restrict(opened)
        register_sources(opened)
        opened.range(2).createOrReplaceTempView("other")
        opened.sql("CREATE TABLE IF NOT EXISTS stored (id INT) USING parquet")
        opened.udf.register("scalar", lambda value: value)
        yield opened
        opened.sql("DROP TABLE stored")


def means_the_same(spark: Any, one: str, other: str) -> bool:
    """Tell whether two statements return the same: by their plans, or else, as with numbered CTEs, by their rows."""
    frames = [spark.sql(sql) for sql in (one, other)]
    plans = [frame._jdf.queryExecution().analyzed() for frame in frames]
    same = plans[0].sameResult(plans[1]) or len({repr(sorted(map(repr, frame.collect()))) for frame in frames}) == 1
    return same and frames[0].schema == frames[1].schema


@pytest.mark.parametrize("query", QUERIES)
def test_normalised_text_means_what_was_written_and_its_plan_is_allowed(spark: Any, query: str) -> None:
    normal = normalize_sql(query)
    assert normalize_sql(normal.text) == normal
    check_statement(spark, normal, SOURCES)
    assert means_the_same(spark, query, normal.text)


@pytest.mark.parametrize("statement", REFUSED)
def test_plan_that_does_more_than_read_the_sources_is_refused_before_it_runs(
    spark: Any, statement: str, tmp_path: Path
) -> None:
    from pyspark.errors import AnalysisException

    (tmp_path / "secret").write_text("x")
    before = {row.name for row in spark.catalog.listTables()}
    with pytest.raises((InvalidInputError, AnalysisException)) as refused:
        check_statement(spark, normalize_sql(statement.format(folder=tmp_path)), SOURCES)
    error = str(refused.value)
    assert "Spark would run" in error or "too large" in error or "TABLE_OR_VIEW_NOT_FOUND" in error
    assert not (tmp_path / "out").exists()
    assert {row.name for row in spark.catalog.listTables()} == before
    assert spark.conf.get("spark.sql.runSQLOnFiles") == "false"


def test_every_function_of_spark_was_looked_at(spark: Any) -> None:
    known = {row[0] for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect() if row[0].isidentifier()}
    assert known - ALLOWED - FORBIDDEN == set()
    assert set() == ALLOWED & FORBIDDEN


@pytest.mark.parametrize(
    ("number", "sql"),
    [
        (0, CONTINUED_COMMENT),
        (1, INNER_HINT.replace("FROM t", "FROM source_1")),
        (2, "SELECT s FROM source_1 JOIN other USING (a)"),
    ],
)
def test_statement_that_an_older_version_kept_is_checked_before_it_runs(
    harness: RefreshHarness, number: int, sql: str
) -> None:
    harness.create(f"t{number}", pa.table({"a": pa.array([1], pa.int64()), "s": ["x"]}))
    harness.view(f"kept{number}", f"SELECT DISTINCT s FROM t{number}")
    definition = replace(harness.definition(f"kept{number}"), sql=sql)
    view_id = harness.table(f"kept{number}").id
    harness.services.database.write(
        lambda connection: views.redefine(connection, view_id, definition.to_json(), columns_by_table(definition), None)
    )
    failure = harness.refresh(f"kept{number}").failure
    assert re.search("may only read|may not call reflect|TABLE_OR_VIEW_NOT_FOUND", failure["message"])
    assert harness.dataset(f"kept{number}").count_rows() == 0
