"""Endpoints of operations that the catalog answers, and which requests to them need storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_namespace import DescribeTableRequest, ListTablesRequest, ListTablesResponse

from pennon.server.http.codec import delimiter_of

if TYPE_CHECKING:
    from pennon.server.request import RequestContext


def list_all_tables(context: RequestContext) -> ListTablesResponse:
    """List the tables of all namespaces; LanceDB's client expects those of its database."""
    request = context.parsed(ListTablesRequest)
    if context.is_lancedb:
        return context.namespace.list_tables(request)
    return context.namespace.list_all_tables(request, delimiter_of(context.exchange))


def describes_data(context: RequestContext) -> bool:
    """Tell whether a description of a table includes more than the catalog has."""
    request = context.parsed(DescribeTableRequest)
    return bool(request.load_detailed_metadata) or request.tag is not None


def lists_root(context: RequestContext) -> bool:
    """Tell whether a listing includes the root namespace, and its folder must be searched for tables again."""
    return not context.id and context.namespace.services.discovery.is_due()
