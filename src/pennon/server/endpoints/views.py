"""Endpoints of operations on materialized views."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pennon.namespace.models.views import CreateViewRequest, DescribeViewRequest, RefreshPlan, RefreshViewRequest
from pennon.namespace.view_creation import database_of
from pennon.server.request import Response
from pennon.views.sql.simple_select import is_readable_by_client

if TYPE_CHECKING:
    from pydantic import JsonValue

    from pennon.server.request import RequestContext


def create_view(context: RequestContext) -> Response:
    """Create a view; LanceDB's client learns from the status whether a job computes its rows."""
    database = database_of(context.headers.get("x-lancedb-database"), context.id)
    result = context.namespace.create_materialized_view(context.parse(CreateViewRequest), database)
    of_lancedb = context.params.get("query") is not None
    status = 201 if not of_lancedb else 202 if result.job_id is not None else 200
    return Response(status, result.model_dump(exclude_none=True))


def describe_view(context: RequestContext) -> dict[str, JsonValue]:
    """Describe a view; omit a query that LanceDB's client cannot parse, because the client would fail."""
    result = context.namespace.describe_materialized_view(context.parse(DescribeViewRequest))
    of_lancedb = context.headers.get("user-agent", "").startswith("LanceDB-")
    hidden = {"query", "format"} if of_lancedb and not is_readable_by_client(result.query) else set()
    return result.model_dump(exclude_none=True, exclude=hidden)


def refresh_view(context: RequestContext) -> object:
    """Submit a refresh; a dry run returns its plan."""
    result = context.namespace.refresh_materialized_view(context.parse(RefreshViewRequest))
    return Response(200, result.model_dump()) if isinstance(result, RefreshPlan) else result
