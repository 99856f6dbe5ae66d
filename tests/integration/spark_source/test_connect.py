"""The source through Spark Connect, whose plans and cores cannot be seen."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import lance
import pytest
from lance_namespace.errors import InvalidInputError

import pennon.spark
from pennon.spark.plan_check import check_statement, restrict
from pennon.spark.session import accept_pandas
from pennon.tables.snapshots import Snapshot
from pennon.views.sql.spark_lexer import normalize_sql
from tests.integration.spark_source.spark_namespace import SparkNamespace, ids, numbers
from tests.support.view_sql import QUERIES, REFUSED, SOURCES, register_sources

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.spark import ConnectServer


def test_tables_are_read_queried_and_written(namespace: SparkNamespace, connect_server: ConnectServer) -> None:
    from pyspark.sql.connect.session import SparkSession

    accept_pandas()
    remote: Any = SparkSession.builder.remote(connect_server.url).create()
    try:
        pennon.spark.register(remote)
        there = replace(namespace, spark=remote)
        there.create("t", numbers(30))
        assert ids(there.load("t").where("k = 1")) == list(range(10, 20))
        assert there.sql("SELECT count(*) FROM {0}.t WHERE id < 5").collect()[0][0] == 5
        there.save(there.load("t", columns="id"), "copy")
        assert there.open("copy").count_rows() == 30
    finally:
        remote.stop()


def test_plan_of_a_view_is_checked_before_it_runs(connect_server: ConnectServer, tmp_path: Path) -> None:
    accept_pandas()  # the first import warns
    from pyspark.errors import AnalysisException
    from pyspark.sql.connect.session import SparkSession

    remote: Any = SparkSession.builder.remote(connect_server.url).create()
    try:
        restrict(remote)
        register_sources(remote)
        lance.write_dataset(numbers(3), str(tmp_path / "t.lance"))
        stored = Snapshot(str(tmp_path / "t.lance"), {}, "", 1)
        pennon.spark.read(remote, stored).createOrReplaceTempView("stored_rows")
        remote.udf.register("scalar", lambda value: value)
        allowed = [normalize_sql(query) for query in QUERIES]
        refused = [statement.format(folder=tmp_path) for statement in REFUSED]
        check_statement(remote, normalize_sql("SELECT id FROM stored_rows WHERE k = 1"), ["stored_rows"])
        with pytest.raises(InvalidInputError, match="would run a query on"):
            check_statement(remote, normalize_sql("SELECT id FROM stored_rows"), SOURCES)
        for query in allowed:
            if not any("\n" in token.value for token in query.tokens):
                check_statement(remote, query, SOURCES)
            else:
                with pytest.raises(InvalidInputError, match="line break"):
                    check_statement(remote, query, SOURCES)
        for statement in refused:
            with pytest.raises((InvalidInputError, AnalysisException), match=r"would run|too large|SYNTAX|cannot run"):
                check_statement(remote, normalize_sql(statement), SOURCES)
        assert not (tmp_path / "out").exists()
    finally:
        remote.stop()
