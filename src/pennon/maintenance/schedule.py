"""When maintenance of a branch is due, and why: decided from the catalog alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pennon.catalog import maintenance_state, removals
from pennon.catalog.versions import Statistics
from pennon.core.job_model import JobKind
from pennon.core.quiet_hours import end_of_quiet_hours
from pennon.maintenance.health import Action, Due

if TYPE_CHECKING:
    from pennon.catalog import Connection
    from pennon.catalog.maintenance_state import Branch, MaintenanceState
    from pennon.maintenance.policy import MaintenancePolicy

#: A branch without commits for this long is at rest: what is left to do is done then, however little it is.
REST_MILLIS = 60_000
#: Files of removed versions are removed together, up to this time after they may go.
FILE_BATCH_MILLIS = 60_000
#: Files that no writer commits any more are at least this old. Lance's own cleanup waits as long: a commit whose files
#: were removed would lose rows, and writers that take days are not unusual.
UNCOMMITTED_MILLIS = 7 * 24 * 3600 * 1000
#: They are looked for this long after a commit.
ORPHAN_MILLIS = UNCOMMITTED_MILLIS + 2 * 3600 * 1000
#: The pause between two automatic runs on a branch: as many times the duration of the last, and at least a second.
_PAUSE_FACTOR, _MIN_PAUSE_MILLIS = 4, 1000
#: A table is behind if it has this many times as many new small fragments as are merged at once. Then only the shortest
#: pause counts: the more fragments a job merges, the longer it takes, so longer pauses would let them grow for ever.
_BEHIND_FACTOR = 4
#: The pause after failures: it doubles with each in a row.
_RETRY_MILLIS, _MAX_RETRY_MILLIS = 10_000, 3600 * 1000
#: At rest, fragments are merged from this number on.
RESTING_SMALL_FRAGMENTS = 2


@dataclass(frozen=True)
class Schedule:
    """The steps of maintenance that are due, and when to look again."""

    due: tuple[Due, ...] = ()
    #: The earliest time at which another step may be due without a commit, in milliseconds, and why.
    next_at: int | None = None
    next_reason: str = ""
    #: Whether small fragments are merged from the smallest number on.
    at_rest: bool = False
    #: Whether small fragments are written faster than they are merged.
    is_behind: bool = False

    @property
    def kind(self) -> JobKind:
        """The kind of job that does what is due."""
        actions = {step.action for step in self.due}
        if actions == {Action.CLEANUP}:
            return JobKind.CLEANUP
        return JobKind.OPTIMIZE_INDICES if actions == {Action.OPTIMIZE_INDICES} else JobKind.MAINTAIN


class _Plan:
    """Collects steps that are due, and those that become due."""

    def __init__(self, now: int) -> None:
        self.now = now
        self.due: list[Due] = []
        self.later: list[tuple[int, str]] = []

    def add(self, action: Action, reason: str, at: int = 0) -> None:
        if at <= self.now:
            self.due.append(Due(action, reason))
        else:
            self.later.append((at, reason))


def plan_maintenance(
    connection: Connection, branch: Branch, statistics: Statistics, policy: MaintenancePolicy, now: int
) -> Schedule:
    """Return what is due on a branch, regardless of pauses and quiet hours."""
    plan, state = _Plan(now), branch.state
    rests_at = branch.recorded_at + REST_MILLIS
    _plan_compaction(plan, statistics, state, policy, rests_at)
    _plan_indices(plan, statistics, branch, policy)
    if statistics.has_auto_cleanup:
        plan.add(Action.CLEANUP, "a client has configured lance.auto_cleanup")
    _plan_cleanup(plan, connection, branch, policy, rests_at)
    if branch.version > 1 and (state.orphans_at or 0) < branch.recorded_at + ORPHAN_MILLIS:
        plan.add(Action.CLEANUP, "files that no version needs are looked for", branch.recorded_at + ORPHAN_MILLIS)
    next_at, reason = min(plan.later, default=(None, ""))
    added = statistics.small_fragments - state.small_fragments
    is_behind = added >= _BEHIND_FACTOR * policy.max_small_fragments
    return Schedule(tuple(plan.due), next_at, reason, at_rest=now >= rests_at, is_behind=is_behind)


def earliest_start(state: MaintenanceState, policy: MaintenancePolicy, now: int, *, is_behind: bool = False) -> int:
    """Return when the next automatic job may start: after a pause and outside of quiet hours."""
    start = now
    if state.ended_at is not None and state.ended_at <= now:  # otherwise the clock was set back
        factor = 0 if is_behind else _PAUSE_FACTOR
        start = max(start, state.ended_at + max(factor * state.duration, _MIN_PAUSE_MILLIS))
        if state.failures:
            start = max(start, state.ended_at + min(_RETRY_MILLIS << min(state.failures - 1, 16), _MAX_RETRY_MILLIS))
    return end_of_quiet_hours(policy.quiet_hours, start) or start


def _plan_compaction(
    plan: _Plan, statistics: Statistics, state: MaintenanceState, policy: MaintenancePolicy, rests_at: int
) -> None:
    small = statistics.small_fragments
    added = small - min(state.small_fragments, small)
    if added >= policy.max_small_fragments:
        plan.add(Action.COMPACT, f"{small} small fragments")
    elif added and small >= RESTING_SMALL_FRAGMENTS:
        plan.add(Action.COMPACT, f"{small} small fragments, and no commit for a while", rests_at)
    limit = policy.max_deleted_share * (statistics.rows + statistics.deleted_rows)
    if statistics.deleted_rows > max(limit, 1.1 * state.deleted_rows):
        plan.add(Action.COMPACT, f"{statistics.deleted_rows} deleted rows")


def _plan_indices(plan: _Plan, statistics: Statistics, branch: Branch, policy: MaintenancePolicy) -> None:
    state = branch.state
    if replace(branch, statistics=statistics).has_stale_entries:
        plan.add(Action.OPTIMIZE_INDICES, "stale index entries")
    outside = statistics.unindexed_rows
    added = outside - min(state.unindexed_rows, outside)
    if added >= policy.max_unindexed_rows:
        plan.add(Action.OPTIMIZE_INDICES, f"{outside} rows outside an index")
    elif added:
        since = branch.recorded_at if state.unindexed_since is None else state.unindexed_since
        at = since + int(policy.max_unindexed_seconds * 1000)
        plan.add(Action.OPTIMIZE_INDICES, f"{outside} rows outside an index for a while", at)


def _plan_cleanup(
    plan: _Plan, connection: Connection, branch: Branch, policy: MaintenancePolicy, rests_at: int
) -> None:
    state, ages = branch.state, policy_ages(connection, branch.table_id, branch.name, policy, plan.now)
    removable = maintenance_state.count_before(connection, branch.table_id, branch.name, ages.removable_before)
    removable -= state.kept_versions
    is_batch = removable >= max(policy.max_versions // 4, 1)
    if removable > 0:
        plan.add(Action.CLEANUP, f"{removable} versions that the policy does not keep", 0 if is_batch else rests_at)
    else:
        oldest = maintenance_state.replaced_at(connection, branch.table_id, branch.name, state.kept_versions)
        is_over = ages.count - state.kept_versions > policy.max_versions
        age = policy.min_version_seconds if is_over else policy.max_version_seconds
        if oldest is not None:
            at = max(oldest + int(age * 1000), plan.now + 1)
            plan.add(Action.CLEANUP, "versions reach the age at which they are removed", at)
    if state.kept_versions:  # among them may be snapshots, which reach the maximum age as well
        oldest = maintenance_state.replaced_at(connection, branch.table_id, branch.name, 0)
        if oldest is not None and (at := oldest + int(policy.max_version_seconds * 1000)) > plan.now:
            plan.add(Action.CLEANUP, "versions reach the age at which they are removed", at)
    removed_at = removals.oldest(connection, branch.table_id, branch.name)
    if removed_at is not None:
        at = removed_at + int(policy.min_file_seconds * 1000) + FILE_BATCH_MILLIS
        plan.add(Action.CLEANUP, "files of removed versions", at)


def policy_ages(
    connection: Connection, table_id: str, branch: str, policy: MaintenancePolicy, now: int
) -> maintenance_state.VersionAges:
    """Return up to which versions of a branch the limits of a policy reach."""
    return maintenance_state.version_ages(
        connection,
        table_id,
        branch,
        max_versions=policy.max_versions,
        min_age=now - int(policy.min_version_seconds * 1000),
        max_age=now - int(policy.max_version_seconds * 1000),
    )
