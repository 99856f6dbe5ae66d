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
    """A key as it can be shown: everything but the secret."""

    name: str
    role: Role
    namespace: Identifier
    created_at: int
    expires_at: int | None = None
    revoked_at: int | None = None

    @property
    def active(self) -> bool:
        """Whether the key still opens anything."""
        return self.revoked_at is None and (self.expires_at is None or self.expires_at > now_millis())

    @property
    def principal(self) -> Principal:
        """Who calls with this key."""
        return Principal(self.name, (Grant(self.role, self.namespace),))


def _key(row: Row) -> Key:
    return Key(row[0], Role.of(row[1]), identifier_of(row[2]), row[3], row[4], row[5])


def digest_of(secret: str) -> str:
    """Return what is stored of a secret; it has 256 random bits, so a plain hash cannot be turned back."""
    return hashlib.sha256(secret.encode()).hexdigest()


def create(
    connection: Connection, name: str, role: Role, namespace: Sequence[str], expires_at: int | None
) -> str | None:
    """Make a key and return its secret, which cannot be had again; none when the name is taken."""
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
    """Tell whether keys decide who may call: from the first key on, also when it is revoked or expired."""
    return connection.one("SELECT 1 FROM keys LIMIT 1") is not None


def find(connection: Connection, secret: str) -> Key | None:
    """Return the active key of a secret."""
    row = connection.one(
        "SELECT name, role, namespace, created_at, expires_at, revoked_at FROM keys WHERE digest = ?",
        digest_of(secret),
    )
    key = _key(row) if row else None
    return key if key and key.active else None


def listing(connection: Connection) -> list[Key]:
    """Return all keys by name."""
    rows = connection.all("SELECT name, role, namespace, created_at, expires_at, revoked_at FROM keys ORDER BY name")
    return [_key(row) for row in rows]


def revoke(connection: Connection, name: str) -> bool:
    """Make a key useless from now on; false when there is no such key that still worked."""
    sql = "UPDATE keys SET revoked_at = ? WHERE name = ? AND revoked_at IS NULL"
    return connection.run(sql, now_millis(), name) == 1
