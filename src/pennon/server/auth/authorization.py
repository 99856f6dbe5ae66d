"""What a caller may do: decided from the operation's row and the objects its request names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_namespace.errors import (
    LanceNamespaceError,
    NamespaceNotFoundError,
    PermissionDeniedError,
    TableNotFoundError,
)

from pennon.core.caller import ANONYMOUS_ADMIN, Principal, Role
from pennon.core.identifiers import Identifier, format_identifier

if TYPE_CHECKING:
    from pennon.server.operations.model import Operation


def authorize(operation: Operation, principal: Principal, request: Any) -> None:
    """Raise unless a caller may do what it asks for; what it may not see does not exist for it."""
    if principal is ANONYMOUS_ADMIN:
        return
    permission = operation.permission
    for identifier in permission.objects(request):
        role = principal.role_on(identifier if permission.kind == "namespace" else identifier[:-1])
        if role is None and not _on_the_way(operation, principal, identifier):
            raise _hidden(permission.kind, identifier)
        if permission.role > (role or Role.READER):
            raise PermissionDeniedError(
                f"The key {principal.name!r} is a {(role or Role.READER).name.lower()} there; "
                f"{operation.id} needs a {permission.role.name.lower()}."
            )


def _on_the_way(operation: Operation, principal: Principal, identifier: Identifier) -> bool:
    return operation.permission.kind == "namespace" and principal.may_traverse(identifier)


def _hidden(kind: str, identifier: Identifier) -> LanceNamespaceError:
    name = format_identifier(identifier)
    if kind == "namespace":
        return NamespaceNotFoundError(f"Namespace {name!r} does not exist.")
    return TableNotFoundError(f"Table {name!r} does not exist.")
