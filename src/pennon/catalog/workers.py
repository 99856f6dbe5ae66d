"""Workers, by their last heartbeat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pennon.catalog.database.protocol import Connection


@dataclass(frozen=True)
class Worker:
    """A process that runs jobs."""

    id: str
    host: str
    pid: int
    started_at: int
    heartbeat_at: int
    #: The maximum number of concurrent jobs, and the current number.
    slots: int
    busy: int
    version: str


def heartbeat(connection: Connection, worker: Worker) -> None:
    """Record a heartbeat, and insert a worker that is not recorded."""
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


def delete(connection: Connection, worker_id: str) -> None:
    """Delete a worker that has shut down."""
    connection.run("DELETE FROM workers WHERE id = ?", worker_id)


def delete_silent(connection: Connection, since: int) -> int:
    """Delete workers without a heartbeat since a time, and return their number."""
    return connection.run("DELETE FROM workers WHERE heartbeat_at < ?", since)


def alive_since(connection: Connection, since: int) -> list[Worker]:
    """Return the workers with a heartbeat since a time, oldest first."""
    rows = connection.all(
        "SELECT id, host, pid, started_at, heartbeat_at, slots, busy, version FROM workers "
        "WHERE heartbeat_at >= ? ORDER BY started_at, id",
        since,
    )
    return [Worker(*row) for row in rows]
