"""Listings of the tables of one namespace, and of all namespaces."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from lance_namespace import ListTablesRequest, ListTablesResponse
from lance_namespace.errors import InvalidInputError

from pennon.catalog import tables
from pennon.core.identifiers import DEFAULT_DELIMITER, ROOT, Identifier, format_identifier, key_of
from pennon.core.paging import Key, cut_page, decode_token, page_size
from pennon.namespace.requests import name_cursor, namespace_id, request_as
from pennon.namespace.resolver import TableResolver, readable_scopes
from pennon.services import Services

_OF_NAMESPACE, _OF_ALL = "tables", "all_tables"


@dataclass(frozen=True)
class ListingOperations:
    """List tables."""

    services: Services
    resolver: TableResolver

    def list_tables(self, request: ListTablesRequest) -> ListTablesResponse:
        """List the names of the tables in a namespace."""
        request = request_as(ListTablesRequest, request)
        namespace = namespace_id(request)
        if namespace == ROOT:
            self.services.discovery.refresh()
        size, after = name_cursor(_OF_NAMESPACE, request, self.services.settings.page_limit)
        include_declared = request.include_declared is not False
        found = self.resolver.list_names(
            namespace,
            lambda connection: tables.names(
                connection, namespace, after=after, limit=size + 1, include_declared=include_declared
            ),
        )
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
        for scope in readable_scopes(ROOT):
            found += self.services.database.read(
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
        return ListTablesResponse(
            tables=[_format(identifier, delimiter) for identifier in page.items], page_token=page.token
        )


def _position(identifier: Identifier) -> Key:
    return (key_of(identifier[:-1]), identifier[-1])


def _format(identifier: Identifier, delimiter: str) -> str:
    if any(delimiter in part for part in identifier):
        raise InvalidInputError(
            f"The table {list(identifier)} cannot be written with the delimiter {delimiter!r}; choose another one."
        )
    return format_identifier(identifier, delimiter)
