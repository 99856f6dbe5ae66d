"""API keys: only their digests are stored."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pennon.core.caller import Grant, Principal, Role
from pennon.core.clock import now_millis
from pennon.core.identifiers import Identifier, identifier_of, key_of, new_id

if TYPE_CHECKING:
    from pennon.catalog.database.protocol import Connection, Row

_PREFIX = "pennon_"


@dataclass(frozen=True)
class Key:
    """A key without its secret."""

    name: str
    role: Role
    namespace: Identifier
    created_at: int
    expires_at: int | None = None
    revoked_at: int | None = None

    @property
    def is_active(self) -> bool:
        """Whether the key is neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or self.expires_at > now_millis())

    @property
    def principal(self) -> Principal:
        """The principal of requests with this key."""
        return Principal(self.name, (Grant(self.role, self.namespace),))


class KeyNotFoundError(LookupError):
    """No key has a digest. An error, so that unknown keys take no room in caches."""


def _key(row: Row) -> Key:
    return Key(row[0], Role.of(row[1]), identifier_of(row[2]), row[3], row[4], row[5])


def digest_of(secret: str) -> str:
    """Return the stored digest of a secret; with 256 random bits, a plain hash cannot be reversed."""
    return hashlib.sha256(secret.encode()).hexdigest()


def create(
    connection: Connection, name: str, role: Role, namespace: Sequence[str], expires_at: int | None
) -> str | None:
    """Create a key and return its secret, which is not stored; None if the name is taken."""
    secret = _PREFIX + secrets.token_urlsafe(32)
    added = connection.run(
        "INSERT INTO keys (id, name, digest, role, namespace, created_at, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?) "
        "ON CONFLICT DO NOTHING",
        new_id(),
        name,
        digest_of(secret),
        role.name.lower(),
        key_of(namespace),
        now_millis(),
        expires_at,
    )
    return secret if added == 1 else None


def any_configured(connection: Connection) -> bool:
    """Tell whether requests need a key: once any key was created, even if it is revoked or expired."""
    return connection.one("SELECT 1 FROM keys LIMIT 1") is not None


def find(connection: Connection, digest: str) -> Key:
    """Return the key with a digest, even if it is not active; raises ``KeyNotFoundError``."""
    row = connection.one(
        "SELECT name, role, namespace, created_at, expires_at, revoked_at FROM keys WHERE digest = ?", digest
    )
    if row is None:
        raise KeyNotFoundError
    return _key(row)


def listing(connection: Connection) -> list[Key]:
    """Return all keys, sorted by name."""
    rows = connection.all("SELECT name, role, namespace, created_at, expires_at, revoked_at FROM keys ORDER BY name")
    return [_key(row) for row in rows]


def revoke(connection: Connection, name: str) -> bool:
    """Revoke a key; false if there is no such key, or it is revoked already."""
    sql = "UPDATE keys SET revoked_at = ? WHERE name = ? AND revoked_at IS NULL"
    return connection.run(sql, now_millis(), name) == 1
