"""The driver of a refresh: plan, let Spark compute, and commit rows and watermark in one step."""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from lance_namespace.errors import LanceNamespaceError, TableNotFoundError, TableVersionNotFoundError

from pennon.catalog import tables, transactions, views
from pennon.core.identifiers import format_identifier, new_id
from pennon.jobs.queue import LeaseLostError, StopRequestedError
from pennon.pipeline.backfill.plan_run import JobFailedError
from pennon.pipeline.refresh.commits import OvertakenError, PastRows, ViewCommitter
from pennon.pipeline.refresh.computation import Computation, Computed
from pennon.pipeline.refresh.fragments import remove_strays
from pennon.pipeline.worker.lease import Lease, ShuttingDownError
from pennon.views import pins
from pennon.views.compilation import merged_sources
from pennon.views.model.definition import Definition
from pennon.views.refresh.plan import Planner, RefreshPlan
from pennon.views.refresh.schema_evolution import widen

if TYPE_CHECKING:
    from pennon.catalog import Connection
    from pennon.catalog.tables import Table
    from pennon.pipeline.worker.worker_services import WorkerServices

logger = logging.getLogger("pennon.worker")

#: So often is planned anew when another refresh of the view, or a clean-up of its sources, was faster.
_ROUNDS = 5


class Refresh:
    """One refresh job."""

    def __init__(self, services: WorkerServices, lease: Lease) -> None:
        self.services = services
        self.lease = lease
        self._job = lease.job
        self._spec: dict[str, Any] = lease.job.spec
        #: What a refresh of several views has read and made: all of them come from the same versions of their tables.
        self._held: dict[str, int] = {}
        self.phase = "plan"

    def run(self) -> dict[str, Any]:
        """Refresh the view, and before it, if so asked, those it reads; return the job's result."""
        self.lease.add(rows_computed=0, rows_committed=0, rows_failed=0)
        result: dict[str, Any] = {}
        for view_id in [*self._spec.get("before", []), self._job.table_id]:
            try:
                result = self._refresh(view_id)
            except (LeaseLostError, StopRequestedError, ShuttingDownError):
                raise
            except Exception as error:
                self._table(view_id)  # one that was dropped meanwhile fails for no other reason
                self._mark_stale(view_id, error)
                raise
        return result

    def _refresh(self, view_id: str) -> dict[str, Any]:
        table = self._table(view_id)
        is_own = view_id == self._job.table_id
        spec = self._spec if is_own else {name: self._spec.get(name) for name in ("cluster", "concurrency", "full")}
        for _ in range(_ROUNDS):
            self.lease.check()
            self.phase = "plan"
            self._widen(table, spec)
            plan = Planner(self.services, table, spec, self._held).plan()
            try:
                self._pin(plan)
                self._tell(plan)
                result = self._carry_out(plan, spec)
            except (OvertakenError, TableVersionNotFoundError) as passed:
                logger.info("job %s plans the refresh of %s anew: %s", self._job.id, table.name, passed)
                continue
            except LeaseLostError:
                raise  # whoever has the job now needs the pins
            except Exception:
                self._release_pins(plan)
                raise
            self._release_pins(plan)
            self._held |= {read.table.id: read.dataset.version for read in plan.reads if read.source.version is None}
            self._held[table.id] = result["version"]
            return result
        message = "Other refreshes of the view were faster, or clean-ups of its sources, again and again."
        raise JobFailedError("commit", "Overtaken", message, retryable=True)

    def _widen(self, table: Table, spec: dict[str, Any]) -> None:
        """Give a view that shows all columns of its sources those that are new, if they are to be followed."""
        view = self.services.database.read(lambda connection: views.find(connection, table.id))
        definition = Definition.from_json(view.definition) if view is not None else None
        if view is None or definition is None or view.on_schema_change != "rebuild" or not definition.all_columns:
            return
        reads = Planner(self.services, table, spec, self._held).reads(definition)
        opened = [(read.table, read.dataset) for read in reads]
        wider, lacking = widen(view, opened, self.services.datasets.at(table, "", None).schema)
        if not len(lacking):
            return

        def note(connection: Connection) -> str:
            now = views.find(connection, table.id)
            views.redefine(connection, table.id, wider.to_json(), merged_sources(wider), now.watermark if now else None)
            properties = {"operation": "Refresh", "principal": self._job.submitted_by, "job_id": self._job.id}
            return transactions.record(connection, "Refresh", table.identifier, properties)

        self.services.writer.change(table, "", note, lambda newest: newest.add_columns(lacking))

    def _carry_out(self, plan: RefreshPlan, spec: dict[str, Any]) -> dict[str, Any]:
        if plan.mode == "no_op":
            before = plan.view.watermark
            moved = before is None or before.to_json() != plan.after.to_json() or plan.view.stale_reason is not None
            committer = ViewCommitter(self.services, self.lease, plan)
            version = committer.advance() if moved else self.services.datasets.newest(plan.table, "").version
            return _result(plan, Computed(), version)
        run = f"{self._mark(self._job.attempt)}-{new_id()[-6:]}"
        self._remove_strays(plan, before=self._job.attempt)
        try:
            with PastRows(self.services, plan) as past:
                computed = Computation(self, plan, spec, run).run()
                plan = replace(plan, after=replace(plan.after, trimmed_to=computed.trimmed_to))
                version = self._commit(ViewCommitter(self.services, self.lease, plan, past, computed.errors), computed)
        finally:
            self._remove_strays(plan, before=self._job.attempt + 1)
        return _result(plan, computed, version)

    def _commit(self, committer: ViewCommitter, computed: Computed) -> int:
        self.phase = "commit"
        began = time.perf_counter()
        known = np.concatenate([np.empty(0, dtype=np.int64), *computed.known])
        version, computed.counts = committer.commit(computed.fragments, known)
        self.lease.add(commit_seconds=time.perf_counter() - began, rows_committed=computed.rows)
        return version

    def _mark(self, attempt: int) -> str:
        return f"refresh-{self._job.id}-{attempt}"

    def _remove_strays(self, plan: RefreshPlan, *, before: int) -> None:
        """Remove what earlier attempts at the job wrote and did not commit; a later one's files are its own.

        The same goes for the job that failed last: where Spark died, its tasks went on for a while.
        """
        marks = {self._mark(attempt) for attempt in range(1, before)}
        if plan.view.failed_job is not None:
            marks.add(f"refresh-{plan.view.failed_job}")
        if not marks:
            return
        folder = self.services.storage_root.folder(plan.table.location)
        known = self.services.database.read(lambda connection: views.find(connection, plan.table.id))
        kept = _named(self.services.datasets.at(plan.table, "", None))
        for version in {plan.view.refreshed_version, known.refreshed_version if known is not None else None} - {None}:
            # An attempt that committed may have been followed by a compaction.
            with suppress(LanceNamespaceError):
                kept |= _named(self.services.datasets.at(plan.table, "", version))
        remove_strays(folder, marks, kept)

    def _pin(self, plan: RefreshPlan) -> None:
        """Keep the versions that are read from being cleaned up."""
        for read in plan.reads:
            pins.pin(self.services.storage_root.folder(read.table.location), plan.table.id, read.dataset.version)

    def _release_pins(self, plan: RefreshPlan) -> None:
        """Give up the versions of sources that the view does not hold, as the catalog has it now."""
        view = self.services.database.read(lambda connection: views.find(connection, plan.table.id))
        for read in plan.reads:
            folder = self.services.storage_root.folder(read.table.location)
            pins.release(folder, plan.table.id, keep=pins.versions_needed(view, read.table.id))

    def _tell(self, plan: RefreshPlan) -> None:
        rows = plan.rows
        self.lease.counters["rows_planned"] = self.lease.rows_done + rows
        data = {"mode": plan.mode, "reason": plan.reason, "rows": rows, "source_versions": plan.versions}
        self.services.queue.note(self._job, "planned", plan.table.name, data)

    def _mark_stale(self, view_id: str, error: Exception) -> None:
        reason = str(error) or type(error).__name__

        def work(connection: Any) -> None:
            for failed in {view_id, self._job.table_id}:
                views.mark_stale(connection, failed, reason, self._job.id)

        self.services.database.write(work)

    def _table(self, view_id: str) -> Table:
        found = self.services.database.read(lambda connection: tables.find_by_id(connection, view_id))
        if found is None:
            name = format_identifier(self._job.object) if view_id == self._job.table_id else view_id
            raise TableNotFoundError(f"The view {name!r} was dropped.")
        return found


def _named(dataset: Any) -> set[str]:
    """Return the files that a version names."""
    return {file.path for fragment in dataset.get_fragments() for file in fragment.metadata.files}


def _result(plan: RefreshPlan, computed: Computed, version: int) -> dict[str, Any]:
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
