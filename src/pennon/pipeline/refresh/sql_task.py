"""Computing a view by a statement of Spark's SQL, over versions of its sources that do not move."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pennon.pipeline.backfill.fragment import Meter, forget_peak
from pennon.pipeline.cluster.tasks import ANSWERS, run_frame
from pennon.pipeline.refresh.row_task import guarded
from pennon.spark import read
from pennon.spark.plan_check import check_statement, restrict
from pennon.spark.session import accept_pandas
from pennon.tables.field_paths import split_path
from pennon.tables.snapshots import Snapshot, bases_of
from pennon.views.model.definition import SOURCE_ROW
from pennon.views.sql.spark_sql import checked_statement

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from pennon.pipeline.cluster.session import Session
    from pennon.pipeline.cluster.tasks import TaskRun
    from pennon.views.refresh.plan import Read, RefreshPlan

_ROW_ID = "_rowid"


@dataclass(frozen=True)
class WriteRows:
    """Writes the rows of a partition of a data frame as fragments of the view."""

    target: Snapshot
    names: tuple[str, ...]
    run: str
    most_rows: int | None
    #: The source's rows that the view may have rows of already, rising.
    known: NDArray[np.int64] | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows of a partition and answer with the fragments."""
        import pyarrow as pa
        from pyspark import TaskContext

        from pennon.pipeline.cluster.tasks import reported

        context = TaskContext.get()
        number = context.partitionId() if context is not None else 0
        answer = reported(lambda: self._answer(number, batches))
        yield pa.RecordBatch.from_pydict({"task": [number], "answer": [json.dumps(answer)]})

    def _answer(self, number: int, batches: Iterator[pa.RecordBatch]) -> dict[str, Any]:
        from pennon.pipeline.refresh.fragments import FragmentWriter

        forget_peak()
        writer = FragmentWriter(self.target, list(self.names), self.run, self.most_rows)
        return guarded(self.target, self.run, number, writer.abort, lambda: self._write(number, writer, batches))

    def _write(self, number: int, writer: Any, batches: Iterator[pa.RecordBatch]) -> dict[str, Any]:
        import numpy as np
        from lance_namespace.errors import TableSchemaValidationError

        from pennon.pipeline.refresh.counts import pack_ids
        from pennon.pipeline.refresh.fragments import MisfitError
        from pennon.pipeline.refresh.run_signals import Notices
        from pennon.spark.types import to_lance
        from pennon.storage.root import open_file_io

        notices, meter = Notices(open_file_io(self.target.location, self.target.options), self.run), Meter()
        known = []
        for batch in batches:
            try:
                rows = to_lance(batch, writer.schema)
            except TableSchemaValidationError as error:
                raise MisfitError(str(error)) from None
            writer.write(rows)
            meter.rows_computed += batch.num_rows
            if self.known is not None:
                ids = rows.column(SOURCE_ROW).to_numpy()
                known.append(ids[np.isin(ids, self.known)])
            notices.tell(number, meter.rows_computed)
        fragments = [piece.to_json() for piece in writer.close()]
        meter.bytes_written = writer.bytes_written
        return {"fragments": fragments, "counters": meter.counters(), "known": pack_ids(known), "errors": []}


def start_statement(
    session: Session,
    plan: RefreshPlan,
    options: dict[str, str],
    write: Callable[[tuple[str, ...]], WriteRows],
    group: str,
) -> TaskRun:
    """Start the statement of a view over the rows that a plan names, and write what it returns."""

    def frame() -> Any:
        # Of its own: statements of several views name their sources alike.
        spark: Any = session.spark.newSession()
        accept_pandas()
        restrict(spark)
        for source in plan.reads:
            _show(spark, plan, source, options)
        statement = checked_statement(plan.definition.sql or "")
        check_statement(spark, statement, [read.source.name for read in plan.reads])
        result = spark.sql(statement.text)
        return result.mapInArrow(write(tuple(result.columns)), ANSWERS)

    return run_frame(session, frame, group=group)


def _show(spark: Any, plan: RefreshPlan, source: Read, options: dict[str, str]) -> None:
    """Make the version of a source known by the name that the statement has for it."""
    snapshot = Snapshot(source.table.location, options, "", source.dataset.version, bases_of(source.dataset))
    names = list(dict.fromkeys(split_path(path)[0] for path in source.source.columns))
    by_row = plan.definition.is_incremental
    ids = plan.changes.present if plan.mode == "incremental" else None
    shown: Any = read(spark, snapshot, columns=names, row_ids=ids, with_row_id=by_row)
    if by_row:
        shown = shown.withColumnRenamed(_ROW_ID, SOURCE_ROW)
    shown.createOrReplaceTempView(source.source.name)
