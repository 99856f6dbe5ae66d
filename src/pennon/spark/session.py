"""Spark sessions with the source: tables as data frames and as temporary views."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pennon.spark.row_ids import as_option
from pennon.spark.scan_requirements import has_local_plans
from pennon.tables.snapshots import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from pennon.spark.source import LanceSource

_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
_TIME_OF_DAY = "spark.sql.timeType.enabled"


def register(spark: SparkSession) -> None:
    """Register ``format("pennon")`` in a session, and enable filters of Python sources and the type TIME."""
    spark.conf.set(_PUSHDOWN, "true")
    spark.conf.set(_TIME_OF_DAY, "true")
    spark.dataSource.register(_source(spark))


def accept_pandas() -> None:
    """Silence PySpark's warning about the version of pandas, which Pennon's tasks do not use."""
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)


def read(
    spark: SparkSession,
    snapshot: Snapshot,
    *,
    columns: Sequence[str] | None = None,
    row_ids: Iterable[int] | str | None = None,
    with_row_id: bool = False,
    filter: str | None = None,  # noqa: A002 (as Lance calls it)
) -> DataFrame:
    """Return a version of a table as a lazy data frame.

    Args:
        spark: A session; the source is registered in it.
        snapshot: The version.
        columns: The columns to read; all by default.
        row_ids: The rows to read: row ids, or the path of an Arrow file that executors can read and whose first column
            has the ids. Ids that the version does not have are ignored. All rows by default.
        with_row_id: Whether to append the column ``_rowid``, a long.
        filter: A filter in Lance's SQL; cannot be combined with `row_ids`.
    """
    register(spark)
    options = {"snapshot": snapshot.to_option()}
    if row_ids is not None:
        options["row_ids"] = row_ids if isinstance(row_ids, str) else as_option(row_ids)
    if filter is not None:
        options["filter"] = filter
    if columns is not None:
        options["columns"] = json.dumps(list(columns))
    if with_row_id:
        options["with_row_id"] = "true"
    if has_local_plans(spark):
        return _planned_here(spark, options)
    return spark.read.format("pennon").options(**options).load()


def create_view(spark: SparkSession, name: str, snapshot: Snapshot, **options: Any) -> StructType:
    """Create a temporary view of a version of a table, and return its schema; `read` has the options."""
    frame = read(spark, snapshot, **options)
    frame.createOrReplaceTempView(name)
    return frame.schema


def _planned_here(spark: Any, options: dict[str, str]) -> DataFrame:
    """Return a data frame that is planned in this process and read by plain tasks instead of a Python source.

    For Python sources, Spark updates metrics every hundred rows, which takes about as long as reading them.
    """
    from pennon.spark.reader import PartitionScan

    source = _source(spark)(options)
    schema = source.schema()
    reader = source.reader(schema)
    partitions = reader.partitions()
    accept_pandas()
    return _numbers(spark, len(partitions)).mapInArrow(PartitionScan(reader, partitions), schema)


def _numbers(spark: Any, count: int) -> DataFrame:
    """Return the first numbers, one per partition, as a data frame of a size that is unknown to Spark.

    Otherwise Spark would take a table that few tasks read for a small one, and broadcast it.
    """
    from pyspark.sql import DataFrame

    rows = spark.range(0, count, 1, max(1, count)).toDF("number")._jdf  # noqa: SLF001 (only Java can make a frame from an RDD of rows)
    return DataFrame(spark._jsparkSession.createDataFrame(rows.toJavaRDD(), rows.schema()), spark)  # noqa: SLF001


def _source(spark: SparkSession) -> type[LanceSource]:
    """Return a source class with the number of cores of the session, which Spark does not pass to sources."""
    from pennon.spark.source import LanceSource

    return type("LanceSource", (LanceSource,), {"cores": _cores(spark), "__module__": __name__})


def _cores(spark: SparkSession) -> int | None:
    """Return the number of tasks that run at the same time; unknown with Spark Connect."""
    from pyspark.errors import PySparkAttributeError

    try:
        return int(spark.sparkContext.defaultParallelism)
    except PySparkAttributeError:
        return None
