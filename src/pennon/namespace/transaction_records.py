"""Records of mutations: each is a transaction with its operation, object, principal and context."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pennon.catalog import transactions, write_at_least_once
from pennon.core.caller import Caller, current_caller
from pennon.core.identifiers import format_identifier

if TYPE_CHECKING:
    from pennon.catalog import Connection, Database
    from pennon.catalog.tables import Table

#: The properties of a transaction that only Pennon writes.
RECORDED_PROPERTIES = frozenset({"operation", "object", "principal", "request_id", "job_id"})
CONTEXT_PREFIX = "context."


def record_transaction(
    connection: Connection, operation: str, identifier: Sequence[str], caller: Caller | None = None
) -> str:
    """Record the transaction of a mutation with its principal and context, and return its id."""
    caller = caller or current_caller()
    properties = {
        "operation": operation,
        "object": format_identifier(identifier),
        "principal": caller.principal.name,
        **{f"{CONTEXT_PREFIX}{key}": value for key, value in caller.context.items()},
    }
    if caller.request_id:
        properties["request_id"] = caller.request_id
    transaction_id = transactions.insert(connection, operation, identifier, properties)
    if caller.mark_effect is not None:
        caller.mark_effect(connection, transaction_id)
    return transaction_id


def transaction_recorder(operation: str, table: Table) -> Callable[[Connection], str]:
    """Return a function that records an operation's transaction for the current caller.

    Lance commits on its own threads, where the current caller is unknown.
    """
    caller = current_caller()
    return lambda connection: record_transaction(connection, operation, table.identifier, caller)


def record_after(database: Database, operation: str, table: Table) -> str:
    """Record an operation whose effect is durable already, and return the transaction's id."""
    return write_at_least_once(database, transaction_recorder(operation, table))
