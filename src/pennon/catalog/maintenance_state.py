"""The state of maintenance of each branch: what the last run left, and when the next one may be due."""

from __future__ import annotations

from dataclasses import astuple, dataclass, field
from typing import TYPE_CHECKING, LiteralString

from pennon.catalog.versions import Statistics, statistics_of
from pennon.core.identifiers import child_key_range, key_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pennon.catalog.database.protocol import Connection, Row


@dataclass(frozen=True)
class MaintenanceState:
    """What the last maintenance of a branch left."""

    table_id: str
    branch: str
    #: The newest version when the last maintenance of indexes was submitted: it has seen this one, at least.
    version: int = 0
    #: What it left, which another run would leave too.
    small_fragments: int = 0
    deleted_rows: int = 0
    unindexed_rows: int = 0
    #: Versions beyond the limits of the policy that something needs.
    kept_versions: int = 0
    #: When rows outside an index were first seen, in milliseconds.
    unindexed_since: int | None = None
    #: The last automatic job, until its end was seen.
    job_id: str | None = None
    ended_at: int | None = None
    #: The duration of the last job in milliseconds.
    duration: int = 0
    #: The number of failures in a row.
    failures: int = 0
    #: When to look again although nothing was committed, and why.
    due_at: int | None = None
    due: str = ""
    #: When files that no version needs were looked for.
    orphans_at: int | None = None


@dataclass(frozen=True)
class Branch:
    """The newest version of a branch, with the state of its maintenance."""

    table_id: str
    name: str
    version: int
    recorded_at: int
    statistics: Statistics | None
    state: MaintenanceState
    #: Whether the state is stored.
    is_known: bool = field(default=False)

    @property
    def has_stale_entries(self) -> bool:
        """Whether a client's compaction left entries of deleted rows in an index that no maintenance has seen."""
        stale_since = self.statistics.stale_since if self.statistics is not None else None
        return stale_since is not None and stale_since > self.state.version


_SELECT: LiteralString = (
    "SELECT v.table_id, v.branch, v.version, v.recorded_at, v.fragments, v.small_fragments, v.row_count, "
    "v.deleted_rows, v.data_bytes, v.indices, v.unindexed_rows, v.stale_since, v.has_auto_cleanup, "
    "s.version, s.small_fragments, s.deleted_rows, s.unindexed_rows, s.kept_versions, s.unindexed_since, s.job_id, "
    "s.ended_at, s.duration, s.failures, s.due_at, s.due, s.orphans_at "
)
#: Branches with versions since a time.
_CHANGED: LiteralString = (
    "FROM (SELECT table_id, branch, MAX(version) AS newest FROM versions WHERE recorded_at >= ? "
    "GROUP BY table_id, branch) n "
    "JOIN versions v ON v.table_id = n.table_id AND v.branch = n.branch AND v.version = n.newest "
    "LEFT JOIN maintenance_state s ON s.table_id = v.table_id AND s.branch = v.branch"
)
#: Branches to look at by a time, with their newest version. Those with an active job are left out: a backlog of jobs
#: would fill the list, and no other branch be looked at.
_DUE: LiteralString = (
    "FROM maintenance_state s JOIN versions v ON v.table_id = s.table_id AND v.branch = s.branch "
    "WHERE s.due_at IS NOT NULL AND s.due_at <= ? AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.id = s.job_id "
    "AND j.state IN ('pending', 'running', 'committing', 'paused')) AND v.version = "
    "(SELECT MAX(version) FROM versions WHERE table_id = s.table_id AND branch = s.branch) "
    "ORDER BY s.due_at LIMIT ?"
)


def _branch(row: Row) -> Branch:
    state = MaintenanceState(row[0], row[1], *row[13:]) if row[13] is not None else MaintenanceState(row[0], row[1])
    return Branch(row[0], row[1], int(row[2]), int(row[3]), statistics_of(row[4:13]), state, row[13] is not None)


def changed_since(connection: Connection, millis: int) -> list[Branch]:
    """Return the branches with versions recorded since a time."""
    return [_branch(row) for row in connection.all(_SELECT + _CHANGED, millis)]


def due(connection: Connection, now: int, limit: int) -> list[Branch]:
    """Return the branches to look at although nothing was committed to them, those that wait longest first."""
    return [_branch(row) for row in connection.all(_SELECT + _DUE, now, limit)]


def find(connection: Connection, table_id: str, branch: str) -> Branch | None:
    """Return one branch; None if it has no versions."""
    row = connection.one(
        _SELECT + "FROM versions v LEFT JOIN maintenance_state s ON s.table_id = v.table_id AND s.branch = v.branch "
        "WHERE v.table_id = ? AND v.branch = ? ORDER BY v.version DESC LIMIT 1",
        table_id,
        branch,
    )
    return _branch(row) if row else None


