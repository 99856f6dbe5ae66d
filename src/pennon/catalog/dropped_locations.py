"""Locations of dropped root tables: writers may still have the dropped table open there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pennon.catalog.locations import to_stored
from pennon.core.clock import now_millis

if TYPE_CHECKING:
    from pennon.catalog.database.protocol import Connection


def add(connection: Connection, location: str) -> None:
    """Record that the table at a location was dropped."""
    connection.run(
        "INSERT INTO dropped_locations (location, dropped_at) VALUES (?, ?) "
        "ON CONFLICT (location) DO UPDATE SET dropped_at = excluded.dropped_at",
        to_stored(connection, location),
        now_millis(),
    )


def contains(connection: Connection, location: str) -> bool:
    """Tell whether a table at a location was dropped."""
    stored = to_stored(connection, location)
    return connection.one("SELECT 1 FROM dropped_locations WHERE location = ?", stored) is not None


def delete_before(connection: Connection, millis: int) -> None:
    """Delete locations that were dropped before a time."""
    connection.run("DELETE FROM dropped_locations WHERE dropped_at < ?", millis)
