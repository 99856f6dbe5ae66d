"""Endpoints of operations on the maintenance of tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pennon.namespace.models.maintenance import MaintainTableRequest, MaintenancePlan
from pennon.server.request import Response

if TYPE_CHECKING:
    from pennon.server.request import RequestContext


def maintain_table(context: RequestContext) -> object:
    """Submit a maintenance job; a dry run returns its plan."""
    result = context.namespace.maintenance.maintain_table(context.parse(MaintainTableRequest))
    return Response(200, result.model_dump()) if isinstance(result, MaintenancePlan) else result
