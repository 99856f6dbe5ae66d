"""What was computed of feature columns: one record for each fragment, known by the files that hold its values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pennon.catalog.database.protocol import Connection, Row


@dataclass(frozen=True)
class Fill:
    """What is known of one column in one fragment; ``state`` is for the lake to read."""

    table_id: str
    #: Tells the column from others, also from one that was dropped and had its name and its number.
    column_key: str
    #: Of the files that hold the column and its inputs: other files are other values.
    signature: str
    branch: str
    fragment_id: int
    version: int
    state: bytes


#: So many records of one fragment are kept: branches, and versions that are restored, may still have the older files.
KEPT = 4


def save(connection: Connection, fill: Fill) -> None:
    """Write a record over the one that may be there, and forget those of the fragment that are long out of date."""
    connection.run(
        "INSERT INTO column_fills (table_id, column_key, signature, branch, fragment_id, version, state) "
        "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (table_id, column_key, signature, branch) DO UPDATE SET "
        "fragment_id = excluded.fragment_id, version = excluded.version, state = excluded.state",
        fill.table_id,
        fill.column_key,
        fill.signature,
        fill.branch,
        fill.fragment_id,
        fill.version,
        fill.state,
    )
    place = (fill.table_id, fill.column_key, fill.branch, fill.fragment_id)
    connection.run(
        "DELETE FROM column_fills WHERE table_id = ? AND column_key = ? AND branch = ? AND fragment_id = ? "
        "AND version < (SELECT MIN(version) FROM (SELECT version FROM column_fills WHERE table_id = ? "
        "AND column_key = ? AND branch = ? AND fragment_id = ? ORDER BY version DESC LIMIT ?) AS newest)",
        *place,
        *place,
        KEPT,
    )


def find(connection: Connection, table_id: str, column_key: str, signature: str, branch: str) -> Fill | None:
    """Return what is known of one column where certain files hold its values: by the branch itself, or another."""
    row = connection.one(
        "SELECT table_id, column_key, signature, branch, fragment_id, version, state FROM column_fills "
        "WHERE table_id = ? AND column_key = ? AND signature = ? "
        "ORDER BY CASE WHEN branch = ? THEN 0 ELSE 1 END, version LIMIT 1",
        table_id,
        column_key,
        signature,
        branch,
    )
    return None if row is None else _fill(row)


def of_column(connection: Connection, table_id: str, column_key: str) -> list[Fill]:
    """Return all that is known of one column."""
    rows = connection.all(
        "SELECT table_id, column_key, signature, branch, fragment_id, version, state FROM column_fills "
        "WHERE table_id = ? AND column_key = ? ORDER BY version",
        table_id,
        column_key,
    )
    return [_fill(row) for row in rows]


def delete_branch(connection: Connection, table_id: str, branch: str) -> None:
    """Forget all that a branch knows: another one of its name has other rows."""
    connection.run("DELETE FROM column_fills WHERE table_id = ? AND branch = ?", table_id, branch)


def _fill(row: Row) -> Fill:
    return Fill(row[0], row[1], row[2], row[3], row[4], row[5], bytes(row[6]))
