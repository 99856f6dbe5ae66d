"""Index builds that are under way or failed; one that succeeded is an index, and known as such."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pennon.core.clock import now_millis

if TYPE_CHECKING:
    from pennon.catalog.database.protocol import Connection

#: A build that was not heard of for so long ended with its process.
SILENCE_MILLIS = 60_000
_STOPPED = "the server stopped while it was being built"


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
    """Record a build; false while another one of the same name is under way."""
    connection.run(
        "DELETE FROM index_builds WHERE table_id = ? AND branch = ? AND name = ? "
        "AND (failure IS NOT NULL OR alive_at < ?)",
        build.table_id,
        build.branch,
        build.name,
        now_millis() - SILENCE_MILLIS,
    )
    added = connection.run(
        "INSERT INTO index_builds (table_id, branch, name, column_name, kind, alive_at) VALUES (?, ?, ?, ?, ?, ?) "
        "ON CONFLICT DO NOTHING",
        build.table_id,
        build.branch,
        build.name,
        build.column,
        build.kind,
        now_millis(),
    )
    return added == 1


def touch(connection: Connection, build: Build) -> None:
    """Say that a build is still under way."""
    connection.run(
        "UPDATE index_builds SET alive_at = ? WHERE table_id = ? AND branch = ? AND name = ?",
        now_millis(),
        build.table_id,
        build.branch,
        build.name,
    )


def end(connection: Connection, build: Build, failure: str | None) -> None:
    """Forget a build that succeeded, or keep why it failed."""
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
    """Return the builds of a branch that are under way or failed."""
    rows = connection.all(
        "SELECT table_id, branch, name, column_name, kind, failure, alive_at FROM index_builds "
        "WHERE table_id = ? AND branch = ?",
        table_id,
        branch,
    )
    silent = now_millis() - SILENCE_MILLIS
    return [
        Build(row[0], row[1], row[2], row[3], row[4], row[5] or (_STOPPED if row[6] < silent else None)) for row in rows
    ]
