"""Automatic maintenance: it follows commits, and decides from the catalog which branches need it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, cast

from lance_namespace.errors import LanceNamespaceError

from pennon.catalog import claim_rules, jobs, maintenance_state, tables, versions
from pennon.commits.manifest import InvalidManifestError, parse_manifest
from pennon.core.clock import now_millis
from pennon.core.identifiers import format_identifier
from pennon.core.job_model import (
    ACTIVE,
    AUTOMATIC_MAINTENANCE,
    MAINTENANCE,
    MAINTENANCE_PRIORITY,
    MAINTENANCE_TARGET,
    JobKind,
    JobState,
    MaintenanceSpec,
)
from pennon.maintenance.policy import policy_of
from pennon.maintenance.schedule import RESTING_SMALL_FRAGMENTS, earliest_start, plan_maintenance
from pennon.storage.layout import versions_folder

if TYPE_CHECKING:
    from pennon.catalog import Connection, Database
    from pennon.catalog.jobs import Job
    from pennon.catalog.maintenance_state import Branch, MaintenanceState
    from pennon.catalog.tables import Table
    from pennon.catalog.versions import Statistics
    from pennon.core.job_model import MaintenanceResult
    from pennon.core.settings import Settings
    from pennon.jobs.queue import Queue
    from pennon.maintenance.policy import MaintenancePolicy
    from pennon.maintenance.schedule import Schedule
    from pennon.storage.root import StorageRoot

logger = logging.getLogger("pennon.worker")

#: Jobs kept per branch besides those that failed: a busy table has one every few seconds.
_KEPT_JOBS = 5
#: Clocks of hosts differ, and a commit is recorded shortly after its time, so consecutive checks overlap.
_OVERLAP_MILLIS = 30_000
#: How often it is recorded up to when commits were followed, for workers that start.
_CURSOR_MILLIS = 60_000
#: Branches whose time has come that are looked at in one tick.
_MAX_DUE = 100
#: How soon a branch is looked at again on which someone else has a maintenance job.
_WATCH_MILLIS = 1000
#: How often a branch is looked at whose policy has disabled maintenance, or that cannot be read.
_LATER_MILLIS = 3600 * 1000


class AutoMaintenance:
    """Submits maintenance jobs for branches that need it."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        storage_root: StorageRoot,
        queue: Queue,
        clock: Callable[[], int] = now_millis,
    ) -> None:
        self._settings = settings
        self._database = database
        self._storage_root = storage_root
        self._queue = queue
        self._now = clock
        self._since: int | None = None
        self._recorded = 0
        #: The version up to which each branch was checked.
        self._checked: dict[tuple[str, str], int] = {}

    def tick(self) -> None:
        """Check the branches that have changed since the last call, and those whose time has come."""
        if not self._settings.maintenance_enabled:
            return
        now = self._now()
        if self._since is None:
            self._since = self._recorded = self._database.read(maintenance_state.followed_until)
            self._since -= _OVERLAP_MILLIS
        since = self._since
        changed = self._database.read(lambda connection: maintenance_state.changed_since(connection, since))
        due = self._database.read(lambda connection: maintenance_state.due(connection, now, _MAX_DUE))
        for branch in due:
            self._checked_branch(branch, now)
        seen = {(branch.table_id, branch.name) for branch in due}
        for branch in changed:
            key = (branch.table_id, branch.name)
            if key not in seen and self._checked.get(key, 0) < branch.version:
                self._checked_branch(branch, now)
            self._checked[key] = max(branch.version, self._checked.get(key, 0))
        recent = {(branch.table_id, branch.name) for branch in changed}
        self._checked = {key: version for key, version in self._checked.items() if key in recent}
        self._since = now - _OVERLAP_MILLIS
        if changed and now - self._recorded > _CURSOR_MILLIS:
            self._database.write(lambda connection: maintenance_state.follow(connection, now))
            self._recorded = now

    def _checked_branch(self, branch: Branch, now: int) -> None:
        """Check a branch; an error does not affect the others, and the branch is looked at again later."""
        try:
            self._check(branch, now)
        except Exception:
            logger.exception("no automatic maintenance of table %s for now", branch.table_id)
            later = replace(branch.state, due_at=now + _LATER_MILLIS, due="it could not be checked")
            self._database.write(lambda connection: maintenance_state.save(connection, later))

    def _check(self, branch: Branch, now: int) -> None:
        table = self._database.read(lambda connection: tables.find_by_id(connection, branch.table_id))
        statistics = self._statistics(table, branch) if table is not None else None
        if table is None or not table.managed or statistics is None:
            self._look_again(branch.state, None, "")
            return
        policy = self._database.read(lambda connection: policy_of(connection, self._settings, table))
        if not policy.enabled:
            self._look_again(branch.state, now + _LATER_MILLIS, "the policy has disabled maintenance")
            return
        if self._needs_write(branch, statistics, policy, now):
            self._database.write(
                lambda connection: self._submit_due(connection, table, branch, statistics, policy, now)
            )

    def _needs_write(self, branch: Branch, statistics: Statistics, policy: MaintenancePolicy, now: int) -> bool:
        """Return whether the branch needs a write: this only reads, because most checks find nothing new."""
        job_id = branch.state.job_id
        if job_id is not None:  # its end is seen in one of the next ticks
            job = self._queue.find(job_id)
            return job is None or job.state not in ACTIVE
        schedule = self._database.read(lambda connection: plan_maintenance(connection, branch, statistics, policy, now))
        return bool(schedule.due) or _must_record(branch.state, schedule.next_at, now) or _begins(branch, statistics)

    def _submit_due(
        self,
        connection: Connection,
        table: Table,
        seen: Branch,
        statistics: Statistics,
        policy: MaintenancePolicy,
        now: int,
    ) -> None:
        """Submit what is due, unless a worker did so since the branch was read, and record when to look again."""
        connection.lock(f"maintenance-{table.id}")
        branch = maintenance_state.find(connection, table.id, seen.name)
        if branch is None or branch.state.job_id != seen.state.job_id:
            return
        branch = replace(branch, state=self._settled(connection, branch, now))
        state = branch.state
        if statistics.unindexed_rows and state.unindexed_since is None:
            state = replace(state, unindexed_since=branch.recorded_at)
        branch = replace(branch, state=state)
        schedule = plan_maintenance(connection, branch, branch.statistics or statistics, policy, now)
        if state.job_id is not None or _is_maintained(connection, table.id, branch.name):
            state = replace(state, due_at=now + _WATCH_MILLIS)
        elif schedule.due and (start := earliest_start(state, policy, now, is_behind=schedule.is_behind)) > now:
            state = replace(state, due_at=start, due=_text(schedule))
        elif schedule.due:
            job = self._submit(connection, table, branch, schedule)
            state = replace(state, job_id=job.id, due_at=now, due=_text(schedule))
        elif _must_record(state, schedule.next_at, now):
            state = replace(state, due_at=schedule.next_at, due=schedule.next_reason)
        maintenance_state.save(connection, state)

    def _submit(self, connection: Connection, table: Table, branch: Branch, schedule: Schedule) -> Job:
        spec = MaintenanceSpec(reasons=[step.reason for step in schedule.due], seen_version=branch.version)
        if schedule.at_rest:
            spec["policy"] = {"max_small_fragments": RESTING_SMALL_FRAGMENTS}
        job = self._queue.submit(
            connection,
            schedule.kind,
            table,
            spec,
            branch=branch.name,
            target=MAINTENANCE_TARGET,
            priority=MAINTENANCE_PRIORITY,
            submitted_by=AUTOMATIC_MAINTENANCE,
        )
        claim_rules.delete_superseded(connection, table.id, branch.name, AUTOMATIC_MAINTENANCE, _KEPT_JOBS - 1)
        logger.info(
            "submitted %s of %s: %s", schedule.kind, format_identifier(table.identifier), ", ".join(spec["reasons"])
        )
        return job

    def _settled(self, connection: Connection, branch: Branch, now: int) -> MaintenanceState:
        """Return the state of a branch; if its last job has ended, with what that left."""
        state = branch.state
        job = jobs.find(connection, state.job_id) if state.job_id is not None else None
        if state.job_id is None or (job is not None and job.state in ACTIVE):
            return state
        if job is None or job.finished_at is None:  # it was deleted
            return replace(state, job_id=None, ended_at=now, failures=state.failures + 1)
        result = cast("MaintenanceResult | None", job.result)
        failed = job.state != JobState.DONE or (result is not None and bool(result["failures"]))
        left = versions.find(connection, branch.table_id, branch.name, result["version"]) if result else None
        statistics = left.statistics if left is not None else None
        state = replace(
            state,
            job_id=None,
            ended_at=job.finished_at,
            duration=job.finished_at - (job.started_at or job.finished_at),
            failures=state.failures + 1 if failed else 0,
        )
        if result is None or statistics is None or left is None or failed or job.kind == JobKind.CLEANUP:
            return state
        # Rows that were committed while the job ran are outside of the indexes, too, but the next run can add them.
        is_stuck = state.unindexed_since is not None and not result.get("rows_indexed")
        state = replace(
            state,
            version=job.maintenance_spec.get("seen_version", state.version),
            unindexed_rows=statistics.unindexed_rows if is_stuck else 0,
            unindexed_since=None,
        )
        if job.kind == JobKind.OPTIMIZE_INDICES:
            return state
        # A run merges a bounded number of fragments into one, so those that it made may be merged further.
        small = max(statistics.small_fragments - result["fragments_added"], 0)
        return replace(state, small_fragments=small, deleted_rows=statistics.deleted_rows)

    def _look_again(self, state: MaintenanceState, at: int | None, why: str) -> None:
        if (state.due_at, state.due) != (at, why) and (at is not None or state.due_at is not None):
            later = replace(state, due_at=at, due=why)
            self._database.write(lambda connection: maintenance_state.save(connection, later))

    def _statistics(self, table: Table | None, branch: Branch) -> Statistics | None:
        """Return the statistics of the newest version, from its manifest if the catalog has none."""
        if branch.statistics is not None or table is None:
            return branch.statistics
        newest = self._database.read(
            lambda connection: versions.find(connection, branch.table_id, branch.name, branch.version)
        )
        if newest is None:
            return None
        folder = self._storage_root.folder(table.location)
        try:
            content = folder.read(f"{versions_folder(newest.branch)}/{newest.manifest}")
            found = parse_manifest(content).statistics
        except (FileNotFoundError, InvalidManifestError, LanceNamespaceError):
            return None  # recovery handles it when it is read
        self._database.write(partial(versions.set_statistics, version=newest, statistics=found))
        return found


def _is_maintained(connection: Connection, table_id: str, branch: str) -> bool:
    """Return whether a maintenance job of anyone is active on a branch."""
    return any(job.branch == branch and job.kind in MAINTENANCE for job in jobs.active_on(connection, table_id))


def _must_record(state: MaintenanceState, at: int | None, now: int) -> bool:
    """Return whether the recorded time to look again is too late; an earlier one only costs another check."""
    if state.due_at is not None and state.due_at <= now:
        return True
    return at is not None and (state.due_at is None or at < state.due_at)


def _begins(branch: Branch, statistics: Statistics) -> bool:
    return bool(statistics.unindexed_rows) and branch.state.unindexed_since is None


def _text(schedule: Schedule) -> str:
    return ", ".join(step.reason for step in schedule.due)
