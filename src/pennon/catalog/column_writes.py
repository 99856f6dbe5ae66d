"""Commits that wrote columns of existing fragments in place: one record per version."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pennon.catalog.database.protocol import Connection

#: Records kept per branch. Writes before the oldest of them are unknown.
MAX_RECORDS = 512


def save(connection: Connection, table_id: str, branch: str, version: int, state: bytes) -> None:
    """Record what a version wrote, and delete the oldest records of the branch beyond the limit.

    The record outlives its version, whose rows may be part of later versions.
    """
    connection.run(
        "INSERT INTO column_writes (table_id, branch, version, state) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (table_id, branch, version) DO UPDATE SET state = excluded.state",
        table_id,
        branch,
        version,
        state,
    )
    connection.run(
        "DELETE FROM column_writes WHERE table_id = ? AND branch = ? AND version <= "
        "(SELECT version FROM column_writes WHERE table_id = ? AND branch = ? "
        "ORDER BY version DESC LIMIT 1 OFFSET ?)",
        table_id,
        branch,
        table_id,
        branch,
        MAX_RECORDS,
    )


def of_branch(connection: Connection, table_id: str, branch: str, since: int) -> list[tuple[int, bytes]]:
    """Return the records of a branch after a version as (version, state), oldest first."""
    rows = connection.all(
        "SELECT version, state FROM column_writes WHERE table_id = ? AND branch = ? AND version > ? ORDER BY version",
        table_id,
        branch,
        since,
    )
    return [(int(row[0]), bytes(row[1])) for row in rows]


def delete(connection: Connection, table_id: str, branch: str, version: int) -> None:
    """Delete the record of a version that was withdrawn."""
    connection.run(
        "DELETE FROM column_writes WHERE table_id = ? AND branch = ? AND version = ?", table_id, branch, version
    )


def delete_branch(connection: Connection, table_id: str, branch: str) -> None:
    """Delete the records of a branch, which do not apply to another branch of its name."""
    connection.run("DELETE FROM column_writes WHERE table_id = ? AND branch = ?", table_id, branch)
