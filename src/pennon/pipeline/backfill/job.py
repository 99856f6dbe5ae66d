"""The driver of a backfill: plan, let Spark compute, commit what is finished, until nothing is left."""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from lance_namespace.errors import TableNotFoundError, TableVersionNotFoundError

from pennon.catalog import tables
from pennon.columns.declarations import read_function
from pennon.columns.feature_columns import FeatureColumn, find_feature_column
from pennon.columns.plan import Mode, Unit, known_to, plan_units, summarise
from pennon.columns.row_spans import count_rows
from pennon.core.identifiers import format_identifier
from pennon.jobs.queue import LeaseLostError, StopRequestedError
from pennon.pipeline.backfill.checkpoints import Checkpoints, checkpoint_path
from pennon.pipeline.backfill.commit_monitor import Watch
from pennon.pipeline.backfill.commits import FillCommitter, FunctionChangedError
from pennon.pipeline.backfill.fragment import Sizes, Target
from pennon.pipeline.backfill.plan_run import JobFailedError, Round, group_units
from pennon.pipeline.backfill.task import FillTask, Work
from pennon.pipeline.cluster.driver import lend, prepared, task_count, wait
from pennon.pipeline.cluster.tasks import TaskError, run_tasks
from pennon.pipeline.environments.preflight import Preflight
from pennon.pipeline.job_pins import JobPins
from pennon.pipeline.worker.lease import Lease, ShuttingDownError
from pennon.storage.layout import branch_folder
from pennon.tables.snapshots import Snapshot, bases_of

if TYPE_CHECKING:
    from pennon.catalog.tables import Table
    from pennon.pipeline.cluster.session import Session
    from pennon.pipeline.environments.environment import Shipped
    from pennon.pipeline.worker.worker_services import WorkerServices

logger = logging.getLogger("pennon.worker")

#: So often is planned anew for rows that came or changed while others were computed.
_ROUNDS = 5


