"""A session of Spark that knows the source: tables as data frames and as temporary views."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pennon.lake.snapshots import Snapshot
from pennon.spark.row_ids import as_option

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
_TIME_OF_DAY = "spark.sql.timeType.enabled"


def register(spark: SparkSession) -> None:
    """Make ``format("pennon")`` known to a session, with filters for sources in Python and times of day."""
    from pennon.spark.source import LanceSource

    spark.conf.set(_PUSHDOWN, "true")
    spark.conf.set(_TIME_OF_DAY, "true")
    # A class of the session's own: where Spark plans a read, nothing else tells how many tasks run at once.
    spark.dataSource.register(type("LanceSource", (LanceSource,), {"cores": _cores(spark), "__module__": __name__}))


def read(
    spark: SparkSession,
    snapshot: Snapshot,
    *,
    columns: Sequence[str] | None = None,
    row_ids: Iterable[int] | str | None = None,
    with_row_id: bool = False,
    filter: str | None = None,  # noqa: A002 (as Lance calls it)
) -> DataFrame:
    """Return a version of a table as a data frame; nothing is read before Spark needs it.

    Args:
        spark: A session; the source is registered in it if need be.
        snapshot: The version.
        columns: The names of the columns it has; all of them by default.
        row_ids: The rows it has, by row id: the ids, or the path of an Arrow file whose first column has them, which
            executors can read. Ids that the version does not have are left out. All rows by default.
        with_row_id: Whether it also has the column ``_rowid``, a long, as its last.
        filter: Which rows it has, in Lance's SQL; not together with `row_ids`.
    """
    register(spark)
    reader: Any = spark.read.format("pennon").option("snapshot", snapshot.to_option())
    if row_ids is not None:
        reader = reader.option("row_ids", row_ids if isinstance(row_ids, str) else as_option(row_ids))
    if filter is not None:
        reader = reader.option("filter", filter)
    if columns is not None:
        reader = reader.option("columns", json.dumps(list(columns)))
    if with_row_id:
        reader = reader.option("with_row_id", "true")
    frame: DataFrame = reader.load()
    return frame


def create_view(spark: SparkSession, name: str, snapshot: Snapshot, **options: Any) -> StructType:
    """Make a version of a table a temporary view of a session, and return its schema; for the options see `read`."""
    frame = read(spark, snapshot, **options)
    frame.createOrReplaceTempView(name)
    return frame.schema


def _cores(spark: SparkSession) -> int | None:
    """Return how many tasks run at once; a Connect server does not say."""
    from pyspark.errors import PySparkAttributeError

    try:
        return int(spark.sparkContext.defaultParallelism)
    except PySparkAttributeError:
        return None
