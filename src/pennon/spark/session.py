"""A session of Spark that knows the source: tables as data frames and as temporary views."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pennon.spark.needs import shows_plans
from pennon.spark.row_ids import as_option
from pennon.tables.snapshots import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from pennon.spark.source import LanceSource

_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
_TIME_OF_DAY = "spark.sql.timeType.enabled"


def register(spark: SparkSession) -> None:
    """Make ``format("pennon")`` known to a session, with filters for sources in Python and times of day."""
    spark.conf.set(_PUSHDOWN, "true")
    spark.conf.set(_TIME_OF_DAY, "true")
    spark.dataSource.register(_source(spark))


def accept_pandas() -> None:
    """Keep PySpark from warning about the version of pandas, which it asks for and Pennon's tasks do not use."""
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
    """Return a version of a table as a data frame; no row is read before Spark needs it.

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
    options = {"snapshot": snapshot.to_option()}
    if row_ids is not None:
        options["row_ids"] = row_ids if isinstance(row_ids, str) else as_option(row_ids)
    if filter is not None:
        options["filter"] = filter
    if columns is not None:
        options["columns"] = json.dumps(list(columns))
    if with_row_id:
        options["with_row_id"] = "true"
    if shows_plans(spark):
        return _planned_here(spark, options)
    frame: DataFrame = spark.read.format("pennon").options(**options).load()
    return frame


def create_view(spark: SparkSession, name: str, snapshot: Snapshot, **options: Any) -> StructType:
    """Make a version of a table a temporary view of a session, and return its schema; for the options see `read`."""
    frame = read(spark, snapshot, **options)
    frame.createOrReplaceTempView(name)
    return frame.schema


def _planned_here(spark: Any, options: Mapping[str, str]) -> DataFrame:
    """Return what the source would read, planned in this process and read by plain tasks.

    Of a source in Python, Spark adds up metrics anew for every hundred rows, which takes about as long as to read them.
    """
    from pennon.spark.reading import PartitionReads

    source = _source(spark)(options)
    schema = source.schema()
    reader = source.reader(schema)
    partitions = reader.partitions()
    accept_pandas()
    return _numbers(spark, len(partitions)).mapInArrow(PartitionReads(reader, partitions), schema)


def _numbers(spark: Any, count: int) -> DataFrame:
    """Return the first numbers, each in a partition of its own, as a data frame of a size that Spark does not know.

    A table that is read by few numbers would else be taken for a small one, and be broadcast.
    """
    from pyspark.sql import DataFrame

    rows = spark.range(0, count, 1, max(1, count)).toDF("number")._jdf  # noqa: SLF001 (Java alone makes rows of an RDD)
    return DataFrame(spark._jsparkSession.createDataFrame(rows.toJavaRDD(), rows.schema()), spark)  # noqa: SLF001


def _source(spark: SparkSession) -> type[LanceSource]:
    """Return the source as a class of the session: nothing else tells of its cores where Spark plans a read."""
    from pennon.spark.source import LanceSource

    return type("LanceSource", (LanceSource,), {"cores": _cores(spark), "__module__": __name__})


def _cores(spark: SparkSession) -> int | None:
    """Return how many tasks run at once; a Connect server does not say."""
    from pyspark.errors import PySparkAttributeError

    try:
        return int(spark.sparkContext.defaultParallelism)
    except PySparkAttributeError:
        return None
