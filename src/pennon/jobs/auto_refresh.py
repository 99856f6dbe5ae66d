"""Refreshes that nobody asks for: of views that follow commits to their sources, and of views with a schedule."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cronsim import CronSim
from lance_namespace.errors import LanceNamespaceError

from pennon.catalog import jobs, tables, view_schedules, views
from pennon.catalog.jobs import DONE, ENDED, HELD
from pennon.catalog.view_schedules import Slot
from pennon.core.clock import now_millis
from pennon.core.identifiers import format_identifier
from pennon.jobs.rate_limit import is_ready
from pennon.tables.change_estimate import rows_touched
from pennon.views.model.definition import Definition
from pennon.views.refresh.freshness import was_remade

if TYPE_CHECKING:
    from pennon.catalog import Connection, Database
    from pennon.catalog.jobs import Job
    from pennon.catalog.tables import Table
    from pennon.catalog.views import View
    from pennon.core.settings import Settings
    from pennon.jobs.queue import Queue
    from pennon.tables.datasets import Datasets

logger = logging.getLogger("pennon.worker")

KIND = "refresh"
FOLLOWER, SCHEDULER = "auto_refresh", "schedule"

#: Versions of tables, by the tables' ids.
Versions = dict[str, int]


def submit_refresh(
    queue: Queue,
    connection: Connection,
    view: Table,
    spec: dict[str, Any],
    *,
    submitted_by: str,
    context: dict[str, str] | None = None,
    priority: int = 0,
) -> Job:
    """Put a refresh into the queue, inside a transaction."""
    return queue.submit(
        connection,
        kind=KIND,
        table_id=view.id,
        branch="",
        target="",
        object=view.identifier,
        spec=spec,
        priority=priority,
        submitted_by=submitted_by,
        context=context or {},
    )


class AutoRefresh:
    """Looks at the views that are kept up to date by themselves, and submits the jobs they call for."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        datasets: Datasets,
        queue: Queue,
        clock: Callable[[], int] = now_millis,
    ) -> None:
        self._settings = settings
        self._database = database
        self._datasets = datasets
        self._queue = queue
        self._now = clock
        #: Sources that were looked at and had changed too little: not to be looked at again.
        self._too_little: dict[str, Versions] = {}

    def tick(self) -> None:
        """Submit the refreshes that are due."""
        following = self._database.read(views.following)
        for view in following:
            table = self._database.read(lambda connection, view=view: tables.find_by_id(connection, view.table_id))  # type: ignore[misc]
            if table is None:
                continue
            try:
                if not (view.schedule and self._fire(table, view, view.schedule)) and view.auto_refresh:
                    self._follow(table, view)
            except LanceNamespaceError as error:
                logger.info("no automatic refresh of %s: %s", format_identifier(table.identifier), error)
            except Exception:  # one whose storage is out of order hinders no other
                logger.exception("no automatic refresh of %s for now", format_identifier(table.identifier))
        known = {view.table_id for view in following}
        self._too_little = {view_id: seen for view_id, seen in self._too_little.items() if view_id in known}

    def _fire(self, table: Table, view: View, schedule: str) -> bool:
        """Submit the refresh of a schedule whose time has come; times that were missed are one."""
        now = self._now()
        slot = self._database.read(lambda connection: view_schedules.find(connection, table.id))
        if slot is not None and slot.schedule == schedule and now < slot.due_at:
            return False
        after = Slot(table.id, schedule, next_time(schedule, now))
        spec: dict[str, Any] = {}
        with suppress(LanceNamespaceError):  # a source that cannot be read is for the refresh to tell
            spec["sources"] = self._newest(Definition.from_json(view.definition))

        def work(connection: Connection) -> bool:
            active = [job for job in jobs.active_on(connection, table.id) if job.kind == KIND]
            is_due = slot is not None and slot.schedule == schedule
            if is_due and any(job.state in HELD for job in active):
                return False  # it may have read its sources before this time; it fires when that one has ended
            if not view_schedules.move(connection, slot, after) or not is_due:
                return False
            if not active:
                self._submit(connection, table, SCHEDULER, spec)
            return True

        return self._database.write(work)

    def _follow(self, table: Table, view: View) -> None:
        """Submit a refresh when enough was committed to a view's sources."""
        newest = self._newest(Definition.from_json(view.definition))
        recorded = dict(view.watermark.versions) if view.watermark else {}
        remade = [source for source in newest if self._was_remade(source, view)]
        behind = {source: version for source, version in newest.items() if recorded.get(source) != version}
        if not remade and (not behind or self._too_little.get(table.id) == newest):
            return
        touched = {source: self._touched(source, recorded.get(source)) for source in behind}
        touched |= {source: self._touched(source, None) for source in remade}
        if sum(touched.values()) < self._settings.auto_refresh_rows:
            self._too_little[table.id] = newest
            return

        def work(connection: Connection) -> None:
            last = jobs.newest(connection, table.id, "", "")
            # What failed, or was cancelled, is not repeated before its sources change.
            if last is not None and last.state in ENDED - {DONE} and last.spec.get("sources") == newest:
                return
            seconds = self._settings.auto_refresh_seconds
            if is_ready(connection, table.id, "", "", now=self._now(), seconds=seconds):
                self._submit(connection, table, FOLLOWER, {"sources": newest})

        self._database.write(work)

    def _submit(self, connection: Connection, table: Table, submitter: str, spec: dict[str, Any]) -> None:
        submit_refresh(self._queue, connection, table, spec, submitted_by=submitter)
        logger.info("a refresh of %s follows (%s)", format_identifier(table.identifier), submitter)

    def _newest(self, definition: Definition) -> Versions:
        """Return the newest versions of a view's sources; one that is read at a fixed version never changes."""
        open_sources = [source.table_id for source in definition.sources if source.version is None]
        found = {source_id: self._source(source_id) for source_id in open_sources}
        return {
            source_id: self._datasets.newest(table, "").version
            for source_id, table in found.items()
            if table is not None
        }

    def _was_remade(self, source_id: str, view: View) -> bool:
        if view.watermark is None or source_id not in view.watermark.manifests:
            return False
        table = self._source(source_id)
        return table is not None and was_remade(self._datasets, table, view.watermark)

    def _touched(self, source_id: str, version: int | None) -> int:
        """Return about how many rows of a source changed since a version; of one that is gone, all did."""
        table = self._source(source_id)
        if table is None:
            return 0
        new = self._datasets.at(table, "", None)
        if version is not None:
            try:
                return rows_touched(self._datasets.at(table, "", version), new)
            except LanceNamespaceError:
                logger.debug("version %s of %s is gone", version, table.identifier)
        return int(new.count_rows())

    def _source(self, table_id: str) -> Table | None:
        return self._database.read(lambda connection: tables.find_by_id(connection, table_id))


def next_time(schedule: str, after: int) -> int:
    """Return the first time of a schedule after a moment, both in milliseconds."""
    moment = next(CronSim(schedule, datetime.fromtimestamp(after / 1000, UTC)))
    return int(moment.timestamp() * 1000)