def save(connection: Connection, state: MaintenanceState) -> None:
    """Record the state of a branch; raises ``ForeignKeyError`` if its table was dropped."""
    connection.run(
        "INSERT INTO maintenance_state (table_id, branch, version, small_fragments, deleted_rows, unindexed_rows, "
        "kept_versions, unindexed_since, job_id, ended_at, duration, failures, due_at, due, orphans_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (table_id, branch) DO UPDATE SET "
        "version = excluded.version, small_fragments = excluded.small_fragments, "
        "deleted_rows = excluded.deleted_rows, unindexed_rows = excluded.unindexed_rows, "
        "kept_versions = excluded.kept_versions, unindexed_since = excluded.unindexed_since, "
        "job_id = excluded.job_id, ended_at = excluded.ended_at, duration = excluded.duration, "
        "failures = excluded.failures, due_at = excluded.due_at, due = excluded.due, orphans_at = excluded.orphans_at",
        *astuple(state),
    )


def wake(connection: Connection, table_id: str, now: int) -> None:
    """Have a table looked at again although nothing was committed: its policy has changed."""
    connection.run("UPDATE maintenance_state SET due_at = ? WHERE table_id = ?", now, table_id)


def wake_below(connection: Connection, namespace: Sequence[str], now: int) -> None:
    """Have the tables in and below a namespace looked at again: the policy that they inherit has changed."""
    key = key_of(namespace)
    connection.run(
        "UPDATE maintenance_state SET due_at = ? WHERE table_id IN "
        "(SELECT id FROM tables WHERE namespace = ? OR (namespace > ? AND namespace < ?))",
        now,
        key,
        *child_key_range(key),
    )


def followed_until(connection: Connection) -> int:
    """Return the time up to which commits were followed by any worker."""
    row = connection.one("SELECT followed_until FROM maintenance_cursor")
    return int(row[0]) if row else 0


def follow(connection: Connection, until: int) -> None:
    """Record the time up to which commits were followed."""
    connection.run("UPDATE maintenance_cursor SET followed_until = ? WHERE followed_until < ?", until, until)


def record_orphans(connection: Connection, table_id: str, branch: str, at: int) -> None:
    """Record when orphan files of a branch were looked for."""
    connection.run(
        "UPDATE maintenance_state SET orphans_at = ? WHERE table_id = ? AND branch = ?", at, table_id, branch
    )


def record_kept(connection: Connection, table_id: str, branch: str, versions: int) -> None:
    """Record how many versions beyond the limits of the policy a cleanup has kept, because something needs them."""
    connection.run(
        "UPDATE maintenance_state SET kept_versions = ? WHERE table_id = ? AND branch = ?", versions, table_id, branch
    )


def delete_branch(connection: Connection, table_id: str, branch: str) -> None:
    """Delete the state of a branch, which does not apply to another branch of its name."""
    connection.run("DELETE FROM maintenance_state WHERE table_id = ? AND branch = ?", table_id, branch)


@dataclass(frozen=True)
class VersionAges:
    """The versions of a branch by number and age, as far as retention needs them."""

    count: int
    #: Versions before this number are beyond the maximum number of versions.
    beyond_rank: int
    #: Versions before this number were replaced before the minimum, and the maximum, age.
    beyond_min_age: int
    beyond_max_age: int

    @property
    def removable_before(self) -> int:
        """The number before which a policy removes all versions that nothing needs."""
        return min(self.beyond_min_age, max(self.beyond_rank, self.beyond_max_age))


def version_ages(
    connection: Connection, table_id: str, branch: str, *, max_versions: int, min_age: int, max_age: int
) -> VersionAges:
    """Return the versions of a branch by age; ``min_age`` and ``max_age`` are times in milliseconds."""
    row = connection.one(
        "SELECT COUNT(*), MAX(CASE WHEN recorded_at <= ? THEN version ELSE 0 END), "
        "MAX(CASE WHEN recorded_at <= ? THEN version ELSE 0 END) FROM versions WHERE table_id = ? AND branch = ?",
        min_age,
        max_age,
        table_id,
        branch,
    )
    rank = connection.one(
        "SELECT version FROM versions WHERE table_id = ? AND branch = ? ORDER BY version DESC LIMIT 1 OFFSET ?",
        table_id,
        branch,
        max_versions - 1,
    )
    count, beyond_min, beyond_max = (int(value or 0) for value in row or (0, 0, 0))
    return VersionAges(count, int(rank[0]) if rank else 0, beyond_min, beyond_max)


def count_before(connection: Connection, table_id: str, branch: str, version: int) -> int:
    """Return the number of versions of a branch before one."""
    row = connection.one(
        "SELECT COUNT(*) FROM versions WHERE table_id = ? AND branch = ? AND version < ?", table_id, branch, version
    )
    return int(row[0]) if row else 0


def replaced_at(connection: Connection, table_id: str, branch: str, position: int) -> int | None:
    """Return when the version at a position, counted from the oldest, was replaced by the next; None if it was not."""
    row = connection.one(
        "SELECT recorded_at FROM versions WHERE table_id = ? AND branch = ? ORDER BY version LIMIT 1 OFFSET ?",
        table_id,
        branch,
        position + 1,
    )
    return int(row[0]) if row else None
