"""Shallow clones: tables that read the files of a source table, which must exist as long as they do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pennon.catalog import tables

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pennon.catalog.database.protocol import Connection
    from pennon.catalog.tables import Table


def insert(connection: Connection, clone_id: str, source_id: str) -> None:
    """Record a shallow clone; raises ``ForeignKeyError`` if the source does not exist."""
    connection.run("INSERT INTO clones (clone_id, source_id) VALUES (?, ?)", clone_id, source_id)


def insert_bases(connection: Connection, clone_id: str, paths: Iterable[str]) -> None:
    """Record the base paths of a clone, which it may read even after its source is deregistered."""
    for path in paths:
        connection.run("INSERT INTO clone_bases (clone_id, path) VALUES (?, ?)", clone_id, path)


def bases_of(connection: Connection, clone_id: str) -> list[str]:
    """Return the base paths of a clone."""
    return [row[0] for row in connection.all("SELECT path FROM clone_bases WHERE clone_id = ?", clone_id)]


def delete(connection: Connection, clone_id: str) -> None:
    """Delete the record of a shallow clone."""
    connection.run("DELETE FROM clones WHERE clone_id = ?", clone_id)


def of(connection: Connection, source_id: str) -> list[Table]:
    """Return the shallow clones of a table."""
    rows = connection.all("SELECT clone_id FROM clones WHERE source_id = ? ORDER BY clone_id", source_id)
    found = [tables.find_by_id(connection, row[0]) for row in rows]
    return [table for table in found if table is not None]


def source_of(connection: Connection, clone_id: str) -> Table | None:
    """Return the source of a shallow clone; None for other tables."""
    row = connection.one("SELECT source_id FROM clones WHERE clone_id = ?", clone_id)
    return tables.find_by_id(connection, row[0]) if row else None
