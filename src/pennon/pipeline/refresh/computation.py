"""Computing what a refresh needs, on Spark: in tasks that go row by row, partition by partition, or by a statement."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pennon.catalog.column_errors import SOURCE, ColumnError
from pennon.columns.declarations import read_function
from pennon.core.clock import now_millis
from pennon.functions.envelope import Envelope, read_envelope
from pennon.functions.error_policy import ErrorPolicy
from pennon.pipeline.backfill.fragment import Sizes, Target
from pennon.pipeline.backfill.plan_run import JobFailedError
from pennon.pipeline.backfill.task import Work
from pennon.pipeline.cluster.driver import lend, prepared, task_count, wait
from pennon.pipeline.cluster.resources import Needs
from pennon.pipeline.cluster.tasks import run_tasks
from pennon.pipeline.environments.preflight import Preflight
from pennon.pipeline.refresh.counts import Counts, Ids, unpack_ids
from pennon.pipeline.refresh.fragments import NewFragment
from pennon.pipeline.refresh.output_limit import trim
from pennon.pipeline.refresh.partition_task import PartitionTask
from pennon.pipeline.refresh.row_task import Derivation, Recipe
from pennon.pipeline.refresh.run_signals import Notices
from pennon.pipeline.refresh.work_split import Item, Slice, changed_items, share, slices
from pennon.tables.snapshots import Snapshot, bases_of
from pennon.views.function_views import check_index
from pennon.views.model.definition import SOURCE_ROW

if TYPE_CHECKING:
    from pennon.pipeline.cluster.session import Session
    from pennon.pipeline.cluster.tasks import TaskRun
    from pennon.pipeline.environments.environment import Shipped
    from pennon.pipeline.refresh.job import Refresh
    from pennon.views.refresh.plan import RefreshPlan

#: Hidden columns that hold what Lance says of a row, or always the same.
_HIDDEN = {SOURCE_ROW: "_rowid", "__is_set": "true"}
#: A task is worth starting for so many rows that need no function.
_LEAST_ROWS = 50_000
#: So many errors are events of the job; all are recorded with the view.
_MOST_EVENTS = 20


@dataclass
class Computed:
    """What the tasks of a refresh came to."""

    fragments: list[NewFragment] = field(default_factory=list)
    #: The source rows of those rows that may have been in the view before.
    known: list[Ids] = field(default_factory=list)
    failed: int = 0
    #: What functions failed on, each with the first column that its function makes.
    errors: list[tuple[str, ColumnError]] = field(default_factory=list)
    trimmed_to: int | None = None
    counts: Counts = field(default_factory=Counts)

    @property
    def rows(self) -> int:
        """How many rows were written."""
        return sum(fragment.rows for fragment in self.fragments)


class Computation:
    """The computing part of one refresh."""

    def __init__(self, refresh: Refresh, plan: RefreshPlan, spec: dict[str, Any], run: str) -> None:
        self._refresh = refresh
        self._services = refresh.services
        self._lease = refresh.lease
        self._plan = plan
        self._spec = spec
        self._run = run
        self._folder = self._services.storage_root.folder(plan.table.location)
        self._view: Any = self._services.datasets.at(plan.table, "", None)
        self._contents = {reference: read_function(self._folder, reference) for reference in self._references()}

    def run(self) -> Computed:
        """Compute, and return what was written."""
        with lend(self._services, self._lease, self._spec.get("cluster"), self._image()) as lent:
            self._refresh.phase = "environment"
            with prepared(lent, self._manifest(), self._services.settings, self._lease) as (session, shipped):
                self._refresh.phase = "compute"
                notices = Notices(self._folder, self._run)
                notices.forget_old()
                notices.begin()
                try:
                    computed = self._compute(session, shipped, notices)
                finally:
                    notices.clear()
        self._check_budget(computed)
        limit = self._spec.get("output_limit")
        if limit is not None and computed.rows > limit:
            computed.fragments = trim(computed.fragments, limit, self._target(), self._run)
            computed.trimmed_to = limit
        return computed

    def _compute(self, session: Session, shipped: Shipped, notices: Notices) -> Computed:
        definition = self._plan.definition
        computed = Computed()
        if definition.engine == "spark":
            self._collect(computed, self._answers(self._statement(session), notices))
            return computed
        tasks: Any = self._partitions(session) if definition.kind == "udtf" else self._derivations(session)
        if not tasks.groups:
            return computed
        # As the view was asked for, else as the authors of its functions said.
        options = [read_envelope(content).options for content in self._contents.values()]
        needs = Needs.of([definition.expansion] if definition.expansion is not None else options)
        at_once = needs.tasks_at_once(session, self._spec.get("concurrency") or len(tasks.groups))
        group, profile = self._lease.job.id, needs.profile(session)
        self._refresh.phase = "preflight"
        preflight = Preflight(self._services, self._lease, session, shipped, profile)
        preflight.fly(replace(tasks, groups=tasks.groups[:1]), self._references(), self._plan.table.name)
        self._refresh.phase = "compute"
        for start in range(0, len(tasks.groups), at_once):
            task = replace(tasks, groups=tasks.groups[start : start + at_once])
            run = run_tasks(session, task, len(task.groups), group=group, environment=shipped, profile=profile)
            self._collect(computed, self._answers(run, notices))
        return computed

    def _answers(self, run: TaskRun, notices: Notices) -> list[dict[str, Any]]:
        """Wait for tasks, and return what they answer."""
        done = self._lease.counters.get("rows_computed", 0)

        def look() -> None:
            rows, failure = notices.read()
            self._lease.counters["rows_computed"] = done + rows
            if failure is not None:
                raise JobFailedError("compute", failure["type"], failure["message"])

        wait(run, self._lease, look, notices.stop)
        answers = run.results()
        for answer in answers:
            if "failure" in answer:
                raise JobFailedError("compute", answer["failure"]["type"], answer["failure"]["message"])
        self._lease.counters["rows_computed"] = done
        return answers

    def _collect(self, computed: Computed, answers: list[dict[str, Any]]) -> None:
        counters = self._lease.counters
        for answer in answers:
            computed.fragments += [NewFragment(**fragment) for fragment in answer["fragments"]]
            computed.known.append(unpack_ids(answer["known"]))
            told = answer["counters"]
            computed.failed += int(told["rows_failed"])
            peak = told.pop("peak_memory_bytes", 0)
            counters["peak_memory_bytes"] = max(counters.get("peak_memory_bytes", 0), peak)
            self._lease.add(**told)
        errors = [error for answer in answers for error in answer["errors"]]
        uses = self._plan.definition.uses()
        functions = {use.columns[0]: read_envelope(self._contents[use.reference]) for use in uses}
        for error in errors:
            self._collect_error(computed, functions[error["column"]], **error)

    def _collect_error(
        self, computed: Computed, function: Envelope, column: str, row: int | None, partition: str | None, **error: Any
    ) -> None:
        if len(computed.errors) < _MOST_EVENTS:
            where = {"source_row_id": row} if partition is None else {"partition": partition}
            data = {**where, "type": error["error_type"], "message": error["error_message"]}
            self._services.queue.note(self._lease.job, "row_failed", self._plan.table.name, data)
        found = ColumnError(
            job_id=self._lease.job.id,
            fragment_id=SOURCE,
            row_offset=len(computed.errors) if row is None else row,
            row_id=row,
            function=function.name,
            function_version=function.version,
            table_version=self._plan.reads[0].dataset.version,
            created_at=now_millis(),
            partition=partition,
            **error,
        )
        computed.errors.append((column, found))

    def _check_budget(self, computed: Computed) -> None:
        policies = [read_envelope(content).error_policy for content in self._contents.values()]
        if any(policy.exceeded(computed.failed, self._plan.rows) for policy in policies or [ErrorPolicy()]):
            raise JobFailedError(
                "compute",
                "ErrorBudgetExceeded",
                f"{computed.failed} of {self._plan.rows} rows failed, more than the function's error policy allows.",
            )

    # What the tasks are.

    def _derivations(self, session: Session) -> Derivation:
        read = self._plan.reads[0]
        recipe = self._recipe()
        count = task_count(session, self._spec.get("concurrency"))
        rows = self._plan.rows
        if not self._contents:
            count = min(count, -(-rows // _LEAST_ROWS))
        if recipe.limit is not None or recipe.offset is not None:
            groups: tuple[tuple[Item, ...], ...] = ((Slice(-1, 0, 0, whole=True),),)
        else:
            most = self._spec.get("source_task_size") or max(-(-rows // max(count, 1)), 1)
            if self._plan.mode == "incremental":
                items = changed_items(read.dataset, self._plan.changes, most)
            else:
                items = [item for fragment in read.dataset.get_fragments() for item in slices(fragment, most)]
            groups = share(items, max(count, 1))
        return Derivation(self._source(), self._target(), recipe, self._sizes(), self._run, self._most_rows(), groups)

    def _statement(self, session: Session) -> TaskRun:
        from pennon.pipeline.refresh.sql_task import WriteRows, start_statement

        target, run, most_rows = self._target(), self._run, self._most_rows()
        known = self._plan.changes.changed if self._plan.mode == "incremental" else None
        return start_statement(
            session,
            self._plan,
            self._services.storage_root.options,
            lambda names: WriteRows(target, names, run, most_rows, known),
            self._lease.job.id,
        )

    def _recipe(self) -> Recipe:
        definition, schema = self._plan.definition, self._view.schema
        hidden = [(name, expression) for name, expression in _HIDDEN.items() if name in schema.names]
        columns = [(column.name, column.expression) for column in definition.columns]
        functions = tuple(
            Work(
                function.inputs,
                tuple(Target(name, name, struct_field) for name, struct_field in function.outputs),
                self._contents[function.reference],
            )
            for function in definition.functions
        )
        expansion = definition.expansion
        chunker = None
        if expansion is not None:
            chunker = (self._contents[expansion.reference], expansion.inputs or (), expansion.outputs)
        return Recipe((*hidden, *columns), definition.where, functions, chunker, definition.limit, definition.offset)

    def _partitions(self, session: Session) -> PartitionTask:
        definition = self._plan.definition
        expansion = definition.expansion
        assert expansion is not None  # noqa: S101 - a table function has one
        if expansion.partition_by_indexed_column is not None:  # it may have lost its index since the view was made
            check_index(self._plan.reads[0].dataset, expansion.partition_by_indexed_column)
        parallel = expansion.partition_by is not None or expansion.partition_by_indexed_column is not None
        count = task_count(session, self._spec.get("concurrency")) if parallel else 1
        return PartitionTask(
            source=self._source(),
            target=self._target(),
            definition=definition,
            function=self._contents[expansion.reference],
            sizes=self._sizes(),
            run=self._run,
            most_rows=self._most_rows(),
            buckets=count,
            groups=tuple(range(count)),
        )

    def _references(self) -> list[str]:
        return [use.reference for use in self._plan.definition.uses()]

    def _manifest(self) -> str | None:
        """Return what the functions need to be installed; several have to need the same."""
        asked = self._spec.get("manifest")
        if asked:
            return str(asked)
        definition = self._plan.definition
        found = {function.manifest for function in definition.functions if function.manifest}
        if definition.expansion is not None and definition.expansion.manifest:
            found.add(definition.expansion.manifest)
        if len(found) > 1:
            raise JobFailedError(
                "environment",
                "ManifestError",
                "The functions of the view ask for different environments; refresh it with one 'manifest' for all.",
            )
        return found.pop() if found else None

    def _image(self) -> str | None:
        """Return of which image executors are to be; several functions have to ask for the same."""
        found = {image for content in self._contents.values() if (image := read_envelope(content).options.image)}
        if len(found) > 1:
            told = ", ".join(sorted(found))
            raise JobFailedError(
                "environment", "ImageError", f"The functions of the view ask for several images: {told}."
            )
        return found.pop() if found else None

    def _source(self) -> Snapshot:
        read = self._plan.reads[0]
        options = self._services.storage_root.options
        return Snapshot(read.table.location, options, "", read.dataset.version, bases_of(read.dataset))

    def _target(self) -> Snapshot:
        return Snapshot(self._plan.table.location, self._services.storage_root.options, "", self._view.version)

    def _sizes(self) -> Sizes:
        settings = self._services.settings
        return Sizes(
            batch_rows=settings.backfill_batch_rows,
            batch_bytes=settings.backfill_batch_bytes,
            threads=self._spec.get("intra_applier_concurrency") or 1,
        )

    def _most_rows(self) -> int | None:
        most: int | None = self._spec.get("max_rows_per_fragment")
        return most
