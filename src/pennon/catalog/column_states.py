"""The states of feature columns: one record per fragment, identified by the files with its values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pennon.catalog.database.protocol import Connection, Row


@dataclass(frozen=True)
class ColumnStateRecord:
    """The state of one column in one fragment; only ``pennon.columns`` interprets ``state``."""

    table_id: str
    #: Identifies the column, and differs from that of a dropped column with the same name and id.
    column_key: str
    #: Identifies the files with the column and its inputs: other files mean other values.
    signature: str
    branch: str
    fragment_id: int
    version: int
    state: bytes


#: Records kept per fragment: branches and restored versions may still have older files.
MAX_RECORDS = 4


def save(connection: Connection, record: ColumnStateRecord) -> None:
    """Insert or replace a record, and delete the oldest records of the fragment beyond the limit."""
    connection.run(
        "INSERT INTO column_states (table_id, column_key, signature, branch, fragment_id, version, state) "
        "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (table_id, column_key, signature, branch) DO UPDATE SET "
        "fragment_id = excluded.fragment_id, version = excluded.version, state = excluded.state",
        record.table_id,
        record.column_key,
        record.signature,
        record.branch,
        record.fragment_id,
        record.version,
        record.state,
    )
    fragment = (record.table_id, record.column_key, record.branch, record.fragment_id)
    connection.run(
        "DELETE FROM column_states WHERE table_id = ? AND column_key = ? AND branch = ? AND fragment_id = ? "
        "AND version < (SELECT MIN(version) FROM (SELECT version FROM column_states WHERE table_id = ? "
        "AND column_key = ? AND branch = ? AND fragment_id = ? ORDER BY version DESC LIMIT ?) AS newest)",
        *fragment,
        *fragment,
        MAX_RECORDS,
    )


def find(
    connection: Connection, table_id: str, column_key: str, signature: str, branch: str
) -> ColumnStateRecord | None:
    """Return the record for the files of a column, of the branch itself or else of another branch."""
    row = connection.one(
        "SELECT table_id, column_key, signature, branch, fragment_id, version, state FROM column_states "
        "WHERE table_id = ? AND column_key = ? AND signature = ? "
        "ORDER BY CASE WHEN branch = ? THEN 0 ELSE 1 END, version LIMIT 1",
        table_id,
        column_key,
        signature,
        branch,
    )
    return None if row is None else _record(row)


def of_column(connection: Connection, table_id: str, column_key: str) -> list[ColumnStateRecord]:
    """Return all records of a column, oldest first."""
    rows = connection.all(
        "SELECT table_id, column_key, signature, branch, fragment_id, version, state FROM column_states "
        "WHERE table_id = ? AND column_key = ? ORDER BY version",
        table_id,
        column_key,
    )
    return [_record(row) for row in rows]


def delete_branch(connection: Connection, table_id: str, branch: str) -> None:
    """Delete the records of a branch, which do not apply to another branch of its name."""
    connection.run("DELETE FROM column_states WHERE table_id = ? AND branch = ?", table_id, branch)


def _record(row: Row) -> ColumnStateRecord:
    return ColumnStateRecord(row[0], row[1], row[2], row[3], row[4], row[5], bytes(row[6]))
