"""Committing a refresh: rows that go, rows that come and how far the view has come, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from lance_namespace.errors import ConcurrentModificationError

from pennon.catalog import column_errors, job_events, transactions, views
from pennon.catalog.column_errors import ColumnError, Place
from pennon.core.clock import now_millis
from pennon.jobs.queue import LeaseLostError, StopRequestedError
from pennon.pipeline.commit_retry import commit_beside_others
from pennon.pipeline.refresh.counts import Counts, Ids, count
from pennon.pipeline.refresh.sorted_lookup import locate

if TYPE_CHECKING:
    from pennon.catalog import Connection
    from pennon.pipeline.refresh.fragments import NewFragment
    from pennon.pipeline.refresh.sorted_lookup import Found
    from pennon.pipeline.worker.lease import Lease
    from pennon.pipeline.worker.worker_services import WorkerServices
    from pennon.views.refresh.plan import RefreshPlan


class OvertakenError(Exception):
    """Another refresh of the view was faster; what was computed does not fit what it holds now."""


class PastRows:
    """The rows of a view that do not hold any more; they are looked for while others are computed."""

    def __init__(self, services: WorkerServices, plan: RefreshPlan) -> None:
        self._services = services
        self._plan = plan
        self._thread = ThreadPoolExecutor(1, "pennon-past-rows")
        self._dataset = services.datasets.at(plan.table, "", None)
        self._early = self._thread.submit(self._locate, self._dataset)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown()

    def find(self, dataset: Any) -> list[Found]:
        """Return where they are in a version of the view; in one that came meanwhile, they are looked for again."""
        return self._early.result() if dataset.version == self._dataset.version else self._locate(dataset)

    def _locate(self, dataset: Any) -> list[Found]:
        folder = self._services.storage_root.folder(self._plan.table.location)
        return list(locate(dataset, self._plan.changes.past, folder, self._services.storage_root.options))


class ViewCommitter:
    """Commits what one plan came to."""

    def __init__(
        self,
        services: WorkerServices,
        lease: Lease,
        plan: RefreshPlan,
        past: PastRows | None = None,
        errors: Sequence[tuple[str, ColumnError]] = (),
    ) -> None:
        self._services = services
        self._lease = lease
        self._plan = plan
        self._past = past
        self._errors = errors
        self._stopped: Exception | None = None
        self._removed: Ids = np.empty(0, dtype=np.int64)
        self._all_removed = 0

    def commit(self, new: Sequence[NewFragment], known: Ids) -> tuple[int, Counts]:
        """Commit fragments in place of what does not hold any more; return the view's version, and what changed."""
        written = sum(fragment.rows for fragment in new)

        def build(dataset: Any) -> Any:
            return self._build(dataset, new)

        def note(connection: Connection, version: int) -> str:
            return self._note(connection, version, self._counts(written, known))

        done = commit_beside_others(
            lambda: self._services.writer.commit(self._plan.table, "", note, build), lambda: self._stopped
        )
        if done is None:
            return self.advance(), Counts()
        self._services.queue.resume_running(self._lease.job)
        return done.version, self._counts(written, known)

    def advance(self) -> int:
        """Record that the view holds its sources at newer versions without a change; return the view's version."""
        newest = self._services.datasets.newest(self._plan.table, "")
        self._services.database.write(lambda connection: self._advance(connection, newest.version))
        self._services.queue.resume_running(self._lease.job)
        return newest.version

    def _counts(self, written: int, known: Ids) -> Counts:
        if self._plan.mode == "rebuild":
            return Counts(written, 0, self._all_removed)
        return count(written, known, self._removed)

    def _build(self, dataset: Any, new: Sequence[NewFragment]) -> Any:
        """Return the one operation of the refresh, for the view as it is now; none when nothing would change."""
        import lance

        gone: list[int] = []
        updated: list[Any] = []
        if self._plan.mode == "rebuild":
            gone = [fragment.fragment_id for fragment in dataset.get_fragments()]
            self._all_removed = dataset.count_rows()
        else:
            for fragment_id, offsets in self._rows_to_delete(dataset):
                left = dataset.get_fragment(fragment_id).delete_rows(offsets.tolist())
                if left is None:
                    gone.append(fragment_id)
                else:
                    updated.append(left)
        fragments = [fragment.metadata() for fragment in new]
        if not gone and not updated:
            # Lance looks up every row that an update brings; what only comes needs none of that.
            return lance.LanceOperation.Append(fragments) if fragments else None
        return lance.LanceOperation.Update(
            removed_fragment_ids=gone, updated_fragments=updated, new_fragments=fragments
        )

    def _rows_to_delete(self, dataset: Any) -> list[tuple[int, Ids]]:
        """Return where the view's rows are that come from rows of the source which are gone or others now."""
        found = self._past.find(dataset) if self._past is not None else []
        self._removed = np.concatenate([np.empty(0, dtype=np.int64), *(sources for _, _, sources in found)])
        return [(fragment_id, offsets) for fragment_id, offsets, _ in found]

    def _note(self, connection: Connection, version: int, counts: Counts) -> str:
        job, plan = self._lease.job, self._plan
        try:
            self._advance(connection, version)
        except (LeaseLostError, StopRequestedError, OvertakenError) as stopped:
            self._stopped = stopped
            raise ConcurrentModificationError("The refresh is not to be committed.") from stopped
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
        return transactions.record(connection, "Refresh", plan.table.identifier, properties)

    def _advance(self, connection: Connection, version: int) -> None:
        """Move the watermark, unless the job may not commit any more or another refresh moved it."""
        plan = self._plan
        self._services.queue.guard(connection, self._lease.job)
        if not views.advance(connection, plan.table.id, plan.view.watermark, plan.after, version, now_millis()):
            raise OvertakenError("Another refresh of the view was faster.")
        self._record_errors(connection)

    def _record_errors(self, connection: Connection) -> None:
        """Write down what functions failed on, in place of what does not hold any more."""
        plan = self._plan
        known = column_errors.of_sources(connection, plan.table.id)
        past = set(plan.changes.past.tolist()) if known else set()
        column_errors.forget(
            connection, [error.id for error in known if plan.mode == "rebuild" or error.row_id in past]
        )
        for column, error in self._errors:
            column_errors.add(connection, Place(plan.table.id, "", column), error)
