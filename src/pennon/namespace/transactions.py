"""Operations on transactions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import lance_namespace as ln
from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    InvalidTableStateError,
    PermissionDeniedError,
    TransactionNotFoundError,
)

from pennon.catalog import transactions
from pennon.catalog.transactions import CANCELED, FAILED, QUEUED, RUNNING, SUCCEEDED, Transaction
from pennon.core.caller import Role, current_caller
from pennon.namespace.requests import parse_choice, request_as
from pennon.namespace.transaction_records import CONTEXT_PREFIX, RECORDED_PROPERTIES
from pennon.services import Services

if TYPE_CHECKING:
    from lance_namespace_urllib3_client.models import (
        AlterTransactionAction,
        AlterTransactionSetProperty,
        AlterTransactionUnsetProperty,
    )

    from pennon.catalog import Connection

_STATUSES = {status.lower(): status for status in (QUEUED, RUNNING, SUCCEEDED, FAILED, CANCELED)}
_NEXT = {
    QUEUED: {RUNNING, FAILED, CANCELED},
    RUNNING: {SUCCEEDED, FAILED, CANCELED},
    SUCCEEDED: set[str](),
    FAILED: set[str](),
    CANCELED: set[str](),
}


@dataclass(frozen=True)
class TransactionOperations:
    """Describe and alter transactions."""

    services: Services

    def describe_transaction(self, request: ln.DescribeTransactionRequest) -> ln.DescribeTransactionResponse:
        """Return the status and properties of a transaction."""
        request = request_as(ln.DescribeTransactionRequest, request)
        found = self.services.database.read(lambda connection: _visible(connection, _transaction_id(request)))
        return ln.DescribeTransactionResponse(status=found.status, properties=found.properties)

    def alter_transaction(self, request: ln.AlterTransactionRequest) -> ln.AlterTransactionResponse:
        """Apply all actions to a transaction, or none."""
        request = request_as(ln.AlterTransactionRequest, request)
        if not request.actions:
            raise InvalidInputError("actions is empty; name at least one action.")

        def work(connection: Connection) -> Transaction:
            before = _visible(connection, _transaction_id(request))
            role = current_caller().principal.role_on(before.home)
            if role is None or role < Role.WRITER:
                raise PermissionDeniedError("This key may not alter the transaction.")
            after = before
            for action in request.actions:
                after = _apply(after, action)
            if not transactions.update(connection, after, before):
                raise ConcurrentModificationError("The transaction was altered at the same time; try again.")
            return after

        altered = self.services.database.write(work)
        return ln.AlterTransactionResponse(status=altered.status, properties=altered.properties)


def _transaction_id(request: ln.DescribeTransactionRequest | ln.AlterTransactionRequest) -> str:
    if not request.id or len(request.id) != 1:
        raise InvalidInputError("id must hold exactly one part: the transaction_id of a response.")
    return request.id[0]


def _visible(connection: Connection, transaction_id: str) -> Transaction:
    found = transactions.find(connection, transaction_id)
    if found is None or current_caller().principal.role_on(found.home) is None:
        raise TransactionNotFoundError(f"Transaction {transaction_id[:64]!r} does not exist.")
    return found


def _apply(transaction: Transaction, action: AlterTransactionAction) -> Transaction:
    given = [action.set_status_action, action.set_property_action, action.unset_property_action]
    if sum(part is not None for part in given) != 1:
        raise InvalidInputError("Each action must have exactly one of its three kinds.")
    if action.set_status_action is not None:
        return _set_status(transaction, action.set_status_action.status)
    if action.set_property_action is not None:
        return _set_property(transaction, action.set_property_action)
    assert action.unset_property_action is not None  # noqa: S101 (one of the three was given)
    return _unset_property(transaction, action.unset_property_action)


def _set_status(transaction: Transaction, value: str | None) -> Transaction:
    if value is None:
        raise InvalidInputError("set_status_action has no status.")
    status = _STATUSES[parse_choice("status", value, tuple(_STATUSES))]
    if status != transaction.status and status not in _NEXT[transaction.status]:
        raise InvalidTableStateError(f"A transaction that is {transaction.status} cannot become {status}.")
    return replace(transaction, status=status)


def _set_property(transaction: Transaction, action: AlterTransactionSetProperty) -> Transaction:
    mode = parse_choice("mode", action.mode, ("overwrite", "fail", "skip"))
    if action.key is None or action.value is None:
        raise InvalidInputError("set_property_action needs a key and a value.")
    _refuse_recorded(action.key)
    if action.key in transaction.properties and mode == "fail":
        raise InvalidTableStateError(f"The transaction already has the property {action.key!r}.")
    if action.key in transaction.properties and mode == "skip":
        return transaction
    return replace(transaction, properties={**transaction.properties, action.key: action.value})


def _refuse_recorded(key: str) -> None:
    """Refuse to change the properties that Pennon records, because they serve as an audit log."""
    if key in RECORDED_PROPERTIES or key.startswith(CONTEXT_PREFIX):
        raise PermissionDeniedError(
            f"The property {key[:64]!r} of a transaction is recorded by the server and cannot be altered; choose "
            "another name."
        )


def _unset_property(transaction: Transaction, action: AlterTransactionUnsetProperty) -> Transaction:
    mode = parse_choice("mode", action.mode, ("skip", "fail"))
    if action.key is None:
        raise InvalidInputError("unset_property_action needs a key.")
    _refuse_recorded(action.key)
    if action.key not in transaction.properties and mode == "fail":
        raise InvalidTableStateError(f"The transaction has no property {action.key!r}.")
    return replace(transaction, properties={k: v for k, v in transaction.properties.items() if k != action.key})
