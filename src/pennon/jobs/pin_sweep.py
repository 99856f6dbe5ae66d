"""Removal of the pins that lost workers have left behind."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pennon.catalog import jobs, tables, views
from pennon.core.clock import now_millis
from pennon.core.job_model import MAINTENANCE, JobKind, JobState
from pennon.views import pins
from pennon.views.model.definition import Definition

if TYPE_CHECKING:
    from collections.abc import Callable

    from pennon.catalog import Connection, Database
    from pennon.catalog.jobs import Job
    from pennon.catalog.views import View
    from pennon.storage.file_io import FileIO
    from pennon.storage.root import StorageRoot

logger = logging.getLogger("pennon.worker")

#: Between two sweeps. A pin that is left behind only keeps files of old versions.
_INTERVAL_MILLIS = 30_000
#: How far back a worker that starts looks for jobs that ended while no worker ran.
_LOOK_BACK_MILLIS = 24 * 60 * 60 * 1000
#: Clocks of hosts differ, so consecutive sweeps overlap.
_OVERLAP_MILLIS = 30_000
_MAX_JOBS = 1000


class PinSweep:
    """Removes the pins of jobs whose worker was lost."""

    def __init__(self, database: Database, storage_root: StorageRoot, now: Callable[[], int] = now_millis) -> None:
        self._database = database
        self._storage_root = storage_root
        self._now = now
        self._since = now() - _LOOK_BACK_MILLIS
        self._next = 0

    def tick(self) -> None:
        """Sweep if the interval has passed."""
        now = self._now()
        if now < self._next:
            return
        self._next = now + _INTERVAL_MILLIS
        since = self._since
        finished = self._database.read(lambda connection: jobs.finished_since(connection, since, _MAX_JOBS))
        for table_id in {job.table_id for job in finished if _may_have_pins(job)}:
            self._sweep_table(table_id)
        lost = [job for job in finished if job.kind == JobKind.REFRESH and job.state != JobState.DONE]
        for view_id in {view_id for job in lost for view_id in (*job.refresh_spec.get("before", ()), job.table_id)}:
            self._sweep_view(view_id)
        is_full = len(finished) == _MAX_JOBS
        self._since = (finished[-1].finished_at or now if is_full else now) - _OVERLAP_MILLIS

    def _sweep_table(self, table_id: str) -> None:
        """Remove the pins of jobs on a table that are no longer active."""
        folder = self._folder(table_id)
        if folder is None:
            return
        found = pins.pins(folder, "job")
        active = {job.id for job in self._database.read(lambda connection: jobs.active_on(connection, table_id))}
        pins.remove(folder, (pin for pin in found if pin.owner not in active))

    def _sweep_view(self, view_id: str) -> None:
        """Remove the pins that a view does not need, unless a job refreshes it."""
        view = self._database.read(lambda connection: views.find(connection, view_id))
        for table_id in {source.table_id for source in Definition.from_json(view.definition).sources} if view else ():
            folder = self._folder(table_id)
            if folder is None:
                continue
            # List pins before reading the catalog, so that pins that a refresh sets from now on stay.
            found = [pin for pin in pins.pins(folder) if pin.owner == view_id]
            current = self._database.read(lambda connection: _find_idle(connection, view_id)) if found else None
            if current is not None:
                needed = pins.versions_needed(current, table_id)
                pins.remove(folder, (pin for pin in found if pin.version not in needed))

    def _folder(self, table_id: str) -> FileIO | None:
        table = self._database.read(lambda connection: tables.find_by_id(connection, table_id))
        return None if table is None else self._storage_root.folder(table.location)


def _may_have_pins(job: Job) -> bool:
    """Return whether a job may have left pins on its own table; maintenance that is done has removed them."""
    return job.kind == JobKind.BACKFILL or (job.kind in MAINTENANCE and job.state != JobState.DONE)


def _find_idle(connection: Connection, view_id: str) -> View | None:
    """Return a view unless a job refreshes it."""
    active = jobs.active_of_kind(connection, JobKind.REFRESH)
    is_refreshing = any(view_id in (job.table_id, *job.refresh_spec.get("before", ())) for job in active)
    return None if is_refreshing else views.find(connection, view_id)
