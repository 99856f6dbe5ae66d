"""Index builds that are running or failed; the record of a successful build is deleted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pennon.core.clock import now_millis

if TYPE_CHECKING:
    from pennon.catalog.database.protocol import Connection

#: A build without a heartbeat for this long has ended with its process.
STALE_MILLIS = 60_000
_STOPPED = "the server stopped during the build"


@dataclass(frozen=True)
class Build:
    """The build of an index."""

    table_id: str
    branch: str
    name: str
    column: str
    kind: str
    failure: str | None = None


def begin(connection: Connection, build: Build) -> bool:
    """Record a build; false if another build of the same name is running."""
    connection.run(
        "DELETE FROM index_builds WHERE table_id = ? AND branch = ? AND name = ? "
        "AND (failure IS NOT NULL OR heartbeat_at < ?)",
        build.table_id,
        build.branch,
        build.name,
        now_millis() - STALE_MILLIS,
    )
    added = connection.run(
        "INSERT INTO index_builds (table_id, branch, name, column_name, kind, heartbeat_at) VALUES (?, ?, ?, ?, ?, ?) "
        "ON CONFLICT DO NOTHING",
        build.table_id,
        build.branch,
        build.name,
        build.column,
        build.kind,
        now_millis(),
    )
    return added == 1


def heartbeat(connection: Connection, build: Build) -> None:
    """Record that a build is still running."""
    connection.run(
        "UPDATE index_builds SET heartbeat_at = ? WHERE table_id = ? AND branch = ? AND name = ?",
        now_millis(),
        build.table_id,
        build.branch,
        build.name,
    )


def end(connection: Connection, build: Build, failure: str | None) -> None:
    """Delete the record of a successful build, or record the failure."""
    if failure is None:
        connection.run(
            "DELETE FROM index_builds WHERE table_id = ? AND branch = ? AND name = ?",
            build.table_id,
            build.branch,
            build.name,
        )
        return
    connection.run(
        "UPDATE index_builds SET failure = ? WHERE table_id = ? AND branch = ? AND name = ?",
        failure,
        build.table_id,
        build.branch,
        build.name,
    )


def of_branch(connection: Connection, table_id: str, branch: str) -> list[Build]:
    """Return the builds of a branch that are running or failed."""
    rows = connection.all(
        "SELECT table_id, branch, name, column_name, kind, failure, heartbeat_at FROM index_builds "
        "WHERE table_id = ? AND branch = ?",
        table_id,
        branch,
    )
    stale = now_millis() - STALE_MILLIS
    return [
        Build(row[0], row[1], row[2], row[3], row[4], row[5] or (_STOPPED if row[6] < stale else None)) for row in rows
    ]
