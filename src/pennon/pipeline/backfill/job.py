"""The driver of a backfill: plan, compute on Spark, commit finished fragments, and repeat until nothing is left."""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from lance_namespace.errors import TableNotFoundError, TableVersionNotFoundError

from pennon.catalog import tables
from pennon.columns.declarations import read_function
from pennon.columns.feature_columns import FeatureColumn, find_feature_column
from pennon.columns.plan import BackfillMode, plan_backfill, summarize_column, unchanged_since
from pennon.columns.row_spans import count_rows
from pennon.core.identifiers import format_identifier
from pennon.core.job_model import BackfillResult, BackfillSpec
from pennon.jobs.errors import LeaseLostError, StopRequestedError
from pennon.pipeline.backfill.checkpoints import Checkpoints, checkpoint_path
from pennon.pipeline.backfill.commit_monitor import CommitMonitor
from pennon.pipeline.backfill.commits import BackfillCommitter, FunctionChangedError
from pennon.pipeline.backfill.plan_run import PlanRun
from pennon.pipeline.backfill.task import BackfillTask
from pennon.pipeline.backfill.task_pool import TaskPool
from pennon.pipeline.batch_sizer import BatchLimits
from pennon.pipeline.cluster.driver import borrow_session, prepare_environment
from pennon.pipeline.column_work import ColumnWork, TargetColumn
from pennon.pipeline.environments.preflight import Preflight
from pennon.pipeline.job_failure import JobAbortedError
from pennon.pipeline.job_pins import JobPins
from pennon.pipeline.worker.lease import Lease, ShuttingDownError
from pennon.storage.layout import branch_folder
from pennon.tables.snapshots import Snapshot, bases_of

if TYPE_CHECKING:
    from lance import LanceDataset

    from pennon.catalog.tables import Table
    from pennon.pipeline.backfill.commits import FinishedUnit
    from pennon.pipeline.cluster.session import Session
    from pennon.pipeline.environments.environment import DeployedEnvironment
    from pennon.pipeline.worker.worker_services import WorkerServices

logger = logging.getLogger("pennon.worker")

#: How many plans a job runs for rows that were added or changed while it computed others. Not measured.
_MOST_PLANS = 5
#: How often opening the newest version is retried when clean-ups remove it.
_OPEN_ATTEMPTS = 5


