"""The sweep of pins that a worker could not give up itself, because it was lost."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pennon.catalog import jobs, tables, views
from pennon.core.clock import now_millis
from pennon.views import pins
from pennon.views.model.definition import Definition

if TYPE_CHECKING:
    from collections.abc import Callable

    from pennon.catalog import Connection, Database
    from pennon.catalog.views import View
    from pennon.storage.file_io import FileIO
    from pennon.storage.root import StorageRoot

logger = logging.getLogger("pennon.worker")

#: Between two sweeps. A pin that is left costs nothing but the files of old versions.
_PAUSE_MILLIS = 30_000
#: A worker that starts looks back so far for jobs that ended while there was none.
_LOOK_BACK_MILLIS = 24 * 60 * 60 * 1000
#: Clocks of hosts differ: so much is looked at again.
_OVERLAP_MILLIS = 30_000
_MOST = 1000


class PinSweep:
    """Gives up the pins of jobs that ended without their worker."""

    def __init__(self, database: Database, storage_root: StorageRoot, now: Callable[[], int] = now_millis) -> None:
        self._database = database
        self._storage_root = storage_root
        self._now = now
        self._since = now() - _LOOK_BACK_MILLIS
        self._next = 0

    def tick(self) -> None:
        """Sweep, if it is time."""
        now = self._now()
        if now < self._next:
            return
        self._next = now + _PAUSE_MILLIS
        since = self._since
        ended = self._database.read(lambda connection: jobs.ended_since(connection, since, _MOST))
        for table_id in {job.table_id for job in ended if job.kind == "backfill"}:
            self._sweep_table(table_id)
        lost = [job for job in ended if job.kind == "refresh" and job.state != jobs.DONE]
        for view_id in {view_id for job in lost for view_id in (*job.spec.get("before", ()), job.table_id)}:
            self._sweep_view(view_id)
        self._since = (ended[-1].finished_at or now if len(ended) == _MOST else now) - _OVERLAP_MILLIS

    def _sweep_table(self, table_id: str) -> None:
        """Give up what jobs on a table needed that have ended."""
        folder = self._folder(table_id)
        if folder is None:
            return
        found = pins.pins(folder, "job")
        active = {job.id for job in self._database.read(lambda connection: jobs.active_on(connection, table_id))}
        pins.remove(folder, (pin for pin in found if pin.owner not in active))

    def _sweep_view(self, view_id: str) -> None:
        """Give up what a view does not need; nothing while a job refreshes it."""
        view = self._database.read(lambda connection: views.find(connection, view_id))
        for table_id in {source.table_id for source in Definition.from_json(view.definition).sources} if view else ():
            folder = self._folder(table_id)
            if folder is None:
                continue
            # Listed before the catalog is read: what a refresh pins from now on stays.
            found = [pin for pin in pins.pins(folder) if pin.owner == view_id]
            current = self._database.read(lambda connection: _at_rest(connection, view_id)) if found else None
            if current is not None:
                needed = pins.versions_needed(current, table_id)
                pins.remove(folder, (pin for pin in found if pin.version not in needed))

    def _folder(self, table_id: str) -> FileIO | None:
        table = self._database.read(lambda connection: tables.find_by_id(connection, table_id))
        return None if table is None else self._storage_root.folder(table.location)


def _at_rest(connection: Connection, view_id: str) -> View | None:
    """Return a view that no job works on."""
    active = jobs.active_of_kind(connection, "refresh")
    is_busy = any(view_id in (job.table_id, *job.spec.get("before", ())) for job in active)
    return None if is_busy else views.find(connection, view_id)
