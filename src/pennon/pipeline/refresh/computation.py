"""The computation of a refresh on Spark: row by row, partition by partition, or by an SQL statement."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pennon.catalog.column_errors import SOURCE, ColumnError
from pennon.columns.declarations import read_function
from pennon.core.clock import now_millis
from pennon.functions.envelope import Envelope, read_envelope
from pennon.functions.error_policy import ErrorPolicy
from pennon.pipeline.batch_sizer import BatchLimits
from pennon.pipeline.cluster.driver import borrow_session, prepare_environment, task_count, wait
from pennon.pipeline.cluster.resources import TaskResources
from pennon.pipeline.cluster.tasks import run_tasks
from pennon.pipeline.column_work import ColumnWork, TargetColumn
from pennon.pipeline.environments.preflight import Preflight
from pennon.pipeline.job_failure import JobAbortedError, raise_task_failure
from pennon.pipeline.refresh.counts import Counts, Ids, unpack_ids
from pennon.pipeline.refresh.output_limit import limit_rows
from pennon.pipeline.refresh.partition_task import PartitionTask
from pennon.pipeline.refresh.row_task import SIGNALS, Chunker, Projection, RowRefreshTask
from pennon.pipeline.refresh.work_split import FragmentRange, WorkItem, changed_items, split_fragment, split_work
from pennon.pipeline.run_signals import RunSignals
from pennon.pipeline.task_records import add_counters
from pennon.tables.snapshots import Snapshot, bases_of
from pennon.views.function_views import check_index
from pennon.views.model.definition import SOURCE_ROW

if TYPE_CHECKING:
    from lance import LanceDataset

    from pennon.core.job_model import RefreshSpec
    from pennon.pipeline.cluster.session import Session
    from pennon.pipeline.cluster.tasks import TaskRun
    from pennon.pipeline.environments.environment import DeployedEnvironment
    from pennon.pipeline.refresh.job import Refresh
    from pennon.pipeline.refresh.task_result import NewFragment, RefreshTaskResult, SourceError
    from pennon.pipeline.task_records import TaskAnswer
    from pennon.views.refresh.plan import PlannedRefresh

#: Hidden columns of a view, and the expressions that compute them.
_HIDDEN = {SOURCE_ROW: "_rowid", "__is_set": "true"}
#: A task has at least this many rows if no function computes them. An estimate, not measured.
_LEAST_ROWS = 50_000
#: This many errors become events of the job; all are recorded with the view.
_MOST_EVENTS = 20


@dataclass
class RefreshOutput:
    """What the tasks of a refresh have written."""

    fragments: list[NewFragment] = field(default_factory=list)
    #: The source rows of those rows that the view may have had before.
    known: list[Ids] = field(default_factory=list)
    failed: int = 0
    #: The errors of functions, each with the first column that its function computes.
    errors: list[tuple[str, ColumnError]] = field(default_factory=list)
    trimmed_to: int | None = None
    counts: Counts = field(default_factory=Counts)

    @property
    def rows(self) -> int:
        """The number of rows that were written."""
        return sum(fragment["rows"] for fragment in self.fragments)


class Computation:
    """Computes the rows of one refresh."""

    def __init__(self, refresh: Refresh, plan: PlannedRefresh, spec: RefreshSpec, run: str) -> None:
        self._refresh = refresh
        self._services = refresh.services
        self._lease = refresh.lease
        self._plan = plan
        self._spec = spec
        self._run = run
        self._folder = self._services.storage_root.folder(plan.table.location)
        self._view: LanceDataset = self._services.datasets.at(plan.table, "", None)
        self._contents = {reference: read_function(self._folder, reference) for reference in self._references()}

    def run(self) -> RefreshOutput:
        """Compute rows, and return what was written."""
        with borrow_session(self._services, self._lease, self._spec.get("cluster"), self._image()) as base_session:
            self._refresh.phase = "environment"
            with prepare_environment(base_session, self._manifest(), self._services.settings, self._lease) as (
                session,
                deployed,
            ):
                self._refresh.phase = "compute"
                signals = RunSignals(self._folder, SIGNALS, self._run)
                signals.remove_expired()
                signals.start()
                try:
                    computed = self._compute(session, deployed, signals)
                finally:
                    signals.clear()
        self._check_budget(computed)
        limit = self._spec.get("output_limit")
        if limit is not None and computed.rows > limit:
            computed.fragments = limit_rows(computed.fragments, limit, self._target(), self._run)
            computed.trimmed_to = limit
        return computed

    def _compute(self, session: Session, deployed: DeployedEnvironment, signals: RunSignals) -> RefreshOutput:
        definition = self._plan.definition
        computed = RefreshOutput()
        if definition.engine == "spark":
            self._collect(computed, self._wait(self._start_statement(session), signals))
            return computed
        is_udtf = definition.kind == "udtf"
        whole = self._partition_task(session) if is_udtf else self._row_task(session)
        if not whole.groups:
            return computed
        # The resources of the view's expansion override those that the functions declare.
        options = [read_envelope(content).options for content in self._contents.values()]
        resources = TaskResources.of([definition.expansion] if definition.expansion is not None else options)
        at_once = resources.tasks_at_once(session, self._spec.get("concurrency") or len(whole.groups))
        group, profile = self._lease.job.id, resources.profile(session)
        self._refresh.phase = "preflight"
        preflight = Preflight(self._lease, session, deployed, profile)
        preflight.run(whole.with_groups(0, 1), self._references(), self._plan.table.name)
        self._refresh.phase = "compute"
        for start in range(0, len(whole.groups), at_once):
            task = whole.with_groups(start, start + at_once)
            run = run_tasks(session, task, len(task.groups), group=group, environment=deployed, profile=profile)
            self._collect(computed, self._wait(run, signals))
        return computed

    def _wait(self, run: TaskRun[TaskAnswer[RefreshTaskResult]], signals: RunSignals) -> list[RefreshTaskResult]:
        """Wait for tasks, and return their results; abort the job if one failed."""
        done = self._lease.counters.get("rows_computed", 0)

        def poll() -> None:
            status = signals.poll()
            self._lease.counters["rows_computed"] = done + status.rows
            raise_task_failure("compute", status.failure)

        wait(run, self._lease, poll, signals.stop)
        answers = run.results()
        for answer in answers:
            raise_task_failure("compute", answer["failure"])
        self._lease.counters["rows_computed"] = done
        return [answer["result"] for answer in answers if answer["result"] is not None]

    def _collect(self, computed: RefreshOutput, results: list[RefreshTaskResult]) -> None:
        for result in results:
            computed.fragments += result["fragments"]
            computed.known.append(unpack_ids(result["known"]))
            computed.failed += result["counters"]["rows_failed"]
            add_counters(self._lease.counters, result["counters"])
        errors = [error for result in results for error in result["errors"]]
        uses = self._plan.definition.uses()
        functions = {use.columns[0]: read_envelope(self._contents[use.reference]) for use in uses}
        for error in errors:
            self._collect_error(computed, functions[error["column"]], error)

    def _collect_error(self, computed: RefreshOutput, function: Envelope, error: SourceError) -> None:
        row, partition = error["row"], error["partition"]
        if len(computed.errors) < _MOST_EVENTS:
            where: dict[str, object] = {"source_row_id": row} if partition is None else {"partition": partition}
            data = {**where, "type": error["error_type"], "message": error["error_message"]}
            self._lease.add_event("row_failed", data, self._plan.table.name)
        found = ColumnError(
            job_id=self._lease.job.id,
            fragment_id=SOURCE,
            row_offset=len(computed.errors) if row is None else row,
            row_id=row,
            function=function.name,
            function_version=function.version,
            table_version=self._plan.reads[0].dataset.version,
            error_type=error["error_type"],
            error_message=error["error_message"],
            attempt=error["attempt"],
            created_at=now_millis(),
            partition=partition,
        )
        computed.errors.append((error["column"], found))

    def _check_budget(self, computed: RefreshOutput) -> None:
        policies = [read_envelope(content).error_policy for content in self._contents.values()]
        if any(policy.exceeded(computed.failed, self._plan.rows) for policy in policies or [ErrorPolicy()]):
            raise JobAbortedError(
                "compute",
                "ErrorBudgetExceeded",
                f"{computed.failed} of {self._plan.rows} rows failed, more than the function's error policy allows.",
            )

    # The tasks.

    def _row_task(self, session: Session) -> RowRefreshTask:
        read = self._plan.reads[0]
        projection = self._projection()
        count = task_count(session, self._spec.get("concurrency"))
        rows = self._plan.rows
        if not self._contents:
            count = min(count, -(-rows // _LEAST_ROWS))
        if projection.limit is not None or projection.offset is not None:
            groups: tuple[tuple[WorkItem, ...], ...] = ((FragmentRange(-1, 0, 0, is_whole=True),),)
        else:
            most = self._spec.get("source_task_size") or max(-(-rows // max(count, 1)), 1)
            if self._plan.mode == "incremental":
                items = changed_items(read.dataset, self._plan.changes, most)
            else:
                items = [item for fragment in read.dataset.get_fragments() for item in split_fragment(fragment, most)]
            groups = split_work(items, max(count, 1))
        return RowRefreshTask(
            self._source(),
            self._target(),
            projection,
            self._limits(),
            self._run,
            self._spec.get("max_rows_per_fragment"),
            groups,
        )

    def _start_statement(self, session: Session) -> TaskRun[TaskAnswer[RefreshTaskResult]]:
        from pennon.pipeline.refresh.sql_task import WriteRows, start_statement

        target, run, most_rows = self._target(), self._run, self._spec.get("max_rows_per_fragment")
        known = self._plan.changes.changed if self._plan.mode == "incremental" else None
        return start_statement(
            session,
            self._plan,
            self._services.storage_root.options,
            lambda names: WriteRows(target, names, run, most_rows, known),
            self._lease.job.id,
        )

    def _projection(self) -> Projection:
        definition, schema = self._plan.definition, self._view.schema
        hidden = [(name, expression) for name, expression in _HIDDEN.items() if name in schema.names]
        columns = [(column.name, column.expression) for column in definition.columns]
        functions = tuple(
            ColumnWork(
                function.inputs,
                tuple(TargetColumn(name, name, struct_field) for name, struct_field in function.outputs),
                self._contents[function.reference],
            )
            for function in definition.functions
        )
        expansion = definition.expansion
        chunker = None
        if expansion is not None:
            chunker = Chunker(self._contents[expansion.reference], expansion.inputs or (), expansion.outputs)
        return Projection(
            (*hidden, *columns), definition.where, functions, chunker, definition.limit, definition.offset
        )

    def _partition_task(self, session: Session) -> PartitionTask:
        definition = self._plan.definition
        expansion = definition.expansion
        assert expansion is not None  # noqa: S101 (a table function has one)
        if (
            expansion.partition_by_indexed_column is not None
        ):  # the column may have lost its index since the view was created
            check_index(self._plan.reads[0].dataset, expansion.partition_by_indexed_column)
        is_partitioned = expansion.partition_by is not None or expansion.partition_by_indexed_column is not None
        count = task_count(session, self._spec.get("concurrency")) if is_partitioned else 1
        return PartitionTask(
            source=self._source(),
            target=self._target(),
            definition=definition,
            function=self._contents[expansion.reference],
            limits=self._limits(),
            run=self._run,
            most_rows=self._spec.get("max_rows_per_fragment"),
            buckets=count,
            groups=tuple(range(count)),
        )

    def _references(self) -> list[str]:
        return [use.reference for use in self._plan.definition.uses()]

    def _manifest(self) -> str | None:
        """Return the environment manifest, which all functions must share."""
        requested = self._spec.get("manifest")
        if requested:
            return str(requested)
        definition = self._plan.definition
        found = {function.manifest for function in definition.functions if function.manifest}
        if definition.expansion is not None and definition.expansion.manifest:
            found.add(definition.expansion.manifest)
        if len(found) > 1:
            raise JobAbortedError(
                "environment",
                "ManifestError",
                "The functions of the view need different environments; refresh it with one 'manifest' for all.",
            )
        return found.pop() if found else None

    def _image(self) -> str | None:
        """Return the image of the executors, which all functions must share."""
        found = {image for content in self._contents.values() if (image := read_envelope(content).options.image)}
        if len(found) > 1:
            images = ", ".join(sorted(found))
            raise JobAbortedError(
                "environment", "ImageError", f"The functions of the view need different images: {images}."
            )
        return found.pop() if found else None

    def _source(self) -> Snapshot:
        read = self._plan.reads[0]
        options = self._services.storage_root.options
        return Snapshot(read.table.location, options, "", read.dataset.version, bases_of(read.dataset))

    def _target(self) -> Snapshot:
        return Snapshot(self._plan.table.location, self._services.storage_root.options, "", self._view.version)

    def _limits(self) -> BatchLimits:
        settings = self._services.settings
        return BatchLimits(
            batch_rows=settings.backfill_batch_rows,
            batch_bytes=settings.backfill_batch_bytes,
            threads=self._spec.get("intra_applier_concurrency") or 1,
        )
