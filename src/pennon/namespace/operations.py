"""What the operations of every noun share: the catalog, the lake, and looking things up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from lance_namespace.errors import (
    InvalidInputError,
    LanceNamespaceError,
    NamespaceNotFoundError,
    PermissionDeniedError,
    TableNotFoundError,
)
from pydantic import BaseModel, ValidationError

from pennon.catalog import StillReferencedError, namespaces, tables, transactions, write_transaction
from pennon.catalog.versions import MAIN
from pennon.commits.view_protection import refuse_view_write
from pennon.core.caller import Caller, Role, current_caller
from pennon.core.errors import suggest
from pennon.core.identifiers import ROOT, Identifier, check_identifier, format_identifier
from pennon.services import Services

if TYPE_CHECKING:
    from pennon.catalog import Connection
    from pennon.catalog.tables import Table

#: The properties of a transaction that Pennon writes, and nobody else.
RECORDED_PROPERTIES = frozenset({"operation", "object", "principal", "request_id", "job_id"})
CONTEXT_PREFIX = "context."

Model = TypeVar("Model", bound=BaseModel)
Result = TypeVar("Result")

#: Among so many names the one that was meant is looked for.
_SIMILAR_NAMES = 200


class Operations:
    """The base of each noun's operations."""

    services: Services

    def _read(self, work: Callable[[Connection], Result]) -> Result:
        return self.services.database.read(work)

    def _write(self, work: Callable[[Connection], Result]) -> Result:
        return self.services.database.write(work)

    def _note(self, operation: str, table: Table) -> str:
        """Record an operation whose effect is there, and return the transaction's id."""
        return write_transaction(self.services.database, transaction_recorder(operation, table))

    def _table(self, identifier: Identifier) -> Table:
        """Return a table, or raise the error that names what is missing."""
        if not identifier:
            raise InvalidInputError("The root namespace is not a table; name a table.")
        found = self._find(identifier)
        if found is None:
            raise self._missing_table(identifier)
        return found

    def _find(self, identifier: Identifier) -> Table | None:
        """Return a table, if there is one of that name in the catalog or in the root folder."""
        found = self.services.database.cached_read(tables.find, identifier)
        if found is not None and self.services.discovery.notices_loss(found):
            found = None
        if found is None and len(identifier) == 1:
            found = self.services.discovery.find(identifier[0])
        return found

    def _writable(self, identifier: Identifier) -> Table:
        """Return a table whose rows callers may change, or raise the error that tells why they may not."""
        table = self._table(identifier)
        refuse_view_write(table)
        return table

    @contextmanager
    def _not_found_if_dropped(self, table: Table) -> Iterator[None]:
        """Raise that a table was dropped, where that is why something went wrong inside the block."""
        try:
            yield
        except (LanceNamespaceError, StillReferencedError, OSError, RuntimeError) as error:
            if self._read(lambda connection: tables.find_by_id(connection, table.id)) is None:
                raise TableNotFoundError(f"Table {format_identifier(table.identifier)!r} was dropped.") from error
            raise

    def _is_only_declared(self, table: Table) -> bool:
        return table.declared and self.services.history.latest(table, MAIN) is None

    def find_table(self, identifier: Identifier) -> Table:
        """Return a table, or raise the error that names what is missing."""
        return self._table(identifier)

    def _missing_table(self, identifier: Identifier) -> NamespaceNotFoundError | TableNotFoundError:
        return self._read(lambda connection: missing_table(connection, identifier))

    def _missing_namespace(self, namespace: Identifier) -> NamespaceNotFoundError:
        return self._read(lambda connection: missing_namespace(namespace, connection))


def request_as(model: type[Model], request: Any) -> Model:
    """Return a request as its model; Lance itself hands over things that merely look like it."""
    if isinstance(request, model):
        return request
    try:
        return model.model_validate(request if isinstance(request, dict) else request.model_dump())
    except ValidationError as error:
        raise invalid_request(error) from None


