"""Jobs that nobody asked for: never two at once of one target, and not too often."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pennon.catalog import jobs

if TYPE_CHECKING:
    from pennon.catalog import Connection


def is_ready(connection: Connection, table_id: str, branch: str, target: str, *, now: int, seconds: float) -> bool:
    """Tell whether a target has no job under way, and had none submitted for some time."""
    active = jobs.active_on(connection, table_id)
    if any(job.branch == branch and target in job.columns for job in active):
        return False
    last = jobs.newest(connection, table_id, branch, target)
    return last is None or now - last.created_at >= seconds * 1000
