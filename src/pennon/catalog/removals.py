"""Versions that a cleanup has removed, and whose files it still has to remove."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pennon.catalog.database.protocol import Connection


@dataclass(frozen=True)
class Removal:
    """Versions of a branch that were removed together."""

    id: str
    table_id: str
    branch: str
    versions: tuple[int, ...]
    removed_at: int
    #: Whether their manifests are gone, so that only their other files are left.
    unlisted: bool = False


def insert(connection: Connection, removal: Removal) -> None:
    """Record a removal; raises ``ForeignKeyError`` if the table was dropped."""
    connection.run(
        "INSERT INTO removals (id, table_id, branch, versions, removed_at, unlisted) VALUES (?, ?, ?, ?, ?, 0)",
        removal.id,
        removal.table_id,
        removal.branch,
        json.dumps(removal.versions),
        removal.removed_at,
    )


def of_branch(connection: Connection, table_id: str, branch: str) -> list[Removal]:
    """Return the removals of a branch, oldest first."""
    rows = connection.all(
        "SELECT id, table_id, branch, versions, removed_at, unlisted FROM removals WHERE table_id = ? AND branch = ? "
        "ORDER BY removed_at, id",
        table_id,
        branch,
    )
    return [Removal(row[0], row[1], row[2], tuple(json.loads(row[3])), int(row[4]), bool(row[5])) for row in rows]


def of_table(connection: Connection, table_id: str) -> list[str]:
    """Return the ids of all removals of a table."""
    return [row[0] for row in connection.all("SELECT id FROM removals WHERE table_id = ?", table_id)]


def oldest(connection: Connection, table_id: str, branch: str) -> int | None:
    """Return the time of the oldest removal of a branch."""
    row = connection.one("SELECT MIN(removed_at) FROM removals WHERE table_id = ? AND branch = ?", table_id, branch)
    return None if row is None or row[0] is None else int(row[0])


def contains(connection: Connection, table_id: str, branch: str, version: int) -> bool:
    """Return whether a version is being removed."""
    return any(version in removal.versions for removal in of_branch(connection, table_id, branch))


def mark_unlisted(connection: Connection, removal_id: str, versions: tuple[int, ...]) -> None:
    """Record that the manifests of these versions are gone; others of the removal are versions again."""
    connection.run("UPDATE removals SET versions = ?, unlisted = 1 WHERE id = ?", json.dumps(versions), removal_id)


def delete(connection: Connection, removal_id: str) -> None:
    """Delete a removal whose files are gone."""
    connection.run("DELETE FROM removals WHERE id = ?", removal_id)


def delete_branch(connection: Connection, table_id: str, branch: str) -> None:
    """Delete the removals of a branch that was deleted with its files."""
    connection.run("DELETE FROM removals WHERE table_id = ? AND branch = ?", table_id, branch)
