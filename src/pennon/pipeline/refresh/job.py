"""The driver of a refresh: plan, compute on Spark, and commit rows and watermark in one step."""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np
from lance_namespace.errors import LanceNamespaceError, TableNotFoundError, TableVersionNotFoundError

from pennon.catalog import tables, transactions, views
from pennon.core.identifiers import format_identifier, new_id
from pennon.core.job_model import RefreshResult, RefreshSpec
from pennon.jobs.errors import LeaseLostError, StopRequestedError
from pennon.pipeline.job_failure import JobAbortedError
from pennon.pipeline.refresh.commits import ObsoleteRows, RefreshConflictError, ViewCommitter
from pennon.pipeline.refresh.computation import Computation, RefreshOutput
from pennon.pipeline.refresh.fragments import remove_orphan_files
from pennon.pipeline.worker.lease import Lease, ShuttingDownError
from pennon.views import pins
from pennon.views.compilation import columns_by_table
from pennon.views.model.definition import Definition
from pennon.views.refresh.plan import PlannedRefresh, Planner
from pennon.views.refresh.schema_evolution import add_new_columns

if TYPE_CHECKING:
    from lance import LanceDataset

    from pennon.catalog import Connection
    from pennon.catalog.tables import Table
    from pennon.pipeline.worker.worker_services import WorkerServices

logger = logging.getLogger("pennon.worker")

#: How often a refresh is planned again after another refresh of the view committed first, or a clean-up removed a
#: version that it reads. Not measured.
_ATTEMPTS = 5


