"""Workers that are alive, as far as they were heard of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pennon.catalog.database.protocol import Connection


@dataclass(frozen=True)
class Worker:
    """A process that carries out jobs."""

    id: str
    host: str
    pid: int
    started_at: int
    heartbeat_at: int
    #: How many jobs it carries out at once, and how many it does now.
    slots: int
    busy: int
    version: str


def beat(connection: Connection, worker: Worker) -> None:
    """Record that a worker is alive, also one that was not known or was forgotten."""
    connection.run(
        "INSERT INTO workers (id, host, pid, started_at, heartbeat_at, slots, busy, version) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET "
        "heartbeat_at = excluded.heartbeat_at, slots = excluded.slots, busy = excluded.busy",
        worker.id,
        worker.host,
        worker.pid,
        worker.started_at,
        worker.heartbeat_at,
        worker.slots,
        worker.busy,
        worker.version,
    )


def forget(connection: Connection, worker_id: str) -> None:
    """Remove a worker that left."""
    connection.run("DELETE FROM workers WHERE id = ?", worker_id)


def forget_silent(connection: Connection, since: int) -> int:
    """Remove workers that were not heard of since a time, and return how many there were."""
    return connection.run("DELETE FROM workers WHERE heartbeat_at < ?", since)


def heard_since(connection: Connection, since: int) -> list[Worker]:
    """Return the workers that were heard of since a time, oldest first."""
    rows = connection.all(
        "SELECT id, host, pid, started_at, heartbeat_at, slots, busy, version FROM workers "
        "WHERE heartbeat_at >= ? ORDER BY started_at, id",
        since,
    )
    return [Worker(*row) for row in rows]
