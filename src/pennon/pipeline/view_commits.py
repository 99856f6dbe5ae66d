"""Committing a refresh: rows that go, rows that come and how far the view has come, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from lance_namespace.errors import ConcurrentModificationError

from pennon.catalog import job_events, transactions, views
from pennon.core.clock import now_millis
from pennon.jobs.queue import LeaseLostError, StopRequestedError
from pennon.pipeline.counting import Counts, Ids, count
from pennon.views.definition import SOURCE_ROW

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pennon.catalog import Connection
    from pennon.pipeline.fragments import NewFragment
    from pennon.pipeline.lease import Lease
    from pennon.pipeline.tools import Tools
    from pennon.views.planning import RefreshPlan

_ATTEMPTS = 20
_BATCH_ROWS = 256 * 1024
#: Ids up to this one are looked up in a table, which has a byte for each of them.
_MOST_BITS = 128 * 1024 * 1024
_OFFSET_BITS = np.uint64(0xFFFFFFFF)
_FRAGMENT_SHIFT = np.uint64(32)


class OvertakenError(Exception):
    """Another refresh of the view was faster; what was computed does not fit what it holds now."""


class ViewCommitter:
    """Commits what one plan came to."""

    def __init__(self, tools: Tools, lease: Lease, plan: RefreshPlan) -> None:
        self._tools = tools
        self._lease = lease
        self._plan = plan
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

        for attempt in range(_ATTEMPTS):
            try:
                done = self._tools.writer.commit(self._plan.table, "", note, build)
            except ConcurrentModificationError:
                if self._stopped is not None:
                    raise self._stopped from None
                if attempt == _ATTEMPTS - 1:
                    raise
            else:
                break
        if done is None:
            return self.advance(), Counts()
        self._tools.queue.resume_running(self._lease.job)
        return done.version, self._counts(written, known)

    def advance(self) -> int:
        """Record that the view holds its sources at newer versions without a change; return the view's version."""
        newest = self._tools.datasets.newest(self._plan.table, "")
        self._tools.database.write(lambda connection: self._advance(connection, newest.version))
        self._tools.queue.resume_running(self._lease.job)
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
            for fragment_id, offsets in self._places(dataset):
                left = dataset.get_fragment(fragment_id).delete_rows(offsets.tolist())
                if left is None:
                    gone.append(fragment_id)
                else:
                    updated.append(left)
        if not (gone or updated or new):
            return None
        return lance.LanceOperation.Update(
            removed_fragment_ids=gone,
            updated_fragments=updated,
            new_fragments=[fragment.metadata() for fragment in new],
        )

    def _places(self, dataset: Any) -> list[tuple[int, NDArray[np.uint64]]]:
        """Return where the view's rows are that come from rows of the source which are gone or others now."""
        past = self._plan.changes.past
        found: list[Any] = []
        sources: list[Any] = []
        if len(past):
            is_past = _membership(past)
            scanner = dataset.scanner(columns=[SOURCE_ROW], with_row_address=True, batch_size=_BATCH_ROWS)
            for batch in scanner.to_batches():
                ids = batch.column(SOURCE_ROW).to_numpy()
                mask = is_past(ids)
                if mask.any():
                    found.append(batch.column("_rowaddr").to_numpy()[mask])
                    sources.append(ids[mask])
        self._removed = np.concatenate(sources) if sources else np.empty(0, dtype=np.int64)
        addresses = np.sort(np.concatenate(found)) if found else np.empty(0, dtype=np.uint64)
        fragments, starts = np.unique(addresses >> _FRAGMENT_SHIFT, return_index=True)
        pieces = np.split(addresses & _OFFSET_BITS, starts[1:])
        return [(int(fragment), piece) for fragment, piece in zip(fragments, pieces, strict=False)]

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
        self._tools.queue.guard(connection, self._lease.job)
        if not views.advance(connection, plan.table.id, plan.view.watermark, plan.after, version, now_millis()):
            raise OvertakenError("Another refresh of the view was faster.")


def _membership(wanted: Ids) -> Callable[[Ids], NDArray[np.bool_]]:
    """Return what tells which of many ids are among those wanted, which rise."""
    last = int(wanted[-1])
    if last >= _MOST_BITS:
        return lambda ids: np.isin(ids, wanted)
    table = np.zeros(last + 2, dtype=np.bool_)
    table[wanted] = True
    return lambda ids: table[np.minimum(ids, last + 1)]
