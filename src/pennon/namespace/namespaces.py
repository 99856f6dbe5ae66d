"""Operations on namespaces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import lance_namespace as ln
from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
)

from pennon.catalog import ForeignKeyError, namespaces, tables
from pennon.catalog.changes import namespace_subject
from pennon.core.caller import current_caller
from pennon.core.identifiers import ROOT, Identifier, format_identifier, is_within
from pennon.core.paging import cut_page
from pennon.maintenance.policy import check_properties
from pennon.namespace.dependents import Dependents, Dropped, wants_cascade
from pennon.namespace.requests import name_cursor, namespace_id, object_id, parse_choice, request_as
from pennon.namespace.resolver import TableResolver, missing_namespace
from pennon.namespace.transaction_records import record_transaction
from pennon.services import Services

if TYPE_CHECKING:
    from collections.abc import Callable

    from pennon.catalog import Connection
    from pennon.catalog.properties import Properties

Result = TypeVar("Result")

_LISTING = "namespaces"
_ATTEMPTS = 8


@dataclass(frozen=True)
class NamespaceOperations:
    """Create, list, describe and drop namespaces."""

    services: Services
    resolver: TableResolver
    dependents: Dependents

    def create_namespace(self, request: ln.CreateNamespaceRequest) -> ln.CreateNamespaceResponse:
        """Create a namespace; if it exists, fail, keep it, or replace it by an empty one."""
        request = request_as(ln.CreateNamespaceRequest, request)
        namespace = object_id(request)
        mode = parse_choice("mode", request.mode, ("create", "exist_ok", "overwrite"))
        properties = dict(request.properties or {})
        check_properties(properties)
        if mode == "overwrite" and namespace != ROOT:
            return self._overwrite_namespace(namespace, properties)

        def work(connection: Connection) -> ln.CreateNamespaceResponse:
            if namespace != ROOT and namespaces.insert(connection, namespace, properties):
                stored = properties
            elif mode == "create" or mode == "overwrite":
                raise NamespaceAlreadyExistsError(f"Namespace {format_identifier(namespace)!r} already exists.")
            else:
                stored = namespaces.find_properties(connection, namespace) or {}
            transaction_id = record_transaction(connection, "CreateNamespace", namespace)
            return ln.CreateNamespaceResponse(transaction_id=transaction_id, properties=stored)

        try:
            return self.services.database.write(work)
        except ForeignKeyError:
            raise self.resolver.missing_namespace(namespace[:-1]) from None

    def list_namespaces(self, request: ln.ListNamespacesRequest) -> ln.ListNamespacesResponse:
        """List the names of the child namespaces of a namespace."""
        request = request_as(ln.ListNamespacesRequest, request)
        namespace = namespace_id(request)
        size, after = name_cursor(_LISTING, request, self.services.settings.page_limit)
        found = self.services.database.read(lambda c: self._visible_children(c, namespace, after, size + 1))
        page = cut_page(_LISTING, found, size, lambda name: (name,))
        return ln.ListNamespacesResponse(namespaces=page.items, page_token=page.token)

    def describe_namespace(self, request: ln.DescribeNamespaceRequest) -> ln.DescribeNamespaceResponse:
        """Return the properties of a namespace; none if the key is only granted namespaces below it."""
        request = request_as(ln.DescribeNamespaceRequest, request)
        namespace = namespace_id(request)
        properties = self._properties_of(namespace)
        is_granted = current_caller().principal.role_on(namespace) is not None
        return ln.DescribeNamespaceResponse(properties=properties if is_granted else {})

    def namespace_exists(self, request: ln.NamespaceExistsRequest) -> ln.NamespaceExistsResponse:
        """Return if a namespace exists, raise if it does not."""
        request = request_as(ln.NamespaceExistsRequest, request)
        self._properties_of(namespace_id(request))
        return ln.NamespaceExistsResponse()

    def drop_namespace(self, request: ln.DropNamespaceRequest) -> ln.DropNamespaceResponse:
        """Drop a namespace; with the behavior cascade, also everything in it."""
        request = request_as(ln.DropNamespaceRequest, request)
        namespace = object_id(request)
        mode = parse_choice("mode", request.mode, ("fail", "skip"))
        behavior = parse_choice("behavior", request.behavior, ("restrict", "cascade"))
        if namespace == ROOT:
            raise InvalidInputError("The root namespace cannot be dropped.")
        properties, dropped, transaction_id = self._remove(
            namespace, mode=mode, with_content=behavior == "cascade", cascade=wants_cascade(request)
        )
        self.dependents.clean_up(dropped)
        return ln.DropNamespaceResponse(properties=properties, transaction_id=[transaction_id])

    def _properties_of(self, namespace: Identifier) -> Properties:
        found = self.services.database.cached_read(namespace_subject(namespace), namespaces.find_properties, namespace)
        if found is None:
            raise self.resolver.missing_namespace(namespace)
        return found

    def _visible_children(self, connection: Connection, namespace: Identifier, after: str, limit: int) -> list[str]:
        principal = current_caller().principal
        if not principal.may_traverse(namespace):
            raise missing_namespace(namespace)
        if principal.role_on(namespace) is not None:
            names = namespaces.children(connection, namespace, after=after, limit=limit)
        else:
            below = [s for s in principal.scopes() if is_within(s, namespace) and len(s) > len(namespace)]
            steps = sorted({scope[len(namespace)] for scope in below})
            names = [n for n in steps if n > after and namespaces.exists(connection, (*namespace, n))][:limit]
        if not names and not namespaces.exists(connection, namespace):
            raise missing_namespace(namespace, connection)
        return names

    def _remove(
        self, namespace: Identifier, *, mode: str, with_content: bool, cascade: bool
    ) -> tuple[Properties, Dropped, str]:
        """Remove a namespace from the catalog; cascade also drops views elsewhere that read its tables."""

        def work(connection: Connection) -> tuple[Properties, Dropped, str]:
            properties = namespaces.find_properties(connection, namespace)
            if properties is None and mode == "fail":
                raise missing_namespace(namespace, connection)
            dropped = self._empty(connection, namespace, cascade=cascade) if with_content else Dropped()
            namespaces.delete(connection, namespace)
            return properties or {}, dropped, record_transaction(connection, "DropNamespace", namespace)

        if with_content:
            return self._retry_until_empty(namespace, work)
        try:
            return self.services.database.write(work)
        except ForeignKeyError:
            name = format_identifier(namespace)
            raise NamespaceNotEmptyError(
                f"Namespace {name!r} is not empty; drop what is in it, or use cascade."
            ) from None

    def _retry_until_empty(self, namespace: Identifier, work: Callable[[Connection], Result]) -> Result:
        """Run a transaction that empties a namespace, and retry it when something is added at the same moment."""
        self.services.ownership.require()
        for _ in range(_ATTEMPTS):
            try:
                return self.services.database.write(work)
            except ForeignKeyError:
                continue
        raise ConcurrentModificationError(
            f"Namespace {format_identifier(namespace)!r} keeps getting new tables or namespaces; try again."
        )

    def _empty(self, connection: Connection, namespace: Identifier, *, cascade: bool = False) -> Dropped:
        """Drop everything in a namespace. Views elsewhere that read its tables are dropped too, or prevent it."""
        dropped = Dropped()
        self.dependents.drop(connection, tables.all_below(connection, namespace), dropped)
        what = f"Namespace {format_identifier(namespace)!r}"
        self.dependents.drop_views_over(connection, what, dropped, cascade=cascade)
        namespaces.delete_below(connection, namespace)
        return dropped

    def _overwrite_namespace(self, namespace: Identifier, properties: Properties) -> ln.CreateNamespaceResponse:
        def work(connection: Connection) -> tuple[Dropped, str]:
            if not namespaces.exists(connection, namespace[:-1]):
                raise missing_namespace(namespace[:-1], connection)
            dropped = self._empty(connection, namespace)
            if not namespaces.insert(connection, namespace, properties):
                namespaces.set_properties(connection, namespace, properties)
            return dropped, record_transaction(connection, "CreateNamespace", namespace)

        dropped, transaction_id = self._retry_until_empty(namespace, work)
        self.dependents.clean_up(dropped)
        return ln.CreateNamespaceResponse(transaction_id=transaction_id, properties=properties)
