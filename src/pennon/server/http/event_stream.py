"""Server-sent events of a job, polled so that no thread is held while nothing happens."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from lance_namespace.errors import LanceNamespaceError

from pennon.core.job_model import TERMINAL
from pennon.server.http.exchange import Headers

if TYPE_CHECKING:
    from pennon.catalog.jobs import Job
    from pennon.namespace import PennonNamespace

EVENT_STREAM = b"text/event-stream"
#: Proxies must neither buffer nor cache events.
_HEADERS: Headers = ((b"cache-control", b"no-store"), (b"x-accel-buffering", b"no"))
# None of these was measured.
_PAGE_EVENTS = 500
_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.01, 0.25
#: Growth of the pause between two polls while nothing happens: an event is late by at most 10 % of the time before it.
_PAUSE_GROWTH = 1.1
_HEARTBEAT_SECONDS = 10.0
_RETRY_MILLIS = 1000


class JobEventStream:
    """The events of a job after a sequence number, its progress in between, and its end."""

    media_type = EVENT_STREAM
    headers = _HEADERS

    def __init__(
        self, namespace: PennonNamespace, job: Job, after: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        #: Whether the last ``read`` returned the end.
        self.ended = False
        #: Seconds to wait before the next ``read``.
        self.pause = 0.0
        self._namespace = namespace
        self._job_id = job.id
        self._after = after
        self._sent_progress: dict[str, object] = {}
        self._clock = clock
        self._sent_at = clock()
        self._opening = f"retry: {_RETRY_MILLIS}\n\n"

    def read(self) -> bytes:
        """Return the events since the last call; now and then a comment, which keeps the connection alive."""
        text, self._opening = self._opening + self._poll(), ""
        now = self._clock()
        if text:
            self._sent_at = now
        elif now - self._sent_at >= _HEARTBEAT_SECONDS:
            text, self._sent_at = ": keep-alive\n\n", now
        return text.encode()

    def _poll(self) -> str:
        try:
            job = self._namespace.jobs.visible_job(self._job_id)
        except LanceNamespaceError:
            self.ended = True  # it was deleted, or the caller may not see it any more
            return ""
        # The job is read before its events, so that the events of a job that has ended are complete.
        found = self._namespace.jobs.list_events(job, self._after, _PAGE_EVENTS)
        parts = [_block(event.kind, vars(event), event.seq) for event in found]
        self._after = found[-1].seq if found else self._after
        more = len(found) == _PAGE_EVENTS
        progress = _progress_data(job)
        if progress != self._sent_progress and not more:
            self._sent_progress = progress
            parts.append(_block("progress", progress))
        if job.state in TERMINAL and not more:
            self.ended = True
            parts.append(_block("end", {**progress, "result": job.result, "failure": job.failure}))
        self.pause = 0.0 if more else self._next_pause(has_news=bool(parts))
        return "".join(parts)

    def _next_pause(self, *, has_news: bool) -> float:
        if has_news or not self.pause:
            return _MIN_PAUSE_SECONDS
        return min(_PAUSE_GROWTH * self.pause, _MAX_PAUSE_SECONDS)


def _block(kind: str, data: dict[str, object], seq: int | None = None) -> str:
    number = "" if seq is None else f"id: {seq}\n"
    return f"{number}event: {kind}\ndata: {json.dumps(data)}\n\n"


def _progress_data(job: Job) -> dict[str, object]:
    return {"job_id": job.id, "state": job.state, "counters": job.counters}
