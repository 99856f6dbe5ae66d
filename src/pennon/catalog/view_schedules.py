"""When views with a schedule are due next: each time is taken once, by whichever worker is first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pennon.catalog.database.protocol import Connection


@dataclass(frozen=True)
class Slot:
    """The next time of a schedule; a view whose schedule is another one by now has no use for it."""

    view_id: str
    schedule: str
    due_at: int


def find(connection: Connection, view_id: str) -> Slot | None:
    """Return when a view is due next, if that was worked out."""
    row = connection.one("SELECT view_id, schedule, due_at FROM view_slots WHERE view_id = ?", view_id)
    return Slot(row[0], row[1], int(row[2])) if row else None


def move(connection: Connection, before: Slot | None, after: Slot) -> bool:
    """Put the next time in the place of the one that was read; false when another worker was faster."""
    if before is None:
        added = connection.run(
            "INSERT INTO view_slots (view_id, schedule, due_at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
            after.view_id,
            after.schedule,
            after.due_at,
        )
        return added == 1
    moved = connection.run(
        "UPDATE view_slots SET schedule = ?, due_at = ? WHERE view_id = ? AND schedule = ? AND due_at = ?",
        after.schedule,
        after.due_at,
        before.view_id,
        before.schedule,
        before.due_at,
    )
    return moved == 1
