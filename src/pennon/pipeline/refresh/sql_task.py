"""The tasks of a view over a Spark SQL statement, which reads fixed versions of its sources."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pennon.pipeline.cluster.tasks import ANSWERS, run_frame
from pennon.pipeline.refresh.row_task import open_signals
from pennon.pipeline.refresh.task_result import finish_task
from pennon.pipeline.run_signals import RunSignals, run_task
from pennon.pipeline.task_metrics import TaskMetrics, reset_peak_memory
from pennon.spark import read
from pennon.spark.plan_check import check_statement, restrict
from pennon.spark.session import accept_pandas
from pennon.tables.field_paths import split_path
from pennon.tables.snapshots import Snapshot, bases_of
from pennon.views.model.definition import SOURCE_ROW
from pennon.views.sql.spark_sql import normalize_statement

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

    from pennon.pipeline.cluster.session import Session
    from pennon.pipeline.cluster.tasks import TaskRun
    from pennon.pipeline.refresh.fragments import FragmentWriter
    from pennon.pipeline.refresh.task_result import RefreshTaskResult
    from pennon.pipeline.task_records import TaskAnswer
    from pennon.views.refresh.plan import PlannedRefresh, SourceRead

_ROW_ID = "_rowid"


@dataclass(frozen=True)
class WriteRows:
    """Writes the rows of each partition of a data frame as fragments of the view."""

    target: Snapshot
    names: tuple[str, ...]
    run: str
    most_rows: int | None
    #: The ids of source rows that the view may have rows of already, ascending.
    known: NDArray[np.int64] | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows of a partition, and return the task's answer."""
        import pyarrow as pa
        from pyspark import TaskContext

        from pennon.pipeline.cluster.tasks import report_errors

        context = TaskContext.get()
        number = context.partitionId() if context is not None else 0
        answer = report_errors(lambda: self._answer(number, batches))
        yield pa.RecordBatch.from_pydict({"task": [number], "answer": [json.dumps(answer)]})

    def _answer(self, number: int, batches: Iterator[pa.RecordBatch]) -> TaskAnswer[RefreshTaskResult]:
        from pennon.pipeline.refresh.fragments import FragmentWriter

        reset_peak_memory()
        writer = FragmentWriter(self.target, list(self.names), self.run, self.most_rows)
        signals = open_signals(self.target, self.run)
        return run_task(signals, number, lambda: self._write(number, writer, batches, signals), writer.abort)

    def _write(
        self, number: int, writer: FragmentWriter, batches: Iterator[pa.RecordBatch], signals: RunSignals
    ) -> RefreshTaskResult:
        import numpy as np
        from lance_namespace.errors import TableSchemaValidationError

        from pennon.pipeline.refresh.fragments import SchemaMismatchError
        from pennon.spark.types import to_lance

        metrics = TaskMetrics()
        known: list[NDArray[np.int64]] = []
        for batch in batches:
            try:
                rows = to_lance(batch, writer.schema)
            except TableSchemaValidationError as error:
                raise SchemaMismatchError(str(error)) from None
            writer.write(rows)
            metrics.rows_computed += batch.num_rows
            if self.known is not None:
                ids = rows.column(SOURCE_ROW).to_numpy()
                known.append(ids[np.isin(ids, self.known)])
            signals.report_progress(number, metrics.rows_computed)
        return finish_task(writer, signals, metrics, known)


def start_statement(
    session: Session,
    plan: PlannedRefresh,
    options: dict[str, str],
    write: Callable[[tuple[str, ...]], WriteRows],
    group: str,
) -> TaskRun[TaskAnswer[RefreshTaskResult]]:
    """Start the statement of a view over the rows of a plan, and write what it returns."""

    def frame() -> DataFrame:
        # Statements of several views may use the same source names, so each has its own session.
        spark = session.spark.newSession()
        accept_pandas()
        restrict(spark)
        for source in plan.reads:
            _register_source(spark, plan, source, options)
        statement = normalize_statement(plan.definition.sql or "")
        check_statement(spark, statement, [read.source.name for read in plan.reads])
        result = spark.sql(statement.text)
        return result.mapInArrow(write(tuple(result.columns)), ANSWERS)

    return run_frame(session, frame, group=group)


def _register_source(spark: SparkSession, plan: PlannedRefresh, source: SourceRead, options: dict[str, str]) -> None:
    """Register the version of a source as a view, by the name that the statement uses."""
    snapshot = Snapshot(source.table.location, options, "", source.dataset.version, bases_of(source.dataset))
    names = list(dict.fromkeys(split_path(path)[0] for path in source.source.columns))
    has_row_ids = plan.definition.is_incremental
    ids = plan.changes.to_compute if plan.mode == "incremental" else None
    frame = read(spark, snapshot, columns=names, row_ids=ids, with_row_id=has_row_ids)
    if has_row_ids:
        frame = frame.withColumnRenamed(_ROW_ID, SOURCE_ROW)
    frame.createOrReplaceTempView(source.source.name)
