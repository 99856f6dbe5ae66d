"""Versions that were recorded, but whose manifests were lost on storage; `pennon doctor` lists them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pennon.core.clock import now_millis

if TYPE_CHECKING:
    from pennon.catalog.database.protocol import Connection
    from pennon.catalog.versions import Version


@dataclass(frozen=True)
class LostVersion:
    """A version whose manifest could neither be read nor recovered."""

    table_id: str
    branch: str
    version: int
    reason: str
    lost_at: int


def add(connection: Connection, version: Version, reason: str) -> None:
    """Record a lost version; raises ``ForeignKeyError`` if its table was dropped meanwhile."""
    connection.run(
        "INSERT INTO lost_versions (table_id, branch, version, digest, reason, lost_at) VALUES (?, ?, ?, ?, ?, ?) "
        "ON CONFLICT DO NOTHING",
        version.table_id,
        version.branch,
        version.version,
        version.digest,
        reason,
        now_millis(),
    )


def listing(connection: Connection, limit: int) -> list[LostVersion]:
    """Return the most recently lost versions."""
    rows = connection.all(
        "SELECT table_id, branch, version, reason, lost_at FROM lost_versions ORDER BY lost_at DESC LIMIT ?", limit
    )
    return [LostVersion(*row) for row in rows]
