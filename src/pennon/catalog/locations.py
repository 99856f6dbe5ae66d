"""Stored locations, which are relative to the storage root for tables in it.

A catalog that is moved or copied together with its root therefore finds its own tables, never those of the original.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, LiteralString

if TYPE_CHECKING:
    from pennon.catalog.database.protocol import Connection

_RELATIVE: tuple[LiteralString, ...] = (
    "UPDATE tables SET location = substr(location, ?) WHERE location >= ? AND location < ?",
    "UPDATE garbage SET location = substr(location, ?) WHERE location >= ? AND location < ?",
    "UPDATE dropped_locations SET location = substr(location, ?) WHERE location >= ? AND location < ?",
)
_ABSOLUTE: tuple[LiteralString, ...] = (
    "SELECT 1 FROM tables WHERE location >= ? AND location < ? LIMIT 1",
    "SELECT 1 FROM garbage WHERE location >= ? AND location < ? LIMIT 1",
    "SELECT 1 FROM dropped_locations WHERE location >= ? AND location < ? LIMIT 1",
)


def is_absolute(stored: str) -> bool:
    """Tell whether a stored location is outside the storage root."""
    return stored.startswith("/") or "://" in stored


def to_stored(connection: Connection, location: str) -> str:
    """Return a location as the catalog stores it."""
    inside = location.removeprefix(connection.root + "/") if connection.root else location
    return location if is_absolute(inside) else inside


def from_stored(connection: Connection, stored: str) -> str:
    """Return the absolute form of a stored location."""
    return stored if not connection.root or is_absolute(stored) else f"{connection.root}/{stored}"


def has_absolute(connection: Connection) -> bool:
    """Tell whether locations in the root are stored as absolute, as in earlier releases."""
    low, high = connection.root + "/", connection.root + "0"
    return any(connection.one(statement, low, high) for statement in _ABSOLUTE)


def make_relative(connection: Connection) -> int:
    """Make all stored locations in the root relative, and return the number of changes."""
    low, high = connection.root + "/", connection.root + "0"
    return sum(connection.run(statement, len(low) + 1, low, high) for statement in _RELATIVE)