class Backfill:
    """One backfill job."""

    def __init__(self, services: WorkerServices, lease: Lease) -> None:
        self._services = services
        self._lease = lease
        self._job = lease.job
        self._spec = lease.job.backfill_spec
        self.phase = "plan"
        self._published: int | None = None

    def run(self) -> BackfillResult:
        """Fill the column, and first, on request, those that it depends on; return the job's result."""
        table = self._table()
        self._pins = JobPins(self._services.storage_root.folder(table.location), self._job)
        try:
            result = self._run(table)
        except LeaseLostError:
            raise  # the pins belong to the worker that has the job now
        except BaseException:
            self._pins.release()
            raise
        self._pins.release()
        return result

    def _run(self, table: Table) -> BackfillResult:
        self._lease.add(rows_computed=0)
        self._published = self._lease.restore_counters()
        try:
            for path in [*self._spec.get("before", []), self._spec["column"]]:
                self._fill(table, path, is_own=path == self._spec["column"])
            return self._result(table)
        except (LeaseLostError, StopRequestedError, ShuttingDownError):
            raise
        except Exception:
            # If the table or its branch was dropped, these errors say so more clearly than one about missing files.
            self._services.datasets.newest(self._table(), self._job.branch)
            raise

    def _fill(self, table: Table, path: str, *, is_own: bool) -> None:
        pinned = self._spec.get("read_version") if is_own else None
        once = pinned is not None or (is_own and self._spec.get("num_frags") is not None)
        for number in range(1 if once else _MOST_PLANS):
            self._lease.check()
            self.phase = "plan"
            plan_run = self._plan(table, path, pinned, is_own=is_own)
            self._report_plan(plan_run, path)
            if not plan_run.plan.units:
                break
            if number == 0:
                self._remove_earlier(plan_run.checkpoints, is_own=is_own)
            try:
                self._compute(plan_run)
            except FunctionChangedError:
                logger.info("the function of %s changed during job %s; planning again", path, self._job.id)
                plan_run.checkpoints.clear()
                continue
            if plan_run.is_complete(self._services.datasets.newest(table, self._job.branch).version):
                break
        else:
            self._services.queue.add_event(self._job, "rows_remain", path)
        if not once:
            plan_run.checkpoints.clear()

    def _plan(self, table: Table, path: str, pinned: int | None, *, is_own: bool) -> PlanRun:
        spec = self._spec if is_own else BackfillSpec()
        dataset = self._open_pinned(table, pinned)
        column = find_feature_column(dataset, path)
        states = self._services.column_state_store.read(dataset, table, self._job.branch, column)
        self._services.column_state_store.confirm(dataset, table, self._job.branch, column, states)
        if pinned is not None:  # it selects the rows; their states are those of the newest version
            states = unchanged_since(
                self._services.datasets.at(table, self._job.branch, pinned), dataset, states, column
            )
        mode = BackfillMode(spec.get("mode", BackfillMode.DEFAULT))
        plan = plan_backfill(
            dataset,
            states,
            column,
            mode=mode,
            where=spec.get("where"),
            before=self._first_version(path, dataset.version)
            if mode in (BackfillMode.ALL, BackfillMode.ONLY_FAILED)
            else None,
            max_fragments=spec.get("num_frags"),
        )
        where = checkpoint_path(column.output.key, column.digest, self._job.branch)
        files = self._services.storage_root.folder(table.location)
        open_committer = partial(BackfillCommitter, self._services, self._lease, table, column, dataset, states)
        source_options = self._services.storage_root.options
        source = Snapshot(table.location, source_options, self._job.branch, dataset.version, bases_of(dataset))
        task = BackfillTask(source, self._work(table, column), self._limits(), where, plan.units)
        checkpoints = Checkpoints(files, where)
        return PlanRun(column, plan, checkpoints, open_committer, task, task.signals(files), task.queue(files))

    def _open_pinned(self, table: Table, pinned: int | None) -> LanceDataset:
        """Open the newest version, and pin it and the one that the job names."""
        also = () if pinned is None else (pinned,)
        self._pins.hold(*also)
        for _ in range(_OPEN_ATTEMPTS):
            dataset = self._services.datasets.at(table, self._job.branch, None)
            with suppress(TableVersionNotFoundError):  # cleaned up since it was opened
                self._pins.hold(dataset.version, *also)
                return dataset
        message = f"Clean-ups removed the newest version of the table before it was pinned, {_OPEN_ATTEMPTS} times."
        raise JobAbortedError("plan", "Overtaken", message, retryable=True)

    def _first_version(self, path: str, version: int) -> int:
        """Return the version of the job's first plan: it has computed itself what is newer.

        This is not the version it was submitted at: the job that it waited for may have computed rows since then.
        """
        plans = [
            event.data for event in self._services.queue.events_of_kind(self._job, "planned") if event.unit == path
        ]
        return int(plans[0]["version"]) if plans else version

    def _remove_earlier(self, checkpoints: Checkpoints, *, is_own: bool) -> None:
        """Remove the checkpoints of earlier jobs that this one must not reuse."""
        is_first = self._job.attempt == 1
        if is_own and is_first and self._spec.get("mode") == BackfillMode.ALL and self._job.retry_of is None:
            checkpoints.clear()
            return
        # A job retries rows that failed in an earlier job, but not those that failed in its own earlier attempts.
        checkpoints.remove_unusable(f"{branch_folder(self._job.branch)}data", errors=is_first)

    def _report_plan(self, plan_run: PlanRun, path: str) -> None:
        plan, counters = plan_run.plan, self._lease.counters
        # What an earlier worker, plan or column committed counts, so that progress never decreases.
        counters["rows_planned"] = self._lease.rows_done + plan.rows
        counters["fragments_planned"] = counters.get("fragments_committed", 0) + len(plan.units)
        data = {"version": plan.version, "rows": plan.rows, "fragments": len(plan.units), "bytes": plan.bytes}
        self._services.queue.add_event(self._job, "planned", path, data)

    def _work(self, table: Table, column: FeatureColumn) -> ColumnWork:
        targets = tuple(TargetColumn(output.path, output.root, output.struct_field) for output in column.outputs)
        function = None
        if column.reference is not None:
            function = read_function(self._services.storage_root.folder(table.location), column.reference)
        return ColumnWork(column.inputs, targets, function, column.expression)

    def _limits(self) -> BatchLimits:
        spec, defaults = self._spec, BatchLimits()
        fixed = spec.get("checkpoint_size")
        interval = spec.get("batch_checkpoint_flush_interval_seconds")
        settings = self._services.settings
        is_local = self._services.storage_root.root.is_local
        return BatchLimits(
            batch_rows=settings.backfill_batch_rows,
            batch_bytes=settings.backfill_batch_bytes,
            checkpoint_seconds=interval
            if interval is not None
            else (settings.checkpoint_seconds if is_local else settings.remote_checkpoint_seconds),
            least_checkpoint_rows=fixed or spec.get("min_checkpoint_size") or defaults.least_checkpoint_rows,
            most_checkpoint_rows=fixed or spec.get("max_checkpoint_size") or defaults.most_checkpoint_rows,
            threads=spec.get("intra_applier_concurrency") or 1,
        )

    def _compute(self, plan_run: PlanRun) -> None:
        committer = plan_run.open_committer()
        column = plan_run.column
        manifest = self._spec.get("manifest") or column.manifest
        with borrow_session(self._services, self._lease, self._spec.get("cluster"), column.image) as base_session:
            if manifest:
                self.phase = "environment"
            with prepare_environment(base_session, manifest, self._services.settings, self._lease) as (
                session,
                environment,
            ):
                self._preflight(session, environment, plan_run)
                self.phase = "compute"
                self._run_tasks(session, environment, plan_run, committer)

    def _preflight(self, session: Session, environment: DeployedEnvironment, plan_run: PlanRun) -> None:
        """Test the function on an executor."""
        if plan_run.task.work.function is None:
            return
        self.phase = "preflight"
        preflight = Preflight(self._lease, session, environment, plan_run.resources.profile(session))
        first = replace(plan_run.task, units=plan_run.plan.units[:1])
        preflight.run(first, [plan_run.column.reference or ""], plan_run.column.path)

    def _run_tasks(
        self, session: Session, environment: DeployedEnvironment, plan_run: PlanRun, committer: BackfillCommitter
    ) -> None:
        monitor = CommitMonitor(self._lease, plan_run, partial(self._commit, plan_run, committer))
        TaskPool(self._lease, session, environment, plan_run, monitor).run()
        for unit in plan_run.plan.units:
            plan_run.checkpoints.remove_receipt(unit.input_signature)

    def _commit(self, plan_run: PlanRun, committer: BackfillCommitter, units: list[FinishedUnit]) -> None:
        """Commit fragments whose files are written."""
        before, self.phase = self.phase, "commit"
        began = time.perf_counter()
        done = committer.commit(units)
        self._lease.add(commit_seconds=time.perf_counter() - began)
        for unit, receipt in units:
            if unit not in done.units:
                plan_run.checkpoints.remove_receipt(unit.input_signature)
                continue
            failed = count_rows(receipt["failed"])
            self._lease.add(rows_committed=unit.count - failed, rows_failed=failed, fragments_committed=1)
            # Its receipt stays, so that a task that starts late, or again, skips the fragment.
            plan_run.checkpoints.remove_parts(unit.input_signature)
        plan_run.committed += len(done.units)
        if done.version is not None:
            self._published = done.version
            plan_run.commits += 1
        self.phase = before

    def _result(self, table: Table) -> BackfillResult:
        dataset = self._services.datasets.at(table, self._job.branch, None)
        column = find_feature_column(dataset, self._spec["column"])
        state = summarize_column(
            dataset, self._services.column_state_store.read(dataset, table, self._job.branch, column), column
        )
        counters = self._lease.counters
        self._lease.counters["rows_skipped"] = max(state.rows - int(counters.get("rows_planned", 0)), 0)
        return {
            "rows_assigned": int(counters.get("rows_committed", 0)),
            "rows_computed": int(counters.get("rows_computed", 0)),
            "rows_failed": int(counters.get("rows_failed", 0)),
            "rows_skipped": int(self._lease.counters["rows_skipped"]),
            "rows_remaining": state.incomplete,
            "source_version": self._spec.get("read_version") or self._spec.get("since"),
            "published_version": self._published,
            "granularity": state.granularity,
        }

    def _table(self) -> Table:
        found = self._services.database.read(lambda connection: tables.find_by_id(connection, self._job.table_id))
        if found is None:
            raise TableNotFoundError(f"The table {format_identifier(self._job.object)!r} was dropped.")
        return found
