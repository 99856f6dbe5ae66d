"""Endpoints of operations on feature columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pennon.namespace.models.columns import BackfillPlan, BackfillRequest
from pennon.server.request import Response

if TYPE_CHECKING:
    from pennon.server.request import RequestContext


def backfill_column(context: RequestContext) -> object:
    """Submit a backfill; a dry run returns its plan."""
    result = context.namespace.alter_table_backfill_columns(context.parse(BackfillRequest))
    return Response(200, result.model_dump()) if isinstance(result, BackfillPlan) else result