def invalid_request(error: ValidationError) -> InvalidInputError:
    """Return the error that tells which field of a request is wrong, without repeating its value."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or "body"
    return InvalidInputError(f"The request is wrong at {where!r}: {first['msg']}.")


def object_id(request: Any) -> Identifier:
    """Return the identifier of a request that must have one; the root is the empty list."""
    if request.id is None:
        raise InvalidInputError("The request names no object: 'id' is missing.")
    return check_identifier(request.id)


def namespace_id(request: Any) -> Identifier:
    """Return the namespace of a request; without an id it is the root."""
    return check_identifier(request.id or ROOT)


def table_id(request: Any) -> Identifier:
    """Return the table of a request."""
    identifier = object_id(request)
    if not identifier:
        raise InvalidInputError("The root namespace is not a table; name a table.")
    return identifier


def parse_choice(field: str, value: str | None, choices: Sequence[str]) -> str:
    """Return which of the choices a value spells, in any case and with or without underscores; the first by default."""
    if value is None:
        return choices[0]
    plain = value.replace("_", "").lower()
    for choice in choices:
        if choice.replace("_", "") == plain:
            return choice
    raise InvalidInputError(f"{field} is {value!r}; it must be one of {', '.join(choices)}.")


def missing_table(connection: Connection, identifier: Identifier) -> NamespaceNotFoundError | TableNotFoundError:
    """Return the error for a table that does not exist: it names its namespace when that is what is missing."""
    parent = identifier[:-1]
    if not namespaces.exists(connection, parent):
        return missing_namespace(parent, connection)
    page = partial(tables.names, connection, parent, limit=_SIMILAR_NAMES, include_declared=True)
    hint = suggest(identifier[-1], _similar(identifier[-1], page))
    return TableNotFoundError(f"Table {format_identifier(identifier)!r} does not exist.{hint}")


def missing_namespace(namespace: Identifier, connection: Connection | None = None) -> NamespaceNotFoundError:
    """Return the error for a namespace that does not exist; with a connection, it tells which may have been meant.

    A caller is told nothing of names that it may not see.
    """
    visible = current_caller().principal.role_on(namespace[:-1]) is not None
    hint = ""
    if connection and visible:
        page = partial(namespaces.children, connection, namespace[:-1], limit=_SIMILAR_NAMES)
        hint = suggest(namespace[-1], _similar(namespace[-1], page))
    return NamespaceNotFoundError(f"Namespace {format_identifier(namespace)!r} does not exist.{hint}")


def _similar(name: str, page: Callable[..., list[str]]) -> list[str]:
    """Return some names beside one that does not exist: those that begin alike, then the first there are."""
    return [*page(after=name[: len(name) // 2]), *page(after="")]


def require_unscoped() -> None:
    """Refuse a storage location named by a caller that is confined to a namespace: locations reach across them."""
    role = current_caller().principal.role_on(ROOT)
    if role is None or role < Role.WRITER:
        raise PermissionDeniedError("Only a key that is not confined to a namespace may name a location.")


def record_transaction(
    connection: Connection, operation: str, identifier: Sequence[str], caller: Caller | None = None
) -> str:
    """Record the transaction of a mutation with who asked for it and in what context."""
    caller = caller or current_caller()
    properties = {
        "operation": operation,
        "object": format_identifier(identifier),
        "principal": caller.principal.name,
        **{f"{CONTEXT_PREFIX}{key}": value for key, value in caller.context.items()},
    }
    if caller.request_id:
        properties["request_id"] = caller.request_id
    transaction_id = transactions.record(connection, operation, identifier, properties)
    if caller.mark_effect is not None:
        caller.mark_effect(connection, transaction_id)
    return transaction_id


def transaction_recorder(operation: str, table: Table) -> Callable[[Connection], str]:
    """Return what records an operation's transaction, with the caller of this moment.

    Lance commits on threads of its own, where the caller is not known any more.
    """
    caller = current_caller()
    return lambda connection: record_transaction(connection, operation, table.identifier, caller)
