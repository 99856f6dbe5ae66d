"""Locations of dropped tables whose files are still to be removed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pennon.catalog.locations import from_stored, to_stored
from pennon.core.clock import now_millis

if TYPE_CHECKING:
    from collections.abc import Callable

    from pennon.catalog.database.protocol import Connection


def add(connection: Connection, location: str, table_id: str, lease_millis: int) -> None:
    """Remember that a location's files must go; the caller removes them while its lease lasts."""
    now = now_millis()
    connection.run(
        "INSERT INTO garbage (location, table_id, leased_until, created_at) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (location) DO UPDATE SET table_id = excluded.table_id, leased_until = excluded.leased_until",
        to_stored(connection, location),
        table_id,
        now + lease_millis,
        now,
    )


def holds(connection: Connection, location: str) -> bool:
    """Tell whether files of a dropped table may still be at a location."""
    return connection.one("SELECT 1 FROM garbage WHERE location = ?", to_stored(connection, location)) is not None


def claim(connection: Connection, lease_millis: int, limit: int = 100) -> list[tuple[str, str]]:
    """Take over locations whose lease has run out, as (location, table id)."""
    now = now_millis()
    rows = connection.all("SELECT location, table_id FROM garbage WHERE leased_until < ? LIMIT ?", now, limit)
    return [
        (from_stored(connection, location), table_id)
        for location, table_id in rows
        if connection.run(
            "UPDATE garbage SET leased_until = ? WHERE location = ? AND leased_until < ?",
            now + lease_millis,
            location,
            now,
        )
    ]


def release(connection: Connection, location: str) -> None:
    """Leave a location to whoever claims it next."""
    connection.run("UPDATE garbage SET leased_until = 0 WHERE location = ?", to_stored(connection, location))


def forget_unless(connection: Connection, keeps: Callable[[str], bool]) -> None:
    """Forget locations that a condition does not hold for, and leave their files alone."""
    for (stored,) in connection.all("SELECT location FROM garbage"):
        if not keeps(from_stored(connection, stored)):
            connection.run("DELETE FROM garbage WHERE location = ?", stored)


def remove(connection: Connection, location: str) -> None:
    """Forget a location: its files are gone."""
    connection.run("DELETE FROM garbage WHERE location = ?", to_stored(connection, location))
