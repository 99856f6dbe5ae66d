"""What maintenance has done since the catalog was created, and how much of it waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pennon.catalog.database.protocol import Connection
    from pennon.core.job_model import JobKind, JobState, MaintenanceResult


@dataclass(frozen=True)
class Totals:
    """The sums over all maintenance jobs of a kind that ended in a state."""

    kind: str
    outcome: str
    runs: int
    millis: int
    bytes_rewritten: int
    rows_indexed: int
    versions_removed: int
    bytes_removed: int


@dataclass(frozen=True)
class Backlog:
    """The branches on which maintenance is due, and how long the oldest of them has waited, in milliseconds."""

    branches: int
    millis: int


def add(
    connection: Connection, kind: JobKind, outcome: JobState, millis: int, result: MaintenanceResult | None
) -> None:
    """Add a maintenance job that has ended."""
    names = ("bytes_rewritten", "rows_indexed", "versions_removed", "bytes_removed")
    done = [0] * len(names) if result is None else [result[name] for name in names]  # type: ignore[literal-required]
    connection.run(
        "INSERT INTO maintenance_totals (kind, outcome, runs, millis, bytes_rewritten, rows_indexed, versions_removed, "
        "bytes_removed) VALUES (?, ?, 1, ?, ?, ?, ?, ?) ON CONFLICT (kind, outcome) DO UPDATE SET "
        "runs = maintenance_totals.runs + 1, millis = maintenance_totals.millis + excluded.millis, "
        "bytes_rewritten = maintenance_totals.bytes_rewritten + excluded.bytes_rewritten, "
        "rows_indexed = maintenance_totals.rows_indexed + excluded.rows_indexed, "
        "versions_removed = maintenance_totals.versions_removed + excluded.versions_removed, "
        "bytes_removed = maintenance_totals.bytes_removed + excluded.bytes_removed",
        kind,
        outcome,
        millis,
        *done,
    )


def read(connection: Connection) -> list[Totals]:
    """Return the totals by kind and outcome."""
    rows = connection.all(
        "SELECT kind, outcome, runs, millis, bytes_rewritten, rows_indexed, versions_removed, bytes_removed "
        "FROM maintenance_totals ORDER BY kind, outcome"
    )
    return [Totals(*row) for row in rows]


def backlog(connection: Connection, now: int) -> Backlog:
    """Return how much maintenance is due."""
    row = connection.one("SELECT COUNT(*), MIN(due_at) FROM maintenance_state WHERE due_at <= ?", now)
    if row is None or not row[0]:
        return Backlog(0, 0)
    return Backlog(int(row[0]), max(0, now - int(row[1])))
