"""Schedules of views: the next run of each, which only one worker can claim."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pennon.catalog.database.protocol import Connection


@dataclass(frozen=True)
class ScheduledRun:
    """The next run of a schedule; outdated if the view has another schedule by now."""

    view_id: str
    schedule: str
    due_at: int


def find(connection: Connection, view_id: str) -> ScheduledRun | None:
    """Return the next run of a view; None if it is not determined yet."""
    row = connection.one("SELECT view_id, schedule, due_at FROM view_schedules WHERE view_id = ?", view_id)
    return ScheduledRun(row[0], row[1], int(row[2])) if row else None


def advance(connection: Connection, before: ScheduledRun | None, after: ScheduledRun) -> bool:
    """Replace a run by the next one; false if another worker was faster."""
    if before is None:
        added = connection.run(
            "INSERT INTO view_schedules (view_id, schedule, due_at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
            after.view_id,
            after.schedule,
            after.due_at,
        )
        return added == 1
    moved = connection.run(
        "UPDATE view_schedules SET schedule = ?, due_at = ? WHERE view_id = ? AND schedule = ? AND due_at = ?",
        after.schedule,
        after.due_at,
        before.view_id,
        before.schedule,
        before.due_at,
    )
    return moved == 1
