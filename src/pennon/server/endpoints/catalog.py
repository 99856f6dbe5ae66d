"""Endpoints of operations that the catalog answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_namespace import ListTablesRequest, ListTablesResponse

from pennon.server.http.codec import delimiter_of

if TYPE_CHECKING:
    from pennon.server.request import RequestContext


def list_all_tables(context: RequestContext) -> ListTablesResponse:
    """List the tables of all namespaces; LanceDB's client expects those of its database."""
    request = context.parsed(ListTablesRequest)
    if context.is_lancedb:
        return context.namespace.list_tables(request)
    return context.namespace.list_all_tables(request, delimiter_of(context.exchange))
