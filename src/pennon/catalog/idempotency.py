"""Keys under which clients repeat requests: what was asked, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pennon.core.clock import now_millis

if TYPE_CHECKING:
    from pennon.catalog.database.protocol import Connection


@dataclass(frozen=True)
class Outcome:
    """What is known of a request that was made under a key; without an answer, only that its effect is there."""

    fingerprint: str
    transaction_id: str | None
    status: int | None
    answer: str | None


def find(connection: Connection, principal: str, key: str) -> Outcome | None:
    """Return what came of the request made under a key, if it had an effect."""
    row = connection.one(
        "SELECT fingerprint, transaction_id, status, answer FROM idempotency WHERE principal = ? AND key = ?",
        principal,
        key,
    )
    return Outcome(*row) if row else None


def mark(connection: Connection, principal: str, key: str, fingerprint: str, transaction_id: str) -> bool:
    """Record, in the transaction of its effect, that a request was carried out; false when it was before."""
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
    """Keep the answer a request was given, for whoever repeats it; also of one that has left no transaction."""
    connection.run(
        "INSERT INTO idempotency (principal, key, fingerprint, status, answer, created_at) VALUES (?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (principal, key) DO UPDATE SET status = excluded.status, answer = excluded.answer",
        principal,
        key,
        done.fingerprint,
        done.status,
        done.answer,
        now_millis(),
    )


def forget_before(connection: Connection, millis: int) -> int:
    """Remove keys older than a time and return how many there were."""
    return connection.run("DELETE FROM idempotency WHERE created_at < ?", millis)
