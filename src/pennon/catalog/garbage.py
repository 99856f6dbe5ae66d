"""Locations of dropped tables whose files must still be removed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pennon.catalog.locations import from_stored, to_stored
from pennon.core.clock import now_millis

if TYPE_CHECKING:
    from collections.abc import Callable

    from pennon.catalog.database.protocol import Connection


def add(connection: Connection, location: str, table_id: str, lease_millis: int) -> None:
    """Add a location; the caller has a lease to remove its files."""
    now = now_millis()
    connection.run(
        "INSERT INTO garbage (location, table_id, lease_until, created_at) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (location) DO UPDATE SET table_id = excluded.table_id, lease_until = excluded.lease_until",
        to_stored(connection, location),
        table_id,
        now + lease_millis,
        now,
    )


def contains(connection: Connection, location: str) -> bool:
    """Tell whether a location may still have files of a dropped table."""
    return connection.one("SELECT 1 FROM garbage WHERE location = ?", to_stored(connection, location)) is not None


def claim(connection: Connection, lease_millis: int, limit: int = 100) -> list[tuple[str, str]]:
    """Lease locations whose lease has expired, and return them as (location, table id)."""
    now = now_millis()
    rows = connection.all("SELECT location, table_id FROM garbage WHERE lease_until < ? LIMIT ?", now, limit)
    return [
        (from_stored(connection, location), table_id)
        for location, table_id in rows
        if connection.run(
            "UPDATE garbage SET lease_until = ? WHERE location = ? AND lease_until < ?",
            now + lease_millis,
            location,
            now,
        )
    ]


def release(connection: Connection, location: str) -> None:
    """End the lease of a location."""
    connection.run("UPDATE garbage SET lease_until = 0 WHERE location = ?", to_stored(connection, location))


def delete_unless(connection: Connection, condition: Callable[[str], bool]) -> None:
    """Delete locations that do not meet a condition, without removing their files."""
    for (stored,) in connection.all("SELECT location FROM garbage"):
        if not condition(from_stored(connection, stored)):
            connection.run("DELETE FROM garbage WHERE location = ?", stored)


def delete(connection: Connection, location: str) -> None:
    """Delete a location after its files were removed."""
    connection.run("DELETE FROM garbage WHERE location = ?", to_stored(connection, location))
