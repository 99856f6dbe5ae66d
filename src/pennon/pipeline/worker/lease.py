"""The lease of a worker on a job: heartbeats beside the work, and requests to stop the job."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pennon.catalog.jobs import Job
from pennon.core.job_model import Counters, StopRequest
from pennon.jobs.errors import LeaseLostError, StopRequestedError
from pennon.jobs.queue import Queue

logger = logging.getLogger("pennon.worker")

#: Heartbeats are at most this far apart, so that a stop request is seen within about a second.
_LONGEST_HEARTBEAT_SECONDS = 1.0


class ShuttingDownError(Exception):
    """The worker shuts down; another worker continues its job."""


class Lease:
    """A job that this worker holds."""

    def __init__(self, queue: Queue, job: Job, seconds: float, stopping: threading.Event) -> None:
        self._queue = queue
        self.job = job
        self._seconds = seconds
        self._stopping = stopping
        self._ended = threading.Event()
        self._stop_request: StopRequest | None = None
        self._is_lost = False
        #: The progress of the job; heartbeats store it.
        self.counters: Counters = dict(job.counters)

    def add(self, **amounts: float) -> None:
        """Add to counters."""
        for name, amount in amounts.items():
            self.counters[name] = self.counters.get(name, 0) + amount

    def restore_counters(self) -> int | None:
        """Restore the counters of what a backfill has committed, and return its last version.

        They come from the job's events, which are written with the commits: a worker that died may not have stored its
        counters.
        """
        commits = [event.data for event in self._queue.events_of_kind(self.job, "committed")]
        failed = sum(commit["failed"] for commit in commits)
        committed = sum(commit["rows"] for commit in commits) - failed
        self.counters |= {"rows_committed": committed, "rows_failed": failed, "fragments_committed": len(commits)}
        return commits[-1]["version"] if commits else None

    def add_event(self, event: str, data: Mapping[str, object], unit: str = "") -> None:
        """Add an event to the job."""
        self._queue.add_event(self.job, event, unit, data)

    @property
    def rows_done(self) -> float:
        """The number of rows that were committed, with a value or with an error."""
        return self.counters.get("rows_committed", 0) + self.counters.get("rows_failed", 0)

    def check(self) -> None:
        """Raise when this worker must stop the job."""
        if self._is_lost:
            raise LeaseLostError(self.job)
        if self._stop_request is not None:
            raise StopRequestedError(self._stop_request)
        if self._stopping.is_set():
            raise ShuttingDownError

    @contextmanager
    def heartbeats(self) -> Iterator[None]:
        """Send heartbeats while the block runs."""
        thread = threading.Thread(target=self._beat, name=f"pennon-lease-{self.job.id[-6:]}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()

    def _beat(self) -> None:
        while not self._ended.wait(min(self._seconds / 3, _LONGEST_HEARTBEAT_SECONDS)):
            try:
                self._stop_request = self._queue.heartbeat(self.job, self._seconds, dict(self.counters))
            except LeaseLostError:
                self._is_lost = True
                return
            except Exception:
                logger.exception("the heartbeat of job %s failed; retrying", self.job.id)
