"""Commits of a refresh: deleted rows, new rows and the watermark of the view, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Self

import numpy as np
from lance_namespace.errors import ConcurrentModificationError

from pennon.catalog import column_errors, job_events, transactions, views
from pennon.catalog.column_errors import ColumnError, ErrorScope
from pennon.core.clock import now_millis
from pennon.jobs.errors import LeaseLostError, StopRequestedError
from pennon.pipeline.commit_retry import retry_on_conflict
from pennon.pipeline.refresh.counts import Counts, Ids, count
from pennon.pipeline.refresh.fragments import fragment_metadata
from pennon.pipeline.refresh.row_lookup import find_rows

if TYPE_CHECKING:
    from lance import LanceDataset, LanceOperation
    from lance.fragment import FragmentMetadata

    from pennon.catalog import Connection
    from pennon.pipeline.refresh.row_lookup import Found
    from pennon.pipeline.refresh.task_result import NewFragment
    from pennon.pipeline.worker.lease import Lease
    from pennon.pipeline.worker.worker_services import WorkerServices
    from pennon.views.refresh.plan import PlannedRefresh


class RefreshConflictError(Exception):
    """Another refresh of the view committed first, so what was computed does not fit the view any more."""


class ObsoleteRows:
    """The rows of a view that a refresh removes; they are looked up while new rows are computed."""

    def __init__(self, services: WorkerServices, plan: PlannedRefresh) -> None:
        self._services = services
        self._plan = plan
        self._thread = ThreadPoolExecutor(1, "pennon-obsolete-rows")
        self._dataset = services.datasets.at(plan.table, "", None)
        self._first_search = self._thread.submit(self._find_rows, self._dataset)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown()

    def find(self, dataset: LanceDataset) -> list[Found]:
        """Return where they are in a version of the view; in a newer one, they are looked up again."""
        return self._first_search.result() if dataset.version == self._dataset.version else self._find_rows(dataset)

    def _find_rows(self, dataset: LanceDataset) -> list[Found]:
        folder = self._services.storage_root.folder(self._plan.table.location)
        return list(find_rows(dataset, self._plan.changes.obsolete, folder, self._services.storage_root.options))


class ViewCommitter:
    """Commits the result of one plan."""

    def __init__(
        self,
        services: WorkerServices,
        lease: Lease,
        plan: PlannedRefresh,
        obsolete: ObsoleteRows | None = None,
        errors: Sequence[tuple[str, ColumnError]] = (),
    ) -> None:
        self._services = services
        self._lease = lease
        self._plan = plan
        self._obsolete = obsolete
        self._errors = errors
        self._refusal: Exception | None = None
        self._removed: Ids = np.empty(0, dtype=np.int64)
        self._all_removed = 0

    def commit(self, new: Sequence[NewFragment], known: Ids) -> tuple[int, Counts]:
        """Commit fragments in place of obsolete rows; return the view's version, and what changed."""
        written = sum(fragment["rows"] for fragment in new)

        def build(dataset: LanceDataset) -> LanceOperation.BaseOperation | None:
            return self._build(dataset, new)

        def on_commit(connection: Connection, version: int) -> str:
            return self._record(connection, version, self._counts(written, known))

        done = retry_on_conflict(
            lambda: self._services.writer.commit(self._plan.table, "", on_commit, build), lambda: self._refusal
        )
        if done is None:
            return self.advance(), Counts()
        self._services.queue.end_commit(self._lease.job)
        return done.version, self._counts(written, known)

    def advance(self) -> int:
        """Record that the view is current at newer versions of its sources; return the view's version."""
        newest = self._services.datasets.newest(self._plan.table, "")
        self._services.database.write(lambda connection: self._advance(connection, newest.version))
        self._services.queue.end_commit(self._lease.job)
        return newest.version

    def _counts(self, written: int, known: Ids) -> Counts:
        if self._plan.mode == "rebuild":
            return Counts(written, 0, self._all_removed)
        return count(written, known, self._removed)

    def _build(self, dataset: LanceDataset, new: Sequence[NewFragment]) -> LanceOperation.BaseOperation | None:
        """Return the operation of the refresh on the newest version of the view; None when nothing changes."""
        import lance

        removed: list[int] = []
        updated: list[FragmentMetadata] = []
        if self._plan.mode == "rebuild":
            removed = [fragment.fragment_id for fragment in dataset.get_fragments()]
            self._all_removed = dataset.count_rows()
        else:
            for fragment_id, offsets in self._rows_to_delete(dataset):
                fragment = dataset.get_fragment(fragment_id)
                assert fragment is not None  # noqa: S101 (its rows were just found in it)
                left = fragment.delete_rows(offsets.tolist())
                if left is None:
                    removed.append(fragment_id)
                else:
                    updated.append(left)
        fragments = [fragment_metadata(fragment) for fragment in new]
        if not removed and not updated:
            # Lance looks up every row of an Update; an Append does not need that.
            return lance.LanceOperation.Append(fragments) if fragments else None
        return lance.LanceOperation.Update(
            removed_fragment_ids=removed, updated_fragments=updated, new_fragments=fragments
        )

    def _rows_to_delete(self, dataset: LanceDataset) -> list[tuple[int, Ids]]:
        """Return where the rows of the view are whose source rows were deleted or changed."""
        found = self._obsolete.find(dataset) if self._obsolete is not None else []
        self._removed = np.concatenate([np.empty(0, dtype=np.int64), *(sources for _, _, sources in found)])
        return [(fragment_id, offsets) for fragment_id, offsets, _ in found]

    def _record(self, connection: Connection, version: int, counts: Counts) -> str:
        job, plan = self._lease.job, self._plan
        try:
            self._advance(connection, version)
        except (LeaseLostError, StopRequestedError, RefreshConflictError) as refusal:
            self._refusal = refusal
            raise ConcurrentModificationError("The refresh may not commit any more.") from refusal
        data = {
            "version": version,
            "mode": plan.mode,
            "rows_added": counts.added,
            "rows_updated": counts.updated,
            "rows_removed": counts.removed,
            "source_versions": plan.versions,
        }
        job_events.append(connection, job.id, "committed", now_millis(), unit=plan.table.name, data=data)
        properties = {"operation": "Refresh", "principal": job.submitted_by, "job_id": job.id}
        return transactions.insert(connection, "Refresh", plan.table.identifier, properties)

    def _advance(self, connection: Connection, version: int) -> None:
        """Advance the watermark, unless the job may not commit any more or another refresh advanced it."""
        plan = self._plan
        self._services.queue.begin_commit(connection, self._lease.job)
        if not views.advance(connection, plan.table.id, plan.view.watermark, plan.after, version, now_millis()):
            raise RefreshConflictError("Another refresh of the view committed first.")
        self._record_errors(connection)

    def _record_errors(self, connection: Connection) -> None:
        """Record the errors of functions, and remove those of obsolete rows."""
        plan = self._plan
        known = column_errors.of_sources(connection, plan.table.id)
        past = set(plan.changes.obsolete.tolist()) if known else set()
        column_errors.delete(
            connection, [error.id for error in known if plan.mode == "rebuild" or error.row_id in past]
        )
        for column, error in self._errors:
            column_errors.add(connection, ErrorScope(plan.table.id, "", column), error)
