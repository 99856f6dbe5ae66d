"""The log of changes of the catalog: the subjects of cached reads, and the removal of old entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pennon.core.clock import now_millis
from pennon.core.identifiers import key_of

if TYPE_CHECKING:
    from pennon.catalog.database.protocol import Connection

#: The subject of reads whether there are any keys.
KEYS = "keys"
#: Entries are kept for at least this time. A process that has not read the log for longer empties its cache.
_KEPT_MILLIS = 10 * 60 * 1000


def table_subject(identifier: Sequence[str]) -> str:
    """Return the subject of reads of a table by its identifier."""
    return f"table {key_of(identifier[:-1])} {identifier[-1]}"


def versions_subject(table_id: str) -> str:
    """Return the subject of reads of a table's versions."""
    return f"versions {table_id}"


def namespace_subject(namespace: Sequence[str]) -> str:
    """Return the subject of reads of a namespace."""
    return f"namespace {key_of(namespace)}"


def key_subject(digest: str) -> str:
    """Return the subject of reads of a key by its digest."""
    return f"key {digest}"


def prune(connection: Connection, dialect: str) -> None:
    """Delete the entries that were in the log when this was last done, at most once in ten minutes."""
    now = now_millis()
    if dialect == "sqlite":
        due = connection.run(
            "UPDATE change_horizon SET pruned = next, recorded_at = ?, "
            "next = (SELECT COALESCE(MAX(seq), 0) + 1 FROM sqlite_sequence WHERE name = 'changes') "
            "WHERE recorded_at < ?",
            now,
            now - _KEPT_MILLIS,
        )
        if due:
            connection.run("DELETE FROM changes WHERE position < (SELECT pruned FROM change_horizon)")
        return
    # Transactions before the snapshot's xmin have ended. In a restored dump, the numbers may be those of another server
    # and larger than any here: LEAST and the second condition remove them.
    due = connection.run(
        "UPDATE change_horizon SET pruned = LEAST(next, pg_snapshot_xmin(pg_current_snapshot())), recorded_at = ?, "
        "next = pg_snapshot_xmin(pg_current_snapshot()) WHERE recorded_at < ?",
        now,
        now - _KEPT_MILLIS,
    )
    if due:
        connection.run(
            "DELETE FROM changes WHERE transaction_id < (SELECT pruned FROM change_horizon) "
            "OR transaction_id >= pg_snapshot_xmax(pg_current_snapshot())"
        )
