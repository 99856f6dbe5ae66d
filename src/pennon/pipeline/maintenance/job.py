"""The driver of a maintenance job: its steps, in the order in which they help each other."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from lance_namespace.errors import InvalidTableStateError, TableNotFoundError

from pennon.catalog import tables
from pennon.core.identifiers import format_identifier
from pennon.core.job_model import JobKind, MaintenanceResult
from pennon.jobs.errors import LeaseLostError, StopRequestedError
from pennon.maintenance import retention
from pennon.maintenance.compaction import UNMAPPED_TYPES
from pennon.maintenance.guard import Folds
from pennon.maintenance.index_upkeep import IndexState
from pennon.maintenance.policy import check_values, policy_of
from pennon.pipeline.job_pins import JobPins
from pennon.pipeline.maintenance.compaction_step import CompactionStep
from pennon.pipeline.maintenance.index_step import IndexStep
from pennon.pipeline.maintenance.table_work import TableWork, YieldedError
from pennon.pipeline.worker.lease import Lease, ShuttingDownError
from pennon.tables.lance_errors import clean_message

if TYPE_CHECKING:
    from pennon.catalog.tables import Table
    from pennon.pipeline.worker.worker_services import WorkerServices

logger = logging.getLogger("pennon.worker")

#: What ends a job, unlike the failure of one of its steps.
_STOPS = (LeaseLostError, StopRequestedError, ShuttingDownError, YieldedError)


class Maintenance:
    """One maintenance job of any kind."""

    def __init__(self, services: WorkerServices, lease: Lease) -> None:
        self._services = services
        self._lease = lease
        self._job = lease.job
        self._failures: dict[str, Exception] = {}
        self._folds = Folds()
        self.phase = "plan"

    def run(self) -> MaintenanceResult:
        """Run the steps of the job's kind; a step that fails does not stop the others."""
        table = self._table()
        spec = self._job.maintenance_spec
        policy = self._services.database.read(lambda connection: policy_of(connection, self._services.settings, table))
        policy = policy.model_copy(update=check_values(spec.get("policy", {})))
        self._work = TableWork(self._services, self._lease, table, self._job.branch, policy)
        pins = JobPins(self._services.storage_root.folder(table.location), self._job)
        # A user who asks for a compaction gets as few fragments as possible; the trigger gives its reasons.
        self._compaction = CompactionStep(self._work, self._folds, pins, all_small=not spec.get("reasons"))
        if self._job.attempt > 1:
            self._compaction.remove_uncommitted_files()
            pins.hold()  # releases those of the attempts before
        try:
            self._run_steps()
        except LeaseLostError:
            raise  # pins and files belong to the worker that has the job now
        except BaseException:
            self._compaction.remove_uncommitted_files()
            pins.release()
            raise
        pins.release()
        return self._result(table)

    def _run_steps(self) -> None:
        kind = self._job.kind
        if kind in (JobKind.MAINTAIN, JobKind.COMPACT):
            self._step("optimize_indices", self._optimize_before_compaction)
            self._step("compact", self._compaction.run)
            self._step("optimize_new_fragments", self._optimize_after_compaction)
        if kind == JobKind.OPTIMIZE_INDICES:
            self._step("optimize_indices", IndexStep(self._work, self._folds).run)
        if kind in (JobKind.MAINTAIN, JobKind.CLEANUP):
            self._step("cleanup", self._clean)
        if self._failures and kind != JobKind.MAINTAIN:
            raise next(iter(self._failures.values()))

    def _step(self, name: str, run: Callable[[], object]) -> None:
        self.phase = name
        self._work.check()
        try:
            run()
        except _STOPS:
            raise
        except Exception as error:
            self._table()  # a table that was dropped meanwhile fails the job for that reason
            self._failures[name] = error
            logger.warning("step %s of job %s failed", name, self._job.id, exc_info=True)
            self._lease.add_event("step_failed", {"type": type(error).__name__, "message": _message(error)}, name)
            if name == "compact":
                self._compaction.remove_uncommitted_files()

    def _optimize_before_compaction(self) -> None:
        """Fold indexes: fragments of different segments are never merged, and some must lose deleted rows first."""
        IndexStep(self._work, self._folds).run(self._compaction.unclean())

    def _optimize_after_compaction(self) -> None:
        def lost_fragments(state: IndexState) -> bool:
            return state.kind in UNMAPPED_TYPES and bool(state.unindexed_rows)

        IndexStep(self._work, self._folds).run(only=lost_fragments)

    def _clean(self) -> None:
        work = self._work
        cleaned = retention.clean(self._services, work, work.table, work.branch, work.policy)
        self._lease.add(versions_removed=cleaned.versions, files_removed=cleaned.files, bytes_removed=cleaned.bytes)

    def _result(self, table: Table) -> MaintenanceResult:
        counters = self._lease.counters

        def count(name: str) -> int:
            return int(counters.get(name, 0))

        return {
            "version": self._services.datasets.newest(table, self._job.branch).version,
            "fragments_removed": count("fragments_committed"),
            "fragments_added": count("fragments_added"),
            "rows_rewritten": count("rows_committed"),
            "bytes_rewritten": count("bytes_rewritten"),
            "groups_lost": count("groups_lost"),
            "rows_indexed": count("rows_indexed"),
            "segments_merged": count("segments_merged"),
            "indices_retrained": count("indices_retrained"),
            "versions_removed": count("versions_removed"),
            "files_removed": count("files_removed"),
            "bytes_removed": count("bytes_removed"),
            "failures": {name: _message(error) for name, error in self._failures.items()},
        }

    def _table(self) -> Table:
        found = self._services.database.read(lambda connection: tables.find_by_id(connection, self._job.table_id))
        name = format_identifier(self._job.object)
        if found is None:
            raise TableNotFoundError(f"The table {name!r} was dropped.")
        if not found.managed:
            raise InvalidTableStateError(
                f"Pennon does not manage the commits of table {name!r}, so other writers may need files that "
                "maintenance would replace. Register it with manage_registered_tables, or maintain it with Lance."
            )
        return found


def _message(error: Exception) -> str:
    return clean_message(str(error)) or type(error).__name__
