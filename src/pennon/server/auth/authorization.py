"""Authorization by the permission of an operation and the objects of a request."""

from __future__ import annotations

from typing import TYPE_CHECKING

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


def authorize(operation: Operation, principal: Principal, request: object) -> None:
    """Raise unless a caller has the permission of an operation; objects that it may not see are not found."""
    if principal is ANONYMOUS_ADMIN:
        return
    permission = operation.permission
    for identifier in permission.objects(request):
        role = principal.role_on(identifier if permission.kind == "namespace" else identifier[:-1])
        if role is None and not _is_traversable(operation, principal, identifier):
            raise _not_found(permission.kind, identifier)
        if permission.role > (role or Role.READER):
            raise PermissionDeniedError(
                f"{operation.id} requires the role {permission.role.name.lower()}; the key {principal.name!r} is a "
                f"{(role or Role.READER).name.lower()} there."
            )


def _is_traversable(operation: Operation, principal: Principal, identifier: Identifier) -> bool:
    return operation.permission.kind == "namespace" and principal.may_traverse(identifier)


def _not_found(kind: str, identifier: Identifier) -> LanceNamespaceError:
    name = format_identifier(identifier)
    if kind == "namespace":
        return NamespaceNotFoundError(f"Namespace {name!r} does not exist.")
    return TableNotFoundError(f"Table {name!r} does not exist.")
