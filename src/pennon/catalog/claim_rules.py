"""Rules of maintenance jobs in the queue: they wait for users, and namespaces take turns.

The conditions are about a job ``j``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, LiteralString

from pennon.catalog.index_builds import STALE_MILLIS
from pennon.core.identifiers import key_of

if TYPE_CHECKING:
    from pennon.catalog.database.protocol import Connection

IS_MAINTENANCE: LiteralString = "j.kind IN ('compact', 'optimize_indices', 'cleanup', 'maintain')"
#: A user's job and maintenance never run on one branch at the same time.
MAINTENANCE_RUNS: LiteralString = (
    "EXISTS (SELECT 1 FROM jobs m WHERE m.table_id = j.table_id AND m.branch = j.branch "
    "AND m.kind IN ('compact', 'optimize_indices', 'cleanup', 'maintain') AND m.state IN ('running', 'committing'))"
)
#: Whether users have a job on the branch. A paused one has checkpoints for its fragments, so only compaction waits.
HAS_USER_JOB: LiteralString = (
    "EXISTS (SELECT 1 FROM jobs u WHERE u.table_id = j.table_id AND u.branch = j.branch "
    "AND u.kind NOT IN ('compact', 'optimize_indices', 'cleanup', 'maintain') "
    "AND (u.state IN ('pending', 'running', 'committing') OR (u.state = 'paused' AND j.kind = 'compact')))"
)
#: Whether an index of the branch is being built; its parameter is the oldest time of a heartbeat.
HAS_INDEX_BUILD: LiteralString = (
    "EXISTS (SELECT 1 FROM index_builds b WHERE b.table_id = j.table_id AND b.branch = j.branch "
    "AND b.failure IS NULL AND b.heartbeat_at >= ?)"
)
#: Whether a pending job may start; it has the parameter of ``HAS_INDEX_BUILD``.
MAY_START: LiteralString = (
    "((NOT " + IS_MAINTENANCE + " AND NOT " + MAINTENANCE_RUNS + ") "
    "OR (" + IS_MAINTENANCE + " AND NOT " + HAS_USER_JOB + " AND NOT " + HAS_INDEX_BUILD + "))"
)


def oldest_heartbeat(now: int) -> int:
    """Return the oldest time of the last heartbeat of an index build that is still running."""
    return now - STALE_MILLIS


def is_in_the_way(connection: Connection, job_id: str, now: int) -> bool:
    """Return whether a user's job or an index build waits for, or works on, the branch of a maintenance job."""
    where: LiteralString = "FROM jobs j WHERE j.id = ? AND (" + HAS_USER_JOB + " OR " + HAS_INDEX_BUILD + ")"
    return connection.one("SELECT 1 " + where, job_id, oldest_heartbeat(now)) is not None


def has_index_build(connection: Connection, job_id: str, now: int) -> bool:
    """Return whether an index of the branch of a maintenance job is being built."""
    where: LiteralString = "FROM jobs j WHERE j.id = ? AND " + HAS_INDEX_BUILD
    return connection.one("SELECT 1 " + where, job_id, oldest_heartbeat(now)) is not None


def has_paused(connection: Connection, table_id: str, branch: str) -> bool:
    """Return whether a user's job on a branch is paused."""
    row = connection.one(
        "SELECT 1 FROM jobs WHERE table_id = ? AND branch = ? AND state = 'paused' "
        "AND kind NOT IN ('compact', 'optimize_indices', 'cleanup', 'maintain') LIMIT 1",
        table_id,
        branch,
    )
    return row is not None


def take_turn(connection: Connection, namespace: Sequence[str], now: int) -> None:
    """Record that a worker has claimed maintenance of a table in a namespace."""
    connection.run(
        "INSERT INTO maintenance_turns (namespace, claimed_at) VALUES (?, ?) "
        "ON CONFLICT (namespace) DO UPDATE SET claimed_at = excluded.claimed_at",
        key_of(namespace),
        now,
    )


def delete_superseded(connection: Connection, table_id: str, branch: str, submitted_by: str, keep: int) -> None:
    """Delete the jobs of a submitter on a branch that have succeeded or were cancelled, except the newest."""
    connection.run(
        "DELETE FROM jobs WHERE table_id = ? AND branch = ? AND submitted_by = ? AND state IN ('done', 'cancelled') "
        "AND id <= (SELECT id FROM jobs WHERE table_id = ? AND branch = ? AND submitted_by = ? "
        "AND state IN ('done', 'cancelled') ORDER BY id DESC LIMIT 1 OFFSET ?)",
        table_id,
        branch,
        submitted_by,
        table_id,
        branch,
        submitted_by,
        keep,
    )
