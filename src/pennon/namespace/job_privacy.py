"""What a job tells of tables that its reader may not see.

Who may see a view may see its jobs, but not always the tables that the view reads. A refresh names them in its result,
its events and its errors, in words of many makers. So where a view reads a table that is hidden from the caller,
only what cannot name a table is shown: numbers, and texts of a fixed meaning.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pennon.catalog import tables, views
from pennon.core.identifiers import ROOT, parse_identifier
from pennon.views.model.definition import Definition

if TYPE_CHECKING:
    from pennon.catalog import Connection
    from pennon.catalog.job_events import JobEvent
    from pennon.catalog.jobs import Job
    from pennon.core.caller import Principal

HIDDEN = "(hidden from this key)"
_VERSIONS = "source_versions"
#: Fields of results, failures and events whose texts name no table.
_PLAIN = frozenset(
    ["by", "cluster", "image", "kind", "mode", "phase", "python", "retry_of", "spark_ui", "state", "type", "worker"]
)


def reads_hidden(connection: Connection, view_id: str, principal: Principal) -> bool:
    """Return whether a view reads, itself or through others, a table that a principal may not see.

    Of a view that was dropped it is not known, so that it may.
    """
    if principal.role_on(ROOT) is not None:
        return False
    pending, known = [view_id], {view_id}
    while pending:
        view = views.find(connection, pending.pop())
        if view is None:
            return True
        for source in Definition.from_json(view.definition).sources:
            table = tables.find_by_id(connection, source.table_id)
            if principal.role_on(source.identifier if table is None else table.identifier) is None:
                return True
            if table is not None and table.is_view and table.id not in known:
                known.add(table.id)
                pending.append(table.id)
    return False


def without_hidden_names(job: Job, principal: Principal) -> Job:
    """Return a job whose result and failure name no table that a principal may not see."""
    return replace(job, result=_masked(job.result, principal), failure=_masked(job.failure, principal))


def event_without_hidden_names(event: JobEvent, job: Job, principal: Principal) -> JobEvent:
    """Return an event of a job that names no table that a principal may not see."""
    unit = event.unit if event.unit in ("", job.object[-1]) else HIDDEN
    return replace(event, unit=unit, data=_masked(event.data, principal))


def _masked(value: Any, principal: Principal, key: str = "") -> Any:
    if isinstance(value, dict) and key == _VERSIONS:
        return {name: version for name, version in value.items() if principal.role_on(parse_identifier(name))}
    if isinstance(value, dict):
        return {name: _masked(item, principal, name) for name, item in value.items()}
    if isinstance(value, list):
        return [_masked(item, principal, key) for item in value]
    return HIDDEN if isinstance(value, str) and key not in _PLAIN else value
