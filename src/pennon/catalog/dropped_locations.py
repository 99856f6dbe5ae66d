"""StorageRoot that a table has by its name, and that one was dropped from: writers may still hold it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pennon.catalog.locations import to_stored
from pennon.core.clock import now_millis

if TYPE_CHECKING:
    from pennon.catalog.database.protocol import Connection


def add(connection: Connection, location: str) -> None:
    """Remember that a table was dropped from a place."""
    connection.run(
        "INSERT INTO dropped_places (location, dropped_at) VALUES (?, ?) "
        "ON CONFLICT (location) DO UPDATE SET dropped_at = excluded.dropped_at",
        to_stored(connection, location),
        now_millis(),
    )


def holds(connection: Connection, location: str) -> bool:
    """Tell whether a table was dropped from a place."""
    stored = to_stored(connection, location)
    return connection.one("SELECT 1 FROM dropped_places WHERE location = ?", stored) is not None


def forget_before(connection: Connection, millis: int) -> None:
    """Forget places that nobody can be expected to hold any more."""
    connection.run("DELETE FROM dropped_places WHERE dropped_at < ?", millis)