class Backfill:
    """One backfill job."""

    def __init__(self, services: WorkerServices, lease: Lease) -> None:
        self._services = services
        self._lease = lease
        self._job = lease.job
        self._spec: dict[str, Any] = lease.job.spec
        self.phase = "plan"
        self._published: int | None = None

    def run(self) -> dict[str, Any]:
        """Fill the column, and before it, if so asked, those it depends on; return the job's result."""
        table = self._table()
        self._pins = JobPins(self._services.storage_root.folder(table.location), self._job)
        try:
            result = self._run(table)
        except LeaseLostError:
            raise  # the worker that has the job now sees to its pins
        except BaseException:
            self._pins.release()
            raise
        self._pins.release()
        return result

    def _run(self, table: Table) -> dict[str, Any]:
        self._lease.add(rows_computed=0)
        self._published = self._lease.recall()
        try:
            for path in [*self._spec.get("before", []), self._spec["column"]]:
                self._fill(table, path, is_own=path == self._spec["column"])
            return self._result(table)
        except (LeaseLostError, StopRequestedError, ShuttingDownError):
            raise
        except Exception:
            # Where it was dropped, or its branch deleted, these say so better than whoever missed their files.
            self._services.datasets.newest(self._table(), self._job.branch)
            raise

    def _fill(self, table: Table, path: str, *, is_own: bool) -> None:
        pinned = self._spec.get("read_version") if is_own else None
        once = pinned is not None or (is_own and self._spec.get("num_frags") is not None)
        for number in range(1 if once else _ROUNDS):
            self._lease.check()
            self.phase = "plan"
            current = self._plan(table, path, pinned, is_own=is_own)
            self._tell_plan(current, path)
            if not current.plan.units:
                break
            if number == 0:
                self._forget_earlier(current.checkpoints, is_own=is_own)
            try:
                self._compute(current)
            except FunctionChangedError:
                logger.info("the function of %s changed during job %s; planning anew", path, self._job.id)
                current.checkpoints.clear()
                continue
            if current.is_all(self._services.datasets.newest(table, self._job.branch).version):
                break
        else:
            self._services.queue.note(self._job, "rows_remain", path)
        if not once:
            current.checkpoints.clear()

    def _plan(self, table: Table, path: str, pinned: int | None, *, is_own: bool) -> Round:
        spec = self._spec if is_own else {}
        dataset = self._open_pinned(table, pinned)
        column = find_feature_column(dataset, path)
        states = self._services.column_state_store.read(dataset, table, self._job.branch, column)
        self._services.column_state_store.confirm(dataset, table, self._job.branch, column, states)
        if pinned is not None:  # names rows; what is known of them is in the newest version
            states = known_to(self._services.datasets.at(table, self._job.branch, pinned), dataset, states, column)
        mode = Mode(spec.get("mode", Mode.DEFAULT))
        plan = plan_units(
            dataset,
            states,
            column,
            mode=mode,
            where=spec.get("where"),
            before=self._begun_at(path, dataset.version) if mode in (Mode.ALL, Mode.ONLY_FAILED) else None,
            most_fragments=spec.get("num_frags"),
        )
        where = checkpoint_path(column.output.key, column.digest, self._job.branch)
        checkpoints = Checkpoints(self._services.storage_root.folder(table.location), where)
        open_committer = partial(FillCommitter, self._services, self._lease, table, column, dataset, states)
        options = self._services.storage_root.options
        source = Snapshot(table.location, options, self._job.branch, dataset.version, bases_of(dataset))
        task = FillTask(source, self._work(table, column), self._sizes(), where, ())
        return Round(column, plan, checkpoints, open_committer, task)

    def _open_pinned(self, table: Table, pinned: int | None) -> Any:
        """Open the newest version and keep it, and the one that the job names, from being cleaned up."""
        also = () if pinned is None else (pinned,)
        self._pins.hold(*also)
        for _ in range(_ROUNDS):
            dataset = self._services.datasets.at(table, self._job.branch, None)
            with suppress(TableVersionNotFoundError):  # others committed and cleaned up since it was opened
                self._pins.hold(dataset.version, *also)
                return dataset
        message = "Clean-ups of the table's versions were faster, again and again."
        raise JobFailedError("plan", "Overtaken", message, retryable=True)

    def _begun_at(self, path: str, version: int) -> int:
        """Return the version that the job found when it first planned; what came later it has computed itself.

        Not the version it was submitted at: the job it waited for may have computed rows since then.
        """
        plans = [event.data for event in self._services.queue.noted(self._job, "planned") if event.unit == path]
        return int(plans[0]["version"]) if plans else version

    def _forget_earlier(self, checkpoints: Checkpoints, *, is_own: bool) -> None:
        """Remove what earlier jobs kept and this one is not to take over."""
        is_first = self._job.attempt == 1
        if is_own and is_first and self._spec.get("mode") == Mode.ALL and self._job.retry_of is None:
            checkpoints.clear()
            return
        # A job tries for itself what an earlier one failed on, but not again what it failed on itself.
        checkpoints.forget_unusable(f"{branch_folder(self._job.branch)}data", errors=is_first)

    def _tell_plan(self, current: Round, path: str) -> None:
        plan, counters = current.plan, self._lease.counters
        # What an earlier worker, round or column brought counts, so that progress only ever grows.
        counters["rows_planned"] = self._lease.rows_done + plan.rows
        counters["fragments_planned"] = counters.get("fragments_committed", 0) + len(plan.units)
        data = {"version": plan.version, "rows": plan.rows, "fragments": len(plan.units), "bytes": plan.bytes}
        self._services.queue.note(self._job, "planned", path, data)

    def _work(self, table: Table, column: FeatureColumn) -> Work:
        targets = tuple(Target(output.path, output.root, output.struct_field) for output in column.outputs)
        function = None
        if column.reference is not None:
            function = read_function(self._services.storage_root.folder(table.location), column.reference)
        return Work(column.inputs, targets, function, column.expression)

    def _sizes(self) -> Sizes:
        spec, usual = self._spec, Sizes()
        fixed = spec.get("checkpoint_size")
        interval = spec.get("batch_checkpoint_flush_interval_seconds")
        settings = self._services.settings
        near = self._services.storage_root.root.is_local
        return Sizes(
            batch_rows=settings.backfill_batch_rows,
            batch_bytes=settings.backfill_batch_bytes,
            checkpoint_seconds=interval
            if interval is not None
            else (settings.checkpoint_seconds if near else settings.remote_checkpoint_seconds),
            least_checkpoint_rows=fixed or spec.get("min_checkpoint_size") or usual.least_checkpoint_rows,
            most_checkpoint_rows=fixed or spec.get("max_checkpoint_size") or usual.most_checkpoint_rows,
            threads=spec.get("intra_applier_concurrency") or 1,
        )

    def _compute(self, current: Round) -> None:
        committer = current.open_committer()
        column = current.column
        manifest = self._spec.get("manifest") or column.manifest
        with lend(self._services, self._lease, self._spec.get("cluster"), column.image) as lent:
            if manifest:
                self.phase = "environment"
            with prepared(lent, manifest, self._services.settings, self._lease) as (session, shipped):
                self._preflight(session, shipped, current)
                self.phase = "compute"
                self._run_tasks(session, shipped, current, committer)

    def _preflight(self, session: Session, shipped: Shipped, current: Round) -> None:
        """Try the function on an executor, unless this session has seen it work."""
        if current.task.work.function is None:
            return
        self.phase = "preflight"
        preflight = Preflight(self._services, self._lease, session, shipped, current.needs.profile(session))
        trial = replace(current.task, groups=(current.plan.units[:1],))
        preflight.fly(trial, [current.column.reference or ""], current.column.path)

    def _run_tasks(self, session: Session, shipped: Shipped, current: Round, committer: FillCommitter) -> None:
        groups = group_units(
            current.plan.units, task_count(session, self._spec.get("concurrency")), self._spec.get("task_size")
        )
        current.checkpoints.forget_failures()
        watch = Watch(self._lease, current, partial(self._commit, current, committer))
        at_once = current.needs.tasks_at_once(session, self._spec.get("concurrency") or len(groups))
        for start in range(0, len(groups), at_once):
            task = replace(current.task, groups=groups[start : start + at_once])
            self._run_at_once(session, shipped, current, task, watch)
        for unit in current.plan.units:
            current.checkpoints.forget_receipt(unit.input_signature)

    def _run_at_once(self, session: Session, shipped: Shipped, current: Round, task: FillTask, watch: Watch) -> None:
        """Run tasks side by side, and commit what they finish."""
        current.checkpoints.start(task.run)
        stop = partial(current.checkpoints.stop, task.run)
        profile = current.needs.profile(session)
        run = run_tasks(session, task, len(task.groups), group=self._job.id, environment=shipped, profile=profile)
        wait(run, self._lease, watch.look, stop)
        stop()
        try:
            run.results()
        except TaskError:
            watch.look(last=True)  # what is finished stays finished
            raise
        watch.look(last=True)

    def _commit(self, current: Round, committer: FillCommitter, units: list[tuple[Unit, dict[str, Any]]]) -> None:
        """Commit fragments whose files are written."""
        before, self.phase = self.phase, "commit"
        began = time.perf_counter()
        done = committer.commit(units)
        self._lease.add(commit_seconds=time.perf_counter() - began)
        for unit, receipt in units:
            if unit not in done.units:
                current.checkpoints.forget_receipt(unit.input_signature)
                continue
            failed = count_rows(receipt["failed"])
            self._lease.add(rows_committed=unit.count - failed, rows_failed=failed, fragments_committed=1)
            # Its receipt stays: a task that begins late, or again, learns from it that the fragment is done.
            current.checkpoints.forget_parts(unit.input_signature)
        current.committed += len(done.units)
        if done.version is not None:
            self._published = done.version
            current.commits += 1
        self.phase = before

    def _result(self, table: Table) -> dict[str, Any]:
        dataset = self._services.datasets.at(table, self._job.branch, None)
        column = find_feature_column(dataset, self._spec["column"])
        state = summarise(
            dataset, self._services.column_state_store.read(dataset, table, self._job.branch, column), column
        )
        counters = self._lease.counters
        self._lease.counters["rows_skipped"] = max(state.rows - int(counters.get("rows_planned", 0)), 0)
        return {
            "rows_assigned": int(counters.get("rows_committed", 0)),
            "rows_computed": int(counters.get("rows_computed", 0)),
            "rows_failed": int(counters.get("rows_failed", 0)),
            "rows_skipped": int(self._lease.counters["rows_skipped"]),
            "rows_remaining": state.unfilled,
            "source_version": self._spec.get("read_version") or self._spec.get("since"),
            "published_version": self._published,
            "granularity": state.granularity,
        }

    def _table(self) -> Table:
        found = self._services.database.read(lambda connection: tables.find_by_id(connection, self._job.table_id))
        if found is None:
            raise TableNotFoundError(f"The table {format_identifier(self._job.object)!r} was dropped.")
        return found
