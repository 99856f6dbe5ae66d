"""How the operations on feature columns are called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pennon.namespace.models.columns import BackfillPlan, BackfillRequest
from pennon.server.endpoints.extensions import Reply

if TYPE_CHECKING:
    from pennon.server.endpoints.data import Call


def backfill_column(call: Call) -> Any:
    """Submit a backfill; the plan of one that is only asked for is answered at once."""
    answer = call.namespace.alter_table_backfill_columns(call.request(BackfillRequest))
    return Reply(200, answer.model_dump()) if isinstance(answer, BackfillPlan) else answer
