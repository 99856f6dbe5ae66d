"""Transactions: what every mutation leaves behind, to be described and altered later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pennon.catalog.properties import Properties, dump_properties, load_properties
from pennon.core.clock import now_millis
from pennon.core.identifiers import Identifier, identifier_of, key_of, new_id

if TYPE_CHECKING:
    from pennon.catalog.database.protocol import Connection

#: Operations whose object is a namespace; a batch's is the one that holds all its tables.
_ON_NAMESPACES = frozenset({"CreateNamespace", "DropNamespace", "BatchCreateTableVersions", "BatchCommitTables"})

QUEUED, RUNNING, SUCCEEDED, FAILED, CANCELED = "Queued", "Running", "Succeeded", "Failed", "Canceled"


@dataclass(frozen=True)
class Transaction:
    """A change that was asked for, and how far it got."""

    id: str
    operation: str
    object: Identifier
    status: str
    properties: Properties

    @property
    def home(self) -> Identifier:
        """The namespace whose roles decide who sees the transaction: a table's is the one the table is in."""
        return self.object if self.operation in _ON_NAMESPACES else self.object[:-1]


def record(
    connection: Connection,
    operation: str,
    identifier: Sequence[str],
    properties: Mapping[str, str],
    status: str = SUCCEEDED,
) -> str:
    """Write a transaction in the same SQL transaction as its effect, and return its id."""
    transaction_id, now = new_id(), now_millis()
    connection.run(
        "INSERT INTO transactions (id, operation, object, status, properties, created_at, updated_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        transaction_id,
        operation,
        key_of(identifier),
        status,
        dump_properties(properties),
        now,
        now,
    )
    return transaction_id


def find(connection: Connection, transaction_id: str) -> Transaction | None:
    """Return a transaction."""
    if not transaction_id.isalnum():
        return None  # no id of ours, and perhaps nothing a database can compare
    row = connection.one(
        "SELECT id, operation, object, status, properties FROM transactions WHERE id = ?", transaction_id
    )
    return Transaction(row[0], row[1], identifier_of(row[2]), row[3], load_properties(row[4])) if row else None


def update(connection: Connection, transaction: Transaction, before: Transaction) -> bool:
    """Replace status and properties; false when another caller changed them since they were read."""
    changed = connection.run(
        "UPDATE transactions SET status = ?, properties = ?, updated_at = ? "
        "WHERE id = ? AND status = ? AND properties = ?",
        transaction.status,
        dump_properties(transaction.properties),
        now_millis(),
        transaction.id,
        before.status,
        dump_properties(before.properties),
    )
    return changed == 1


def forget_before(connection: Connection, millis: int) -> int:
    """Remove transactions older than a time and return how many there were."""
    return connection.run("DELETE FROM transactions WHERE created_at < ?", millis)
