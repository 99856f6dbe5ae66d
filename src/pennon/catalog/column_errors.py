"""Rows that a function failed on, and why.

An error is shown while its row is as the failed commit left it. It is kept when the row is computed again, for as many
commits as the states of rows are, because a restored version brings the failed row back.

Functions of columns fail on rows of the table itself, those of views on rows or partitions of the view's source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pennon.core.identifiers import new_id

if TYPE_CHECKING:
    from pennon.catalog.database.protocol import Connection

_COLUMNS = (
    "job_id, fragment_id, row_offset, row_id, function, function_version, table_version, error_type, error_message, "
    "attempt, created_at, partition_value, commit_version"
)
#: In place of a fragment, where a function of a view failed: the row is one of the view's source, or stands for a
#: partition of it.
SOURCE = -1


@dataclass(frozen=True)
class ColumnError:
    """Why one row has no value."""

    job_id: str
    fragment_id: int
    row_offset: int
    #: Stays with the row when it moves; none where row ids are not stable.
    row_id: int | None
    function: str
    function_version: str
    table_version: int
    error_type: str
    error_message: str
    attempt: int
    created_at: int
    #: The partition that a table function failed on.
    partition: str | None = None
    #: The version whose commit left the row without a value; not known of the functions of views.
    commit_version: int | None = None


@dataclass(frozen=True)
class Place:
    """The column whose errors are meant."""

    table_id: str
    branch: str
    column: str


@dataclass(frozen=True)
class Located:
    """Where an error is."""

    id: str
    fragment_id: int
    row_offset: int
    row_id: int | None


def add(connection: Connection, place: Place, error: ColumnError) -> None:
    """Record an error."""
    connection.run(
        f"INSERT INTO column_errors (id, table_id, branch, column_name, {_COLUMNS}) "  # noqa: S608 (a constant)
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        new_id(),
        place.table_id,
        place.branch,
        place.column,
        error.job_id,
        error.fragment_id,
        error.row_offset,
        error.row_id,
        error.function,
        error.function_version,
        error.table_version,
        error.error_type,
        error.error_message,
        error.attempt,
        error.created_at,
        error.partition,
        error.commit_version,
    )


def of_column(connection: Connection, place: Place) -> list[Located]:
    """Return where the errors of a column are, the oldest first."""
    rows = connection.all(
        "SELECT id, fragment_id, row_offset, row_id FROM column_errors "
        "WHERE table_id = ? AND branch = ? AND column_name = ? ORDER BY id",
        place.table_id,
        place.branch,
        place.column,
    )
    return [Located(*row) for row in rows]


def of_sources(connection: Connection, view_id: str) -> list[Located]:
    """Return where the errors of a view's functions are."""
    rows = connection.all(
        "SELECT id, fragment_id, row_offset, row_id FROM column_errors "
        "WHERE table_id = ? AND branch = '' AND fragment_id = ?",
        view_id,
        SOURCE,
    )
    return [Located(*row) for row in rows]


def columns(connection: Connection, table_id: str, branch: str) -> list[str]:
    """Return the columns of a table that have errors, in the order of their names."""
    rows = connection.all(
        "SELECT DISTINCT column_name FROM column_errors WHERE table_id = ? AND branch = ? ORDER BY column_name",
        table_id,
        branch,
    )
    return [row[0] for row in rows]


def forget(connection: Connection, ids: Sequence[str]) -> None:
    """Forget errors that cannot be shown any more."""
    for known in ids:
        connection.run("DELETE FROM column_errors WHERE id = ?", known)


def page(
    connection: Connection, place: Place, *, job_id: str | None, after: tuple[int, int] | None, limit: int
) -> list[ColumnError]:
    """Return errors of a column in the order of fragments and rows, after a place in it."""
    fragment, offset = after or (SOURCE, -1)
    rows = connection.all(
        f"SELECT {_COLUMNS} FROM column_errors "  # noqa: S608 (a constant)
        "WHERE table_id = ? AND branch = ? AND column_name = ? AND (CAST(? AS TEXT) IS NULL OR job_id = ?) "
        "AND (fragment_id > ? OR (fragment_id = ? AND row_offset > ?)) "
        "ORDER BY fragment_id, row_offset LIMIT ?",
        place.table_id,
        place.branch,
        place.column,
        job_id,
        job_id,
        fragment,
        fragment,
        offset,
        limit,
    )
    return [ColumnError(*row) for row in rows]
