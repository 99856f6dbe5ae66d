"""How the operations on materialized views are called: by the specification, and by LanceDB's client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pennon.namespace.models.views import CreateViewRequest, DescribeViewRequest, RefreshPlan, RefreshViewRequest
from pennon.namespace.view_creation import database_of
from pennon.server.endpoints.extensions import Reply
from pennon.views.sql.simple_select import fits_client

if TYPE_CHECKING:
    from pennon.server.endpoints.data import Call


def create_view(call: Call) -> Any:
    """Make a view; LanceDB's client takes the status for a sign whether a job fills it."""
    database = database_of(call.headers.get("x-lancedb-database"), call.identifier)
    answer = call.namespace.create_materialized_view(call.request(CreateViewRequest), database)
    of_client = call.stated.get("query") is not None
    status = 201 if not of_client else 202 if answer.job_id is not None else 200
    return Reply(status, answer.model_dump(exclude_none=True))


def describe_view(call: Call) -> dict[str, Any]:
    """Describe a view; LanceDB's client could not open it if it were told a query that it cannot read."""
    answer = call.namespace.describe_materialized_view(call.request(DescribeViewRequest))
    of_client = call.headers.get("user-agent", "").startswith("LanceDB-")
    hidden = {"query", "format"} if of_client and not fits_client(answer.query) else set()
    return answer.model_dump(exclude_none=True, exclude=hidden)


def refresh_view(call: Call) -> Any:
    """Submit a refresh; the plan of one that is only asked for is answered at once."""
    answer = call.namespace.refresh_materialized_view(call.request(RefreshViewRequest))
    return Reply(200, answer.model_dump()) if isinstance(answer, RefreshPlan) else answer
