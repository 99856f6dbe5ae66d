"""What happened to jobs: events that are only ever added, numbered within their job."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pennon.catalog.database.protocol import Connection, Row


@dataclass(frozen=True)
class JobEvent:
    """One thing that happened to a job, or to a unit of its work."""

    job_id: str
    seq: int
    at: int
    kind: str
    unit: str
    data: dict[str, Any]


def append(
    connection: Connection, job_id: str, kind: str, at: int, *, unit: str = "", data: Mapping[str, Any] | None = None
) -> bool:
    """Add an event to a job; false when there is no such job.

    The number comes from the job's row, whose lock lasts until the transaction ends: events become visible in order.
    """
    if connection.run("UPDATE jobs SET events = events + 1 WHERE id = ?", job_id) == 0:
        return False
    connection.run(
        "INSERT INTO job_events (job_id, seq, at, kind, unit, data) "
        "SELECT id, events, ?, ?, ?, ? FROM jobs WHERE id = ?",
        at,
        kind,
        unit,
        json.dumps(data or {}),
        job_id,
    )
    return True


def after(connection: Connection, job_id: str, seq: int, limit: int) -> list[JobEvent]:
    """Return the events of a job that follow a number, in order."""
    rows = connection.all(
        "SELECT job_id, seq, at, kind, unit, data FROM job_events WHERE job_id = ? AND seq > ? ORDER BY seq LIMIT ?",
        job_id,
        seq,
        limit,
    )
    return [_event(row) for row in rows]


def of_kind(connection: Connection, job_id: str, kind: str) -> list[JobEvent]:
    """Return the events of a job that are of a kind, in order."""
    rows = connection.all(
        "SELECT job_id, seq, at, kind, unit, data FROM job_events WHERE job_id = ? AND kind = ? ORDER BY seq",
        job_id,
        kind,
    )
    return [_event(row) for row in rows]


def _event(row: Row) -> JobEvent:
    return JobEvent(row[0], row[1], row[2], row[3], row[4], json.loads(row[5]))
