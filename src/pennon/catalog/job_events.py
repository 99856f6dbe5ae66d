"""Events of jobs: append-only, and numbered within each job."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pennon.catalog.database.protocol import Connection, Row


@dataclass(frozen=True)
class JobEvent:
    """An event of a job, or of a unit of its work."""

    job_id: str
    seq: int
    at: int
    kind: str
    unit: str
    data: dict[str, Any]


def append(
    connection: Connection, job_id: str, kind: str, at: int, *, unit: str = "", data: Mapping[str, object] | None = None
) -> bool:
    """Add an event to a job; false if the job does not exist.

    The number comes from the row of the job, which stays locked until the transaction ends, so that events become
    visible in order.
    """
    if connection.run("UPDATE jobs SET event_count = event_count + 1 WHERE id = ?", job_id) == 0:
        return False
    connection.run(
        "INSERT INTO job_events (job_id, seq, at, kind, unit, data) "
        "SELECT id, event_count, ?, ?, ?, ? FROM jobs WHERE id = ?",
        at,
        kind,
        unit,
        json.dumps(data or {}),
        job_id,
    )
    return True


def after(connection: Connection, job_id: str, seq: int, limit: int) -> list[JobEvent]:
    """Return the events of a job after a number, in order."""
    rows = connection.all(
        "SELECT job_id, seq, at, kind, unit, data FROM job_events WHERE job_id = ? AND seq > ? ORDER BY seq LIMIT ?",
        job_id,
        seq,
        limit,
    )
    return [_event(row) for row in rows]


def of_kind(connection: Connection, job_id: str, kind: str) -> list[JobEvent]:
    """Return the events of a job of one kind, in order."""
    rows = connection.all(
        "SELECT job_id, seq, at, kind, unit, data FROM job_events WHERE job_id = ? AND kind = ? ORDER BY seq",
        job_id,
        kind,
    )
    return [_event(row) for row in rows]


def _event(row: Row) -> JobEvent:
    return JobEvent(row[0], row[1], row[2], row[3], row[4], json.loads(row[5]))