class Refresh:
    """One refresh job."""

    def __init__(self, services: WorkerServices, lease: Lease) -> None:
        self.services = services
        self.lease = lease
        self._job = lease.job
        self._spec = lease.job.refresh_spec
        #: The versions that a refresh of several views has read or committed: all views use the same ones.
        self._versions: dict[str, int] = {}
        self.phase = "plan"

    def run(self) -> RefreshResult:
        """Refresh the view, and first, on request, those that it reads; return the job's result."""
        self.lease.add(rows_computed=0, rows_committed=0, rows_failed=0)
        for view_id in self._spec.get("before", []):
            self._refresh_or_mark_stale(view_id)
        return self._refresh_or_mark_stale(self._job.table_id)

    def _refresh_or_mark_stale(self, view_id: str) -> RefreshResult:
        try:
            return self._refresh(view_id)
        except (LeaseLostError, StopRequestedError, ShuttingDownError):
            raise
        except Exception as error:
            self._table(view_id)  # a view that was dropped meanwhile fails for that reason alone
            self._mark_stale(view_id, error)
            raise

    def _refresh(self, view_id: str) -> RefreshResult:
        table = self._table(view_id)
        is_own = view_id == self._job.table_id
        spec = self._spec if is_own else _upstream_spec(self._spec)
        for _ in range(_ATTEMPTS):
            self.lease.check()
            self.phase = "plan"
            self._add_new_columns(table, spec)
            plan = Planner(self.services, table, spec, self._versions).plan()
            try:
                self._pin(plan)
                self._report_plan(plan)
                result = self._run_plan(plan, spec)
            except (RefreshConflictError, TableVersionNotFoundError) as conflict:
                logger.info("job %s plans the refresh of %s again: %s", self._job.id, table.name, conflict)
                continue
            except LeaseLostError:
                raise  # the pins belong to the worker that has the job now
            except Exception:
                self._release_pins(plan)
                raise
            self._release_pins(plan)
            self._versions |= {
                read.table.id: read.dataset.version for read in plan.reads if read.source.version is None
            }
            self._versions[table.id] = result["version"]
            return result
        message = f"Other refreshes of the view, or clean-ups of its sources, interfered {_ATTEMPTS} times."
        raise JobAbortedError("commit", "Overtaken", message, retryable=True)

    def _add_new_columns(self, table: Table, spec: RefreshSpec) -> None:
        """Add new columns of the sources to a view of all columns, if it follows schema changes."""
        view = self.services.database.read(lambda connection: views.find(connection, table.id))
        definition = Definition.from_json(view.definition) if view is not None else None
        if view is None or definition is None or view.on_schema_change != "rebuild" or not definition.all_columns:
            return
        reads = Planner(self.services, table, spec, self._versions).reads(definition)
        opened = [(read.table, read.dataset) for read in reads]
        wider, lacking = add_new_columns(view, opened, self.services.datasets.at(table, "", None).schema)
        if not len(lacking):
            return

        def on_commit(connection: Connection) -> str:
            current = views.find(connection, table.id)
            views.redefine(
                connection, table.id, wider.to_json(), columns_by_table(wider), current.watermark if current else None
            )
            properties = {"operation": "Refresh", "principal": self._job.submitted_by, "job_id": self._job.id}
            return transactions.insert(connection, "Refresh", table.identifier, properties)

        self.services.writer.change(table, "", on_commit, lambda newest: newest.add_columns(lacking))

    def _run_plan(self, plan: PlannedRefresh, spec: RefreshSpec) -> RefreshResult:
        if plan.mode == "no_op":
            before = plan.view.watermark
            has_changed = (
                before is None or before.to_json() != plan.after.to_json() or plan.view.stale_reason is not None
            )
            committer = ViewCommitter(self.services, self.lease, plan)
            version = committer.advance() if has_changed else self.services.datasets.newest(plan.table, "").version
            return _result(plan, RefreshOutput(), version)
        run = f"{self._mark(self._job.attempt)}-{new_id()[-6:]}"
        self._remove_orphan_files(plan, before=self._job.attempt)
        try:
            with ObsoleteRows(self.services, plan) as obsolete:
                computed = Computation(self, plan, spec, run).run()
                plan = replace(plan, after=replace(plan.after, trimmed_to=computed.trimmed_to))
                version = self._commit(
                    ViewCommitter(self.services, self.lease, plan, obsolete, computed.errors), computed
                )
        finally:
            self._remove_orphan_files(plan, before=self._job.attempt + 1)
        return _result(plan, computed, version)

    def _commit(self, committer: ViewCommitter, computed: RefreshOutput) -> int:
        self.phase = "commit"
        began = time.perf_counter()
        known = np.concatenate([np.empty(0, dtype=np.int64), *computed.known])
        version, computed.counts = committer.commit(computed.fragments, known)
        self.lease.add(commit_seconds=time.perf_counter() - began, rows_committed=computed.rows)
        return version

    def _mark(self, attempt: int) -> str:
        return f"refresh-{self._job.id}-{attempt}"

    def _remove_orphan_files(self, plan: PlannedRefresh, *, before: int) -> None:
        """Remove files that earlier attempts of the job wrote and did not commit; those of later attempts stay.

        Files of the job that failed last are removed, too: its tasks may have gone on after Spark died.
        """
        marks = {self._mark(attempt) for attempt in range(1, before)}
        if plan.view.failed_job is not None:
            marks.add(f"refresh-{plan.view.failed_job}")
        if not marks:
            return
        folder = self.services.storage_root.folder(plan.table.location)
        known = self.services.database.read(lambda connection: views.find(connection, plan.table.id))
        kept = _data_files(self.services.datasets.at(plan.table, "", None))
        for version in {plan.view.refreshed_version, known.refreshed_version if known is not None else None} - {None}:
            # An attempt may have committed, and a compaction may have followed.
            with suppress(LanceNamespaceError):
                kept |= _data_files(self.services.datasets.at(plan.table, "", version))
        remove_orphan_files(folder, marks, kept)

    def _pin(self, plan: PlannedRefresh) -> None:
        """Pin the versions that the plan reads."""
        for read in plan.reads:
            pins.pin(self.services.storage_root.folder(read.table.location), plan.table.id, read.dataset.version)

    def _release_pins(self, plan: PlannedRefresh) -> None:
        """Release the versions of sources that the view does not need, according to the catalog."""
        view = self.services.database.read(lambda connection: views.find(connection, plan.table.id))
        for read in plan.reads:
            folder = self.services.storage_root.folder(read.table.location)
            pins.release(folder, plan.table.id, keep=pins.versions_needed(view, read.table.id))

    def _report_plan(self, plan: PlannedRefresh) -> None:
        rows = plan.rows
        self.lease.counters["rows_planned"] = self.lease.rows_done + rows
        data = {"mode": plan.mode, "reason": plan.reason, "rows": rows, "source_versions": plan.versions}
        self.services.queue.add_event(self._job, "planned", plan.table.name, data)

    def _mark_stale(self, view_id: str, error: Exception) -> None:
        reason = str(error) or type(error).__name__

        def work(connection: Connection) -> None:
            for failed in {view_id, self._job.table_id}:
                views.mark_stale(connection, failed, reason, self._job.id)

        self.services.database.write(work)

    def _table(self, view_id: str) -> Table:
        found = self.services.database.read(lambda connection: tables.find_by_id(connection, view_id))
        if found is None:
            name = format_identifier(self._job.object) if view_id == self._job.table_id else view_id
            raise TableNotFoundError(f"The view {name!r} was dropped.")
        return found


def _data_files(dataset: LanceDataset) -> set[str]:
    """Return the data files of a version."""
    return {file.path for fragment in dataset.get_fragments() for file in fragment.metadata.files}


def _upstream_spec(spec: RefreshSpec) -> RefreshSpec:
    """Return the parameters that also apply to the views that are refreshed first."""
    shared = ("cluster", "concurrency", "full")
    return cast("RefreshSpec", {name: value for name, value in spec.items() if name in shared})


def _result(plan: PlannedRefresh, computed: RefreshOutput, version: int) -> RefreshResult:
    return {
        "mode": plan.mode,
        "reason": plan.reason,
        "rows_added": computed.counts.added,
        "rows_updated": computed.counts.updated,
        "rows_removed": computed.counts.removed,
        "rows_written": computed.rows,
        "rows_failed": computed.failed,
        "source_version": plan.reads[0].dataset.version,
        "source_versions": plan.versions,
        "version": version,
    }
