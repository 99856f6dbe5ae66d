"""Files of acknowledged commits, with their content until they are flushed to disk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pennon.catalog.locations import from_stored, to_stored

if TYPE_CHECKING:
    from pennon.catalog.database.protocol import Connection


@dataclass(frozen=True)
class UnflushedFile:
    """A file of a table, by its path in the table's folder."""

    table_id: str
    location: str
    path: str
    content: bytes


def insert(connection: Connection, table_id: str, location: str, files: Mapping[str, bytes]) -> None:
    """Record files of a commit, by path, in its transaction."""
    for path, content in files.items():
        connection.run(
            "INSERT INTO unflushed_files (table_id, path, location, content) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (table_id, path) DO UPDATE SET content = excluded.content",
            table_id,
            path,
            to_stored(connection, location),
            content,
        )


def listed(connection: Connection) -> list[UnflushedFile]:
    """Return all files, in the order of their tables."""
    rows = connection.all("SELECT table_id, location, path, content FROM unflushed_files ORDER BY table_id, path")
    return [UnflushedFile(row[0], from_stored(connection, row[1]), row[2], bytes(row[3])) for row in rows]


def delete(connection: Connection, table_id: str, paths: Iterable[str]) -> None:
    """Delete the records of files that were flushed."""
    for path in paths:
        connection.run("DELETE FROM unflushed_files WHERE table_id = ? AND path = ?", table_id, path)
