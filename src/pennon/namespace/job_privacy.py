"""Jobs without the names of tables that the caller may not see.

A key that may see a view may see its jobs, but not always the tables that the view reads. The result, events and errors
of a refresh name these tables, in messages of many libraries. If a view reads a hidden table, callers see only what
cannot name a table: numbers, and texts from a fixed set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar, cast

from pennon.catalog import tables, views
from pennon.core.identifiers import ROOT, parse_identifier
from pennon.views.model.definition import Definition

if TYPE_CHECKING:
    from pennon.catalog import Connection
    from pennon.catalog.job_events import JobEvent
    from pennon.catalog.jobs import Job
    from pennon.core.caller import Principal

JsonObject = TypeVar("JsonObject", bound=Mapping[str, object])

HIDDEN = "(hidden from this key)"
_VERSIONS = "source_versions"
#: Fields of results, failures and events whose texts never name a table.
_SAFE_FIELDS = frozenset(
    ["by", "cluster", "image", "kind", "mode", "phase", "python", "retry_of", "spark_ui", "state", "type", "worker"]
)


def reads_hidden(connection: Connection, view_id: str, principal: Principal) -> bool:
    """Return whether a view reads, directly or through other views, a table that a principal may not see.

    True for a dropped view, because its sources are unknown.
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
    """Return a job with a result and a failure that name no table that a principal may not see."""
    result = None if job.result is None else _masked_object(job.result, principal)
    failure = None if job.failure is None else _masked_object(job.failure, principal)
    return replace(job, result=result, failure=failure)


def event_without_hidden_names(event: JobEvent, job: Job, principal: Principal) -> JobEvent:
    """Return an event of a job that names no table that a principal may not see."""
    unit = event.unit if event.unit in ("", job.object[-1]) else HIDDEN
    return replace(event, unit=unit, data=_masked_object(event.data, principal))


def _masked_object(value: JsonObject, principal: Principal) -> JsonObject:
    return cast("JsonObject", {name: _masked(item, principal, name) for name, item in value.items()})


def _masked(value: object, principal: Principal, key: str) -> object:
    if isinstance(value, dict) and key == _VERSIONS:
        return {name: version for name, version in value.items() if principal.role_on(parse_identifier(name))}
    if isinstance(value, dict):
        return {name: _masked(item, principal, name) for name, item in value.items()}
    if isinstance(value, list):
        return [_masked(item, principal, key) for item in value]
    return HIDDEN if isinstance(value, str) and key not in _SAFE_FIELDS else value
