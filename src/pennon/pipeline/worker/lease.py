"""Holding a job: heartbeats beside the work, and what is asked of the job meanwhile."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pennon.catalog.jobs import Job
from pennon.jobs.queue import LeaseLostError, Queue, StopRequestedError

logger = logging.getLogger("pennon.worker")

_LONGEST_BEAT = 1.0


class ShuttingDownError(Exception):
    """The worker is about to end; its job is for another."""


class Lease:
    """A job in the hands of this worker."""

    def __init__(self, queue: Queue, job: Job, seconds: float, stopping: threading.Event) -> None:
        self._queue = queue
        self.job = job
        self._seconds = seconds
        self._stopping = stopping
        self._ended = threading.Event()
        self._wish: str | None = None
        self._lost = False
        #: What the job has done so far; heartbeats tell it.
        self.counters: dict[str, float] = dict(job.counters)

    def add(self, **amounts: float) -> None:
        """Count up."""
        for name, amount in amounts.items():
            self.counters[name] = self.counters.get(name, 0) + amount

    def recall(self) -> int | None:
        """Count what a backfill has committed so far, and return its last version.

        Its events tell: they are written with the commits, whereas a worker that died may not have told its counters.
        """
        commits = [event.data for event in self._queue.noted(self.job, "committed")]
        failed = sum(commit["failed"] for commit in commits)
        committed = sum(commit["rows"] for commit in commits) - failed
        self.counters |= {"rows_committed": committed, "rows_failed": failed, "fragments_committed": len(commits)}
        return commits[-1]["version"] if commits else None

    def note(self, event: str, data: dict[str, Any]) -> None:
        """Write down an event of the job."""
        self._queue.note(self.job, event, data=data)

    @property
    def rows_done(self) -> float:
        """How many rows were committed, with a value or with an error."""
        return self.counters.get("rows_committed", 0) + self.counters.get("rows_failed", 0)

    def check(self) -> None:
        """Raise when the job is not to go on here."""
        if self._lost:
            raise LeaseLostError(f"job {self.job.id} was taken over")
        if self._wish is not None:
            raise StopRequestedError(self._wish)
        if self._stopping.is_set():
            raise ShuttingDownError

    @contextmanager
    def held(self) -> Iterator[None]:
        """Beat while the block runs."""
        thread = threading.Thread(target=self._beat, name=f"pennon-lease-{self.job.id[-6:]}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()

    def _beat(self) -> None:
        while not self._ended.wait(min(self._seconds / 3, _LONGEST_BEAT)):
            try:
                self._wish = self._queue.heartbeat(self.job, self._seconds, dict(self.counters))
            except LeaseLostError:
                self._lost = True
                return
            except Exception:
                logger.exception("the heartbeat of job %s failed; it is tried again", self.job.id)
