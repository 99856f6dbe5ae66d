"""Idempotency keys, each with the fingerprint and the response of its request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pennon.core.clock import now_millis

if TYPE_CHECKING:
    from pennon.catalog.database.protocol import Connection


@dataclass(frozen=True)
class Outcome:
    """The outcome of a request with a key; without a response, only its effect is recorded."""

    fingerprint: str
    transaction_id: str | None
    status: int | None
    response: str | None


def find(connection: Connection, principal: str, key: str) -> Outcome | None:
    """Return the outcome of the request with a key."""
    row = connection.one(
        "SELECT fingerprint, transaction_id, status, response FROM idempotency WHERE principal = ? AND key = ?",
        principal,
        key,
    )
    return Outcome(*row) if row else None


def mark(connection: Connection, principal: str, key: str, fingerprint: str, transaction_id: str) -> bool:
    """Record a request in the transaction of its effect; false if it is recorded already."""
    added = connection.run(
        "INSERT INTO idempotency (principal, key, fingerprint, transaction_id, created_at) VALUES (?, ?, ?, ?, ?) "
        "ON CONFLICT DO NOTHING",
        principal,
        key,
        fingerprint,
        transaction_id,
        now_millis(),
    )
    return added == 1


def complete(connection: Connection, principal: str, key: str, done: Outcome) -> None:
    """Store the response to a request, for retries; also if the request had no transaction."""
    connection.run(
        "INSERT INTO idempotency (principal, key, fingerprint, status, response, created_at) VALUES (?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (principal, key) DO UPDATE SET status = excluded.status, response = excluded.response",
        principal,
        key,
        done.fingerprint,
        done.status,
        done.response,
        now_millis(),
    )


def delete_before(connection: Connection, millis: int) -> int:
    """Delete the keys from before a time, and return their number."""
    return connection.run("DELETE FROM idempotency WHERE created_at < ?", millis)
