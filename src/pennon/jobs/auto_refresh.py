"""Automatic refreshes: of views that follow commits to their sources, and of views with a schedule."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from cronsim import CronSim
from lance_namespace.errors import LanceNamespaceError

from pennon.catalog import jobs, view_schedules, views
from pennon.catalog.view_schedules import ScheduledRun
from pennon.core.clock import now_millis
from pennon.core.identifiers import format_identifier
from pennon.core.job_model import LEASED, JobKind, RefreshSpec
from pennon.jobs.triggers import AutomaticJobs, TriggerServices, is_unsuccessful
from pennon.tables.change_estimate import estimate_changed_rows
from pennon.views.model.definition import Definition
from pennon.views.refresh.freshness import was_recreated

if TYPE_CHECKING:
    from pennon.catalog import Connection
    from pennon.catalog.tables import Table
    from pennon.catalog.views import View

logger = logging.getLogger("pennon.worker")

FOLLOWER, SCHEDULER = "auto_refresh", "schedule"

#: Versions of tables, by table id.
Versions = dict[str, int]


class AutoRefresh(AutomaticJobs):
    """Submits refreshes of views with ``auto_refresh`` or a schedule."""

    action = "refresh"

    def __init__(self, services: TriggerServices, clock: Callable[[], int] = now_millis) -> None:
        super().__init__(services, clock)
        #: By view: versions of its sources that differ too little from the last refresh, and need no second check.
        self._too_little: dict[str, Versions] = {}

    def tick(self) -> None:
        """Submit the refreshes that are due."""
        following = self._database.read(views.auto_refreshed)
        for view in following:
            table = self._table(view.table_id)
            if table is not None:
                self._checked(table, partial(self._check, table, view))
        known = {view.table_id for view in following}
        self._too_little = {view_id: seen for view_id, seen in self._too_little.items() if view_id in known}

    def _check(self, table: Table, view: View) -> bool:
        if not (view.schedule and self._follow_schedule(table, view, view.schedule)) and view.auto_refresh:
            self._follow_sources(table, view)
        return True

    def _follow_schedule(self, table: Table, view: View, schedule: str) -> bool:
        """Submit the refresh of a schedule that is due; several missed times count as one."""
        now = self._now()
        slot = self._database.read(lambda connection: view_schedules.find(connection, table.id))
        if slot is not None and slot.schedule == schedule and now < slot.due_at:
            return False
        after = ScheduledRun(table.id, schedule, next_time(schedule, now))
        spec = RefreshSpec()
        with suppress(LanceNamespaceError):  # the refresh reports a source that cannot be read
            spec["sources"] = self._newest(Definition.from_json(view.definition))

        def work(connection: Connection) -> bool:
            active = [job for job in jobs.active_on(connection, table.id) if job.kind == JobKind.REFRESH]
            is_due = slot is not None and slot.schedule == schedule
            if is_due and any(job.state in LEASED for job in active):
                return False  # that job may have read its sources before the due time; wait until it has ended
            if not view_schedules.advance(connection, slot, after) or not is_due:
                return False
            if not active:
                self._submit(connection, table, SCHEDULER, spec)
            return True

        return self._database.write(work)

    def _follow_sources(self, table: Table, view: View) -> None:
        """Submit a refresh if enough rows were committed to the sources of a view."""
        newest = self._newest(Definition.from_json(view.definition))
        recorded = dict(view.watermark.versions) if view.watermark else {}
        remade = [source for source in newest if self._was_recreated(source, view)]
        behind = {source: version for source, version in newest.items() if recorded.get(source) != version}
        if not remade and (not behind or self._too_little.get(table.id) == newest):
            return
        touched = {source: self._touched(source, recorded.get(source)) for source in behind}
        touched |= {source: self._touched(source, None) for source in remade}
        if sum(touched.values()) < self._settings.auto_refresh_min_rows:
            self._too_little[table.id] = newest
            return

        def work(connection: Connection) -> None:
            last = jobs.newest(connection, table.id, "", "")
            # A refresh that failed or was cancelled is not repeated before its sources change.
            if last is not None and is_unsuccessful(last) and last.refresh_spec.get("sources") == newest:
                return
            if self._is_ready(connection, table, "", "", cooldown=self._settings.auto_refresh_every_seconds):
                self._submit(connection, table, FOLLOWER, {"sources": newest})

        self._database.write(work)

    def _submit(self, connection: Connection, table: Table, submitter: str, spec: RefreshSpec) -> None:
        self._queue.submit(connection, JobKind.REFRESH, table, spec, submitted_by=submitter)
        logger.info("submitted a refresh of %s (%s)", format_identifier(table.identifier), submitter)

    def _newest(self, definition: Definition) -> Versions:
        """Return the newest versions of the sources of a view, except those with a pinned version."""
        open_sources = [source.table_id for source in definition.sources if source.version is None]
        found = {source_id: self._table(source_id) for source_id in open_sources}
        return {
            source_id: self._datasets.newest(table, "").version
            for source_id, table in found.items()
            if table is not None
        }

    def _was_recreated(self, source_id: str, view: View) -> bool:
        if view.watermark is None or source_id not in view.watermark.manifests:
            return False
        table = self._table(source_id)
        return table is not None and was_recreated(self._datasets, table, view.watermark)

    def _touched(self, source_id: str, version: int | None) -> int:
        """Estimate how many rows of a source have changed since a version, or all rows if the version is gone."""
        table = self._table(source_id)
        if table is None:
            return 0
        new = self._datasets.at(table, "", None)
        if version is not None:
            try:
                return estimate_changed_rows(self._datasets.at(table, "", version), new)
            except LanceNamespaceError:
                logger.debug("version %s of %s is gone", version, table.identifier)
        return int(new.count_rows())


def next_time(schedule: str, after: int) -> int:
    """Return the first time of a cron schedule after a time, both in milliseconds."""
    moment = next(CronSim(schedule, datetime.fromtimestamp(after / 1000, UTC)))
    return int(moment.timestamp() * 1000)
