"""Multipart uploads, with the files of each part until they are committed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pennon.core.clock import now_millis

if TYPE_CHECKING:
    from pennon.catalog.database.protocol import Connection, Row


@dataclass(frozen=True)
class Upload:
    """An upload that is not complete yet."""

    id: str
    table_id: str
    branch: str


@dataclass(frozen=True)
class UploadPart:
    """A part of an upload: its fragments as Lance's JSON, its schema, and whether it overwrites the table."""

    id: str
    fragments: str
    schema: str
    rows: int
    overwrite: bool


def _part(row: Row) -> UploadPart:
    return UploadPart(row[0], row[1], row[2], row[3], bool(row[4]))


def insert(connection: Connection, upload: Upload) -> None:
    """Insert an upload."""
    connection.run(
        "INSERT INTO uploads (id, table_id, branch, created_at) VALUES (?, ?, ?, ?)",
        upload.id,
        upload.table_id,
        upload.branch,
        now_millis(),
    )


def find(connection: Connection, upload_id: str) -> Upload | None:
    """Return an upload."""
    row = connection.one("SELECT id, table_id, branch FROM uploads WHERE id = ?", upload_id)
    return Upload(*row) if row else None


def exist(connection: Connection, table_id: str) -> bool:
    """Return whether a table has uploads that are not complete."""
    return connection.one("SELECT 1 FROM uploads WHERE table_id = ? LIMIT 1", table_id) is not None


def put_part(connection: Connection, upload_id: str, part: UploadPart) -> UploadPart | None:
    """Insert or replace a part, and return the replaced one; raises ``ForeignKeyError`` without its upload."""
    row = connection.one(
        "SELECT id, fragments, arrow_schema, row_count, overwrite FROM upload_parts WHERE upload_id = ? AND id = ?",
        upload_id,
        part.id,
    )
    connection.run("DELETE FROM upload_parts WHERE upload_id = ? AND id = ?", upload_id, part.id)
    connection.run(
        "INSERT INTO upload_parts (upload_id, id, fragments, arrow_schema, row_count, overwrite) "
        "VALUES (?, ?, ?, ?, ?, ?)",
        upload_id,
        part.id,
        part.fragments,
        part.schema,
        part.rows,
        int(part.overwrite),
    )
    return _part(row) if row else None


def parts(connection: Connection, upload_id: str) -> list[UploadPart]:
    """Return the parts of an upload in the order of their ids."""
    rows = connection.all(
        "SELECT id, fragments, arrow_schema, row_count, overwrite FROM upload_parts WHERE upload_id = ? ORDER BY id",
        upload_id,
    )
    return [_part(row) for row in rows]


def delete(connection: Connection, upload_id: str) -> bool:
    """Delete an upload and its parts; false if it does not exist."""
    return connection.run("DELETE FROM uploads WHERE id = ?", upload_id) == 1


def created_before(connection: Connection, millis: int) -> list[Upload]:
    """Return uploads that were created before a time."""
    rows = connection.all("SELECT id, table_id, branch FROM uploads WHERE created_at < ?", millis)
    return [Upload(*row) for row in rows]
