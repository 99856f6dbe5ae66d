"""Errors of functions, by row.

An error is shown while its row is unchanged since the failed commit. It is kept after the row is computed again, as
long as the states of columns are, because a restored version brings the failed row back.

Functions of columns fail on rows of their table, functions of views on rows or partitions of the view's source.
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
#: The fragment id of errors in functions of views, whose rows or partitions are those of the view's source.
SOURCE = -1


@dataclass(frozen=True)
class ColumnError:
    """The error that left one row without a value."""

    job_id: str
    fragment_id: int
    row_offset: int
    #: The stable row id; None if the table has no stable row ids.
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
    #: The version whose commit left the row without a value; None for functions of views.
    commit_version: int | None = None


@dataclass(frozen=True)
class ErrorScope:
    """The column that errors belong to."""

    table_id: str
    branch: str
    column: str


@dataclass(frozen=True)
class ErrorLocation:
    """The id and the row of an error."""

    id: str
    fragment_id: int
    row_offset: int
    row_id: int | None


def add(connection: Connection, scope: ErrorScope, error: ColumnError) -> None:
    """Add an error."""
    connection.run(
        f"INSERT INTO column_errors (id, table_id, branch, column_name, {_COLUMNS}) "  # noqa: S608 (a constant)
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        new_id(),
        scope.table_id,
        scope.branch,
        scope.column,
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


def of_column(connection: Connection, scope: ErrorScope) -> list[ErrorLocation]:
    """Return the locations of a column's errors, oldest first."""
    rows = connection.all(
        "SELECT id, fragment_id, row_offset, row_id FROM column_errors "
        "WHERE table_id = ? AND branch = ? AND column_name = ? ORDER BY id",
        scope.table_id,
        scope.branch,
        scope.column,
    )
    return [ErrorLocation(*row) for row in rows]


def of_sources(connection: Connection, view_id: str) -> list[ErrorLocation]:
    """Return the locations of the errors in a view's functions."""
    rows = connection.all(
        "SELECT id, fragment_id, row_offset, row_id FROM column_errors "
        "WHERE table_id = ? AND branch = '' AND fragment_id = ?",
        view_id,
        SOURCE,
    )
    return [ErrorLocation(*row) for row in rows]


def columns(connection: Connection, table_id: str, branch: str) -> list[str]:
    """Return the columns of a table that have errors, sorted by name."""
    rows = connection.all(
        "SELECT DISTINCT column_name FROM column_errors WHERE table_id = ? AND branch = ? ORDER BY column_name",
        table_id,
        branch,
    )
    return [row[0] for row in rows]


def delete(connection: Connection, ids: Sequence[str]) -> None:
    """Delete errors."""
    for known in ids:
        connection.run("DELETE FROM column_errors WHERE id = ?", known)


def page(
    connection: Connection, scope: ErrorScope, *, job_id: str | None, after: tuple[int, int] | None, limit: int
) -> list[ColumnError]:
    """Return errors of a column in the order of fragments and rows, after a (fragment, row)."""
    fragment, offset = after or (SOURCE, -1)
    rows = connection.all(
        f"SELECT {_COLUMNS} FROM column_errors "  # noqa: S608 (a constant)
        "WHERE table_id = ? AND branch = ? AND column_name = ? AND (CAST(? AS TEXT) IS NULL OR job_id = ?) "
        "AND (fragment_id > ? OR (fragment_id = ? AND row_offset > ?)) "
        "ORDER BY fragment_id, row_offset LIMIT ?",
        scope.table_id,
        scope.branch,
        scope.column,
        job_id,
        job_id,
        fragment,
        fragment,
        offset,
        limit,
    )
    return [ColumnError(*row) for row in rows]
