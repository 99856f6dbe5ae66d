"""Transactions: a record of every mutation, which can be described and altered later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pennon.catalog.properties import Properties, dump_properties, load_properties
from pennon.core.clock import now_millis
from pennon.core.identifiers import Identifier, identifier_of, key_of, new_id

if TYPE_CHECKING:
    from pennon.catalog.database.protocol import Connection

#: Operations whose object is a namespace; the object of a batch is the common namespace of its tables.
_ON_NAMESPACES = frozenset({"CreateNamespace", "DropNamespace", "BatchCreateTableVersions", "BatchCommitTables"})

QUEUED, RUNNING, SUCCEEDED, FAILED, CANCELED = "Queued", "Running", "Succeeded", "Failed", "Canceled"


@dataclass(frozen=True)
class Transaction:
    """A mutation and its status."""

    id: str
    operation: str
    object: Identifier
    status: str
    properties: Properties

    @property
    def home(self) -> Identifier:
        """The namespace whose roles decide who can see the transaction."""
        return self.object if self.operation in _ON_NAMESPACES else self.object[:-1]


def insert(
    connection: Connection,
    operation: str,
    identifier: Sequence[str],
    properties: Mapping[str, str],
    status: str = SUCCEEDED,
) -> str:
    """Insert a transaction in the SQL transaction of its effect, and return its id."""
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
        return None  # not an id that Pennon makes, and possibly a string that a database cannot compare
    row = connection.one(
        "SELECT id, operation, object, status, properties FROM transactions WHERE id = ?", transaction_id
    )
    return Transaction(row[0], row[1], identifier_of(row[2]), row[3], load_properties(row[4])) if row else None


def update(connection: Connection, transaction: Transaction, before: Transaction) -> bool:
    """Replace status and properties; false if another caller changed them meanwhile."""
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


def delete_before(connection: Connection, millis: int) -> int:
    """Delete the transactions from before a time, and return their number."""
    return connection.run("DELETE FROM transactions WHERE created_at < ?", millis)
