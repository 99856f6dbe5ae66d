"""Listing tables: of one namespace, and of all."""

from __future__ import annotations

from functools import partial

from lance_namespace import ListTablesRequest, ListTablesResponse
from lance_namespace.errors import InvalidInputError

from pennon.catalog import namespaces, tables
from pennon.core.caller import current_caller
from pennon.core.identifiers import DEFAULT_DELIMITER, ROOT, Identifier, format_identifier, is_within, key_of
from pennon.core.paging import Key, cut_page, decode_token, page_size
from pennon.namespace.operations import Operations, missing_namespace, namespace_id, request_as

_OF_NAMESPACE, _OF_ALL = "tables", "all_tables"


class ListingOperations(Operations):
    """List tables."""

    def list_tables(self, request: ListTablesRequest) -> ListTablesResponse:
        """List the names of the tables directly in a namespace."""
        request = request_as(ListTablesRequest, request)
        namespace = namespace_id(request)
        if namespace == ROOT:
            self.services.discovery.refresh()
        size = page_size(request.limit, self.services.settings.page_limit)
        key = decode_token(_OF_NAMESPACE, request.page_token, (str,))
        found: list[str] = []
        principal = current_caller().principal
        if not principal.may_traverse(namespace):
            raise missing_namespace(namespace)
        if principal.role_on(namespace) is not None:
            found = self._read(
                lambda connection: tables.names(
                    connection,
                    namespace,
                    after=str(key[0]) if key else "",
                    limit=size + 1,
                    include_declared=request.include_declared is not False,
                )
            )
        if not found and not self._read(lambda connection: namespaces.exists(connection, namespace)):
            raise self._missing_namespace(namespace)
        page = cut_page(_OF_NAMESPACE, found, size, lambda name: (name,))
        return ListTablesResponse(tables=page.items, page_token=page.token)

    def list_all_tables(self, request: ListTablesRequest, delimiter: str = DEFAULT_DELIMITER) -> ListTablesResponse:
        """List the full identifiers of the tables of all namespaces."""
        request = request_as(ListTablesRequest, request)
        self.services.discovery.refresh()
        size = page_size(request.limit, self.services.settings.page_limit)
        key = decode_token(_OF_ALL, request.page_token, (str, str))
        after = (str(key[0]), str(key[1])) if key else ("", "")
        found: list[Identifier] = []
        for scope in _outermost(current_caller().principal.scopes()):
            found += self._read(
                partial(
                    tables.identifiers_below,
                    scope=scope,
                    after=after,
                    limit=size + 1,
                    include_declared=request.include_declared is not False,
                )
            )
        found.sort(key=_position)
        page = cut_page(_OF_ALL, found[: size + 1], size, _position)
        return ListTablesResponse(tables=[_write_out(i, delimiter) for i in page.items], page_token=page.token)


def _position(identifier: Identifier) -> Key:
    return (key_of(identifier[:-1]), identifier[-1])


def _outermost(scopes: tuple[Identifier, ...]) -> list[Identifier]:
    return [s for s in set(scopes) if not any(s != other and is_within(s, other) for other in scopes)]


def _write_out(identifier: Identifier, delimiter: str) -> str:
    if any(delimiter in part for part in identifier):
        raise InvalidInputError(
            f"The table {list(identifier)} cannot be written with the delimiter {delimiter!r}; choose another one."
        )
    return format_identifier(identifier, delimiter)
