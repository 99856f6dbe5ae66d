"""How the operations on jobs are called whose answers are no objects: events as Arrow, and events as they happen."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
from lance_namespace.errors import InvalidInputError

from pennon.core.paging import page_size
from pennon.jobs.event_filter import Admits, parse_filter
from pennon.namespace.models.jobs import QueryJobEventsRequest
from pennon.namespace.queries import Answer
from pennon.server.http.event_stream import JobFeed

if TYPE_CHECKING:
    from pennon.catalog.job_events import JobEvent
    from pennon.catalog.jobs import Job
    from pennon.server.endpoints.data import Call

#: Pennon's names for what an event is, then those by which LanceDB's documentation knows it.
_SCHEMA = pa.schema(
    [
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
)

_PIECE = 1000
_LONGEST_NUMBER = 18


def query_events(call: Call) -> Answer:
    """Return the events of jobs."""
    request: QueryJobEventsRequest = call.request(QueryJobEventsRequest)
    most = call.namespace.services.settings.page_limit
    size = page_size(request.limit, most)
    each = page_size(request.limit_per_job, size)
    admits = parse_filter(request.filter)
    rows: list[dict[str, object]] = []
    for job in _jobs(call, request, most):
        rows += _admitted(call, job, request.after or 0, min(each, size - len(rows)), admits)
        if len(rows) >= size:
            break
    return Answer(pa.Table.from_pylist(rows, _SCHEMA).to_reader(), 0)


def follow(call: Call) -> JobFeed:
    """Follow what happens to a job, from the event after the one that its client saw last."""
    job = call.namespace.visible_job(call.stated["job_id"])
    after = call.stated.get("after")
    return JobFeed(call.namespace, job, _last_seen(call.headers.get("last-event-id")) if after is None else after)


def _jobs(call: Call, request: QueryJobEventsRequest, most: int) -> list[Job]:
    named = [*([request.job_id] if request.job_id is not None else []), *(request.job_ids or [])]
    if request.job_id is None and request.job_ids is None:
        return call.namespace.visible_jobs(call.identifier, most)
    return [call.namespace.visible_job(job_id) for job_id in dict.fromkeys(named)]


def _admitted(call: Call, job: Job, after: int, limit: int, admits: Admits) -> list[dict[str, object]]:
    """Return the first events of a job that pass a filter."""
    found: list[dict[str, object]] = []
    while len(found) < limit:
        events = call.namespace.events_of(job, after, _PIECE)
        found += [row for row in map(_row, events) if admits(row)]
        if len(events) < _PIECE:
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
    """Return how many rows a commit brought, that of a backfill or of a refresh."""
    if event.kind != "committed":
        return None
    return int(sum(event.data.get(name, 0) for name in ("rows", "rows_added", "rows_updated")))


def _last_seen(header: str | None) -> int:
    if not header:
        return 0
    if not header.isascii() or not header.isdigit() or len(header) > _LONGEST_NUMBER:
        raise InvalidInputError("The Last-Event-ID header must be the number of an event.")
    return int(header)
