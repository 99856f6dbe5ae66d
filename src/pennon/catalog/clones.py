"""Shallow clones: tables that read the files of another, which has to stay for as long as they do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pennon.catalog import tables

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pennon.catalog.database.protocol import Connection
    from pennon.catalog.tables import Table


def insert(connection: Connection, clone_id: str, origin_id: str) -> None:
    """Record that a table reads the files of another; raises ``StillReferencedError`` when that one is gone."""
    connection.run("INSERT INTO clones (clone_id, origin_id) VALUES (?, ?)", clone_id, origin_id)


def insert_bases(connection: Connection, clone_id: str, paths: Iterable[str]) -> None:
    """Record the base paths that a table was cloned with: they stay its own, also when its origin is forgotten."""
    for path in paths:
        connection.run("INSERT INTO clone_bases (clone_id, path) VALUES (?, ?)", clone_id, path)


def bases_of(connection: Connection, clone_id: str) -> list[str]:
    """Return the base paths that a table was cloned with."""
    return [row[0] for row in connection.all("SELECT path FROM clone_bases WHERE clone_id = ?", clone_id)]


def delete(connection: Connection, clone_id: str) -> None:
    """Forget that a table reads the files of another."""
    connection.run("DELETE FROM clones WHERE clone_id = ?", clone_id)


def of(connection: Connection, origin_id: str) -> list[Table]:
    """Return the tables that read the files of one."""
    rows = connection.all("SELECT clone_id FROM clones WHERE origin_id = ? ORDER BY clone_id", origin_id)
    found = [tables.find_by_id(connection, row[0]) for row in rows]
    return [table for table in found if table is not None]


def origin_of(connection: Connection, clone_id: str) -> Table | None:
    """Return the table whose files a table reads, if it does."""
    row = connection.one("SELECT origin_id FROM clones WHERE clone_id = ?", clone_id)
    return tables.find_by_id(connection, row[0]) if row else None
