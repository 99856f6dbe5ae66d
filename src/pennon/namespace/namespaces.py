"""Operations on namespaces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_namespace import (
    CreateNamespaceRequest,
    CreateNamespaceResponse,
    DescribeNamespaceRequest,
    DescribeNamespaceResponse,
    DropNamespaceRequest,
    DropNamespaceResponse,
    ListNamespacesRequest,
    ListNamespacesResponse,
    NamespaceExistsRequest,
    NamespaceExistsResponse,
)
from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
)

from pennon.catalog import StillReferencedError, namespaces, tables
from pennon.core.caller import current_caller
from pennon.core.identifiers import ROOT, Identifier, format_identifier, is_within
from pennon.core.paging import cut_page, decode_token, page_size
from pennon.namespace.dependents import DependentOperations, Dropped, wants_cascade
from pennon.namespace.operations import (
    missing_namespace,
    namespace_id,
    object_id,
    parse_choice,
    record_transaction,
    request_as,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pennon.catalog import Connection
    from pennon.catalog.properties import Properties
    from pennon.namespace.operations import Result

_LISTING = "namespaces"
_ATTEMPTS = 8


class NamespaceOperations(DependentOperations):
    """Create, list, describe and drop namespaces."""

    def create_namespace(self, request: CreateNamespaceRequest) -> CreateNamespaceResponse:
        """Create a namespace, keep the one there is, or replace it by an empty one."""
        request = request_as(CreateNamespaceRequest, request)
        namespace = object_id(request)
        mode = parse_choice("mode", request.mode, ("create", "exist_ok", "overwrite"))
        properties = dict(request.properties or {})
        if mode == "overwrite" and namespace != ROOT:
            return self._overwrite_namespace(namespace, properties)

        def work(connection: Connection) -> CreateNamespaceResponse:
            if namespace != ROOT and namespaces.insert(connection, namespace, properties):
                kept = properties
            elif mode == "create" or mode == "overwrite":
                raise NamespaceAlreadyExistsError(f"Namespace {format_identifier(namespace)!r} already exists.")
            else:
                kept = namespaces.find_properties(connection, namespace) or {}
            transaction_id = record_transaction(connection, "CreateNamespace", namespace)
            return CreateNamespaceResponse(transaction_id=transaction_id, properties=kept)

        try:
            return self._write(work)
        except StillReferencedError:
            raise self._missing_namespace(namespace[:-1]) from None

    def list_namespaces(self, request: ListNamespacesRequest) -> ListNamespacesResponse:
        """List the names of the namespaces directly in one."""
        request = request_as(ListNamespacesRequest, request)
        namespace = namespace_id(request)
        size = page_size(request.limit, self.services.settings.page_limit)
        key = decode_token(_LISTING, request.page_token, (str,))
        after = str(key[0]) if key else ""
        found = self._read(lambda c: self._visible_children(c, namespace, after, size + 1))
        page = cut_page(_LISTING, found, size, lambda name: (name,))
        return ListNamespacesResponse(namespaces=page.items, page_token=page.token)

    def describe_namespace(self, request: DescribeNamespaceRequest) -> DescribeNamespaceResponse:
        """Return the properties of a namespace; of one that a key only passes through, none."""
        request = request_as(DescribeNamespaceRequest, request)
        namespace = namespace_id(request)
        properties = self._properties_of(namespace)
        is_granted = current_caller().principal.role_on(namespace) is not None
        return DescribeNamespaceResponse(properties=properties if is_granted else {})

    def namespace_exists(self, request: NamespaceExistsRequest) -> NamespaceExistsResponse:
        """Answer when a namespace exists, raise when it does not."""
        request = request_as(NamespaceExistsRequest, request)
        self._properties_of(namespace_id(request))
        return NamespaceExistsResponse()

    def drop_namespace(self, request: DropNamespaceRequest) -> DropNamespaceResponse:
        """Drop a namespace; with cascade, also all that is in it."""
        request = request_as(DropNamespaceRequest, request)
        namespace = object_id(request)
        mode = parse_choice("mode", request.mode, ("fail", "skip"))
        behavior = parse_choice("behavior", request.behavior, ("restrict", "cascade"))
        if namespace == ROOT:
            raise InvalidInputError("The root namespace cannot be dropped.")
        everything = behavior == "cascade"
        properties, dropped, transaction_id = self._remove(
            namespace, mode=mode, everything=everything, cascade=wants_cascade(request)
        )
        self._finish(dropped)
        return DropNamespaceResponse(properties=properties, transaction_id=[transaction_id])

    def _properties_of(self, namespace: Identifier) -> Properties:
        found = self._read(lambda connection: namespaces.find_properties(connection, namespace))
        if found is None:
            raise self._missing_namespace(namespace)
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
        self, namespace: Identifier, *, mode: str, everything: bool, cascade: bool
    ) -> tuple[Properties, Dropped, str]:
        """Remove a namespace from the catalog."""

        def work(connection: Connection) -> tuple[Properties, Dropped, str]:
            properties = namespaces.find_properties(connection, namespace)
            if properties is None and mode == "fail":
                raise missing_namespace(namespace, connection)
            emptied = self._empty(connection, namespace, cascade=cascade) if everything else Dropped()
            namespaces.delete(connection, namespace)
            return properties or {}, emptied, record_transaction(connection, "DropNamespace", namespace)

        if everything:
            return self._write_undisturbed(namespace, work)
        try:
            return self._write(work)
        except StillReferencedError:
            name = format_identifier(namespace)
            said = f"Namespace {name!r} is not empty; drop what is in it, or use cascade."
            raise NamespaceNotEmptyError(said) from None

    def _write_undisturbed(self, namespace: Identifier, work: Callable[[Connection], Result]) -> Result:
        """Run work that empties a namespace; what is added to it at the same moment makes it start again."""
        self.services.ownership.require()
        for _ in range(_ATTEMPTS):
            try:
                return self._write(work)
            except StillReferencedError:
                continue
        raise ConcurrentModificationError(f"Namespace {format_identifier(namespace)!r} is being added to; try again.")

    def _empty(self, connection: Connection, namespace: Identifier, *, cascade: bool = False) -> Dropped:
        """Drop all that is in a namespace; views elsewhere that read its tables go with them, or keep them."""
        dropped = Dropped()
        self._drop(connection, tables.all_below(connection, namespace), dropped)
        what = f"Namespace {format_identifier(namespace)!r}"
        self._drop_views_over(connection, what, dropped, cascade=cascade)
        namespaces.delete_below(connection, namespace)
        return dropped

    def _overwrite_namespace(self, namespace: Identifier, properties: Properties) -> CreateNamespaceResponse:
        def work(connection: Connection) -> tuple[Dropped, str]:
            if not namespaces.exists(connection, namespace[:-1]):
                raise missing_namespace(namespace[:-1], connection)
            emptied = self._empty(connection, namespace)
            if not namespaces.insert(connection, namespace, properties):
                namespaces.set_properties(connection, namespace, properties)
            return emptied, record_transaction(connection, "CreateNamespace", namespace)

        dropped, transaction_id = self._write_undisturbed(namespace, work)
        self._finish(dropped)
        return CreateNamespaceResponse(transaction_id=transaction_id, properties=properties)
