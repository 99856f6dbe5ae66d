"""Namespaces in the catalog."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pennon.catalog.properties import Properties, dump_properties, load_properties
from pennon.core.clock import now_millis
from pennon.core.identifiers import child_key_range, identifier_of, key_of

if TYPE_CHECKING:
    from pennon.catalog.database.protocol import Connection


def find_properties(connection: Connection, namespace: Sequence[str]) -> Properties | None:
    """Return the properties of a namespace; None if it does not exist."""
    row = connection.one("SELECT properties FROM namespaces WHERE path = ?", key_of(namespace))
    return load_properties(row[0]) if row else None


def exists(connection: Connection, namespace: Sequence[str]) -> bool:
    """Tell whether a namespace exists."""
    return connection.one("SELECT 1 FROM namespaces WHERE path = ?", key_of(namespace)) is not None


def lock(connection: Connection, namespace: Sequence[str]) -> bool:
    """Lock the row of a namespace until the transaction ends; false if it does not exist."""
    return connection.run("UPDATE namespaces SET name = name WHERE path = ?", key_of(namespace)) == 1


def insert(connection: Connection, namespace: Sequence[str], properties: Mapping[str, str] | None) -> bool:
    """Insert a namespace below its parent; false if it exists already.

    Raises ``ForeignKeyError`` if the parent does not exist.
    """
    added = connection.run(
        "INSERT INTO namespaces (path, parent, name, properties, created_at) VALUES (?, ?, ?, ?, ?) "
        "ON CONFLICT (path) DO NOTHING",
        key_of(namespace),
        key_of(namespace[:-1]),
        namespace[-1],
        dump_properties(properties),
        now_millis(),
    )
    return added == 1


def set_properties(connection: Connection, namespace: Sequence[str], properties: Mapping[str, str] | None) -> None:
    """Replace the properties of a namespace."""
    text = dump_properties(properties)
    connection.run("UPDATE namespaces SET properties = ? WHERE path = ?", text, key_of(namespace))


def delete(connection: Connection, namespace: Sequence[str]) -> bool:
    """Delete a namespace; raises ``ForeignKeyError`` if it is not empty."""
    return connection.run("DELETE FROM namespaces WHERE path = ?", key_of(namespace)) == 1


def delete_below(connection: Connection, namespace: Sequence[str]) -> None:
    """Delete the namespaces below one, deepest first; they must not have tables."""
    low, high = child_key_range(key_of(namespace))
    rows = connection.all("SELECT path FROM namespaces WHERE path > ? AND path < ?", low, high)
    for (path,) in sorted(rows, key=lambda row: -len(identifier_of(row[0]))):
        connection.run("DELETE FROM namespaces WHERE path = ?", path)


def children(connection: Connection, namespace: Sequence[str], *, after: str, limit: int) -> list[str]:
    """Return the names of child namespaces after a name, in order."""
    rows = connection.all(
        "SELECT name FROM namespaces WHERE parent = ? AND name > ? ORDER BY name LIMIT ?",
        key_of(namespace),
        after,
        limit,
    )
    return [row[0] for row in rows]
