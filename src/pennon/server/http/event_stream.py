"""Streams of events that go on for as long as what they tell of: asked for news now and then, and never waiting."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lance_namespace.errors import LanceNamespaceError

from pennon.catalog.jobs import ENDED
from pennon.server.http.exchange import Headers

if TYPE_CHECKING:
    from pennon.catalog.jobs import Job
    from pennon.namespace import PennonNamespace

EVENT_STREAM = b"text/event-stream"
#: Proxies must neither keep events back nor remember them.
_HEADERS: Headers = ((b"cache-control", b"no-store"), (b"x-accel-buffering", b"no"))
_PIECE = 500
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.01, 0.25
#: A wait grows by so much while nothing happens: what happens is told late by no more than that share of the silence.
_SLOWING = 1.1
_HEARTBEAT_SECONDS = 10.0
_RETRY_MILLIS = 1000


class JobFeed:
    """What happens to a job: its events after a number, its progress in between, and its end."""

    media_type = EVENT_STREAM
    headers = _HEADERS

    def __init__(
        self, namespace: PennonNamespace, job: Job, after: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        #: Whether nothing comes after what was read last.
        self.ended = False
        #: Seconds to wait before asking again.
        self.pause = 0.0
        self._namespace = namespace
        self._job_id = job.id
        self._after = after
        self._told: dict[str, Any] = {}
        self._clock = clock
        self._said_at = clock()
        self._opening = f"retry: {_RETRY_MILLIS}\n\n"

    def read(self) -> bytes:
        """Return what happened since it was asked last; now and then a comment, so that nobody hangs up."""
        text, self._opening = self._opening + self._news(), ""
        now = self._clock()
        if text:
            self._said_at = now
        elif now - self._said_at >= _HEARTBEAT_SECONDS:
            text, self._said_at = ": still there\n\n", now
        return text.encode()

    def _news(self) -> str:
        try:
            job = self._namespace.visible_job(self._job_id)
        except LanceNamespaceError:
            self.ended = True  # it was forgotten, or is not to be seen any more
            return ""
        # The job first: whatever had happened when it was seen to have ended is then among the events.
        found = self._namespace.events_of(job, self._after, _PIECE)
        parts = [_block(event.kind, vars(event), event.seq) for event in found]
        self._after = found[-1].seq if found else self._after
        more = len(found) == _PIECE
        progress = _progress_data(job)
        if progress != self._told and not more:
            self._told = progress
            parts.append(_block("progress", progress))
        if job.state in ENDED and not more:
            self.ended = True
            parts.append(_block("end", {**progress, "result": job.result, "failure": job.failure}))
        self.pause = (
            0.0 if more else _SHORTEST_PAUSE if parts else min(_SLOWING * self.pause or _SHORTEST_PAUSE, _LONGEST_PAUSE)
        )
        return "".join(parts)


def _block(kind: str, data: dict[str, Any], seq: int | None = None) -> str:
    number = "" if seq is None else f"id: {seq}\n"
    return f"{number}event: {kind}\ndata: {json.dumps(data)}\n\n"


def _progress_data(job: Job) -> dict[str, Any]:
    return {"job_id": job.id, "state": job.state, "counters": job.counters}
