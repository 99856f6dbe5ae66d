"""The identity of a catalog: its id, and the storage root it was last served with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pennon.core.identifiers import new_id

if TYPE_CHECKING:
    from pennon.catalog.database.protocol import Connection


@dataclass(frozen=True)
class Identity:
    """The identity of a catalog; a copy of a catalog has the same id until it is adopted."""

    id: str
    #: The storage root with the mark of this catalog; empty until a root is marked.
    root: str


def find(connection: Connection) -> Identity | None:
    """Return the identity of the catalog; None if it has none yet."""
    row = connection.one("SELECT id, root FROM catalog_identity")
    return Identity(*row) if row else None


def ensure(connection: Connection) -> Identity:
    """Return the identity of the catalog, and create it if it does not exist."""
    connection.run(
        "INSERT INTO catalog_identity (singleton, id, root) VALUES (1, ?, '') ON CONFLICT DO NOTHING", new_id()
    )
    found = find(connection)
    assert found is not None  # noqa: S101 (inserted above)
    return found


def set_root(connection: Connection, root: str) -> None:
    """Record the storage root with the mark of this catalog.

    Stored responses name locations in the previous root, so they are deleted.
    """
    if connection.run("UPDATE catalog_identity SET root = ? WHERE root <> ? AND root <> ''", root, root):
        connection.run("DELETE FROM idempotency")
    connection.run("UPDATE catalog_identity SET root = ? WHERE root = ''", root)


def renew(connection: Connection) -> Identity:
    """Give the catalog a new id, so that it differs from the catalog it was copied from."""
    ensure(connection)
    connection.run("UPDATE catalog_identity SET id = ?", new_id())
    return ensure(connection)
