"""The source through Spark Connect, whose plans and cores cannot be seen."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pennon.spark
from pennon.spark.session import accept_pandas
from tests.integration.spark_source.shops import Shop, ids, numbers

if TYPE_CHECKING:
    from tests.support.spark import ConnectServer


def test_tables_are_read_queried_and_written(shop: Shop, connect_server: ConnectServer) -> None:
    from pyspark.sql.connect.session import SparkSession

    accept_pandas()
    remote: Any = SparkSession.builder.remote(connect_server.url).create()
    try:
        pennon.spark.register(remote)
        there = replace(shop, spark=remote)
        there.create("t", numbers(30))
        assert ids(there.load("t").where("k = 1")) == list(range(10, 20))
        assert there.sql("SELECT count(*) FROM {0}.t WHERE id < 5").collect()[0][0] == 5
        there.save(there.load("t", columns="id"), "copy")
        assert there.open("copy").count_rows() == 30
    finally:
        remote.stop()
