"""Locations as the catalog stores them: relative to the storage root where they lie in it.

A lake that is moved or copied as a whole therefore finds its own tables, and never those of the original.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, LiteralString

if TYPE_CHECKING:
    from pennon.catalog.database.protocol import Connection

_RELATIVE: tuple[LiteralString, ...] = (
    "UPDATE tables SET location = substr(location, ?) WHERE location >= ? AND location < ?",
    "UPDATE garbage SET location = substr(location, ?) WHERE location >= ? AND location < ?",
    "UPDATE dropped_places SET location = substr(location, ?) WHERE location >= ? AND location < ?",
)
_ABSOLUTE: tuple[LiteralString, ...] = (
    "SELECT 1 FROM tables WHERE location >= ? AND location < ? LIMIT 1",
    "SELECT 1 FROM garbage WHERE location >= ? AND location < ? LIMIT 1",
    "SELECT 1 FROM dropped_places WHERE location >= ? AND location < ? LIMIT 1",
)


def is_absolute(stored: str) -> bool:
    """Tell whether a stored location names a place outside the storage root."""
    return stored.startswith("/") or "://" in stored


def to_stored(connection: Connection, location: str) -> str:
    """Return a location as the catalog stores it."""
    inside = location.removeprefix(connection.root + "/") if connection.root else location
    return location if is_absolute(inside) else inside


def from_stored(connection: Connection, stored: str) -> str:
    """Return the full location of a stored one."""
    return stored if not connection.root or is_absolute(stored) else f"{connection.root}/{stored}"


def has_absolute(connection: Connection) -> bool:
    """Tell whether locations in the root are stored in full, as earlier releases did."""
    low, high = connection.root + "/", connection.root + "0"
    return any(connection.one(statement, low, high) for statement in _ABSOLUTE)


def make_relative(connection: Connection) -> int:
    """Store all locations in the root relative to it, and return how many were not."""
    low, high = connection.root + "/", connection.root + "0"
    return sum(connection.run(statement, len(low) + 1, low, high) for statement in _RELATIVE)
