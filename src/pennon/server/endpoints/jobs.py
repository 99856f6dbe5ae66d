"""Endpoints of operations on jobs: events as Arrow, and as a stream of server-sent events."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
from lance_namespace.errors import InvalidInputError

from pennon.core.paging import page_size
from pennon.jobs.event_filter import Predicate, parse_filter
from pennon.namespace.models.jobs import QueryJobEventsRequest
from pennon.namespace.queries import QueryResult
from pennon.server.http.event_stream import JobEventStream

if TYPE_CHECKING:
    from pennon.catalog.job_events import JobEvent
    from pennon.catalog.jobs import Job
    from pennon.core.arrow_typing import AnyField
    from pennon.server.request import RequestContext

#: The fields of an event, then the same by the names in LanceDB's documentation.
_FIELDS: list[AnyField] = [
    pa.field("job_id", pa.string(), nullable=False),
    pa.field("seq", pa.int64(), nullable=False),
    pa.field("at", pa.timestamp("ms", "UTC"), nullable=False),
    pa.field("kind", pa.string(), nullable=False),
    pa.field("unit", pa.string(), nullable=False),
    pa.field("data", pa.string(), nullable=False),
    pa.field("rows_processed", pa.int64()),
    pa.field("state", pa.string(), nullable=False),
    pa.field("claim_entity", pa.string(), nullable=False),
    pa.field("updated_by", pa.string()),
    pa.field("updated_at_millis", pa.int64(), nullable=False),
]
_SCHEMA = pa.schema(_FIELDS)

_PAGE_EVENTS = 1000
_MAX_DIGITS = 18


def query_events(context: RequestContext) -> QueryResult:
    """Return the events of jobs."""
    request = context.parse(QueryJobEventsRequest)
    page_limit = context.namespace.services.settings.page_limit
    limit = page_size(request.limit, page_limit)
    limit_per_job = page_size(request.limit_per_job, limit)
    matches = parse_filter(request.filter)
    rows: list[dict[str, object]] = []
    for job in _jobs(context, request, page_limit):
        rows += _filtered_events(context, job, request.after or 0, min(limit_per_job, limit - len(rows)), matches)
        if len(rows) >= limit:
            break
    return QueryResult(pa.Table.from_pylist(rows, _SCHEMA).to_reader(), 0)


def follow(context: RequestContext) -> JobEventStream:
    """Stream the events of a job that come after the last one its client has seen."""
    job = context.namespace.jobs.visible_job(str(context.params["job_id"]))
    after = context.params.get("after")
    last_seen = after if isinstance(after, int) else _last_event_id(context.headers.get("last-event-id"))
    return JobEventStream(context.namespace, job, last_seen)


def _jobs(context: RequestContext, request: QueryJobEventsRequest, limit: int) -> list[Job]:
    if request.job_id is None and request.job_ids is None:
        include = request.include_maintenance
        return context.namespace.jobs.visible_jobs(context.id, limit, include_maintenance=include)
    job_ids = [*([request.job_id] if request.job_id is not None else []), *(request.job_ids or [])]
    return [context.namespace.jobs.visible_job(job_id) for job_id in dict.fromkeys(job_ids)]


def _filtered_events(
    context: RequestContext, job: Job, after: int, limit: int, matches: Predicate
) -> list[dict[str, object]]:
    """Return the first events of a job that pass a filter."""
    found: list[dict[str, object]] = []
    while len(found) < limit:
        events = context.namespace.jobs.list_events(job, after, _PAGE_EVENTS)
        found += [row for row in map(_row, events) if matches(row)]
        if len(events) < _PAGE_EVENTS:
            break
        after = events[-1].seq
    return found[:limit]


def _row(event: JobEvent) -> dict[str, object]:
    return {
        **vars(event),
        "data": json.dumps(event.data),
        "rows_processed": _rows_committed(event),
        "state": event.kind,
        "claim_entity": event.unit,
        "updated_by": event.data.get("worker") or event.data.get("by") or None,
        "updated_at_millis": event.at,
    }


def _rows_committed(event: JobEvent) -> int | None:
    """Return the number of rows that a commit of a backfill or of a refresh wrote."""
    if event.kind != "committed":
        return None
    return int(sum(event.data.get(name, 0) for name in ("rows", "rows_added", "rows_updated")))


def _last_event_id(header: str | None) -> int:
    if not header:
        return 0
    if not header.isascii() or not header.isdigit() or len(header) > _MAX_DIGITS:
        raise InvalidInputError(f"Invalid Last-Event-ID header {header!r}: must be the number of an event.")
    return int(header)
