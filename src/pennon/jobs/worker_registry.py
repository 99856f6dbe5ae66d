"""The registry of workers: they register, send heartbeats, and deregister."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from pennon import __version__
from pennon.catalog import workers
from pennon.catalog.workers import Worker
from pennon.core.clock import now_millis
from pennon.core.identifiers import new_id

if TYPE_CHECKING:
    from pennon.catalog import Database

#: A worker without a heartbeat for this number of lease durations counts as dead.
_SILENT_LEASES = 3


class WorkerRegistry:
    """The live workers of a catalog."""

    def __init__(self, database: Database, lease_seconds: float, *, clock: Callable[[], int] = now_millis) -> None:
        self._database = database
        self._timeout_millis = int(_SILENT_LEASES * lease_seconds * 1000)
        self._now = clock

    def register(self, slots: int = 1) -> Worker:
        """Register this process as a worker."""
        now, host = self._now(), socket.gethostname()
        worker = Worker(f"{host}-{os.getpid()}-{new_id()[-6:]}", host, os.getpid(), now, now, slots, 0, __version__)
        self._database.write(lambda connection: workers.heartbeat(connection, worker))
        return worker

    def heartbeat(self, worker: Worker, busy: int) -> None:
        """Record that a worker is alive, and the number of jobs it runs."""
        alive = replace(worker, heartbeat_at=self._now(), busy=busy)
        self._database.write(lambda connection: workers.heartbeat(connection, alive))

    def deregister(self, worker: Worker) -> None:
        """Remove a worker that shuts down."""
        self._database.write(lambda connection: workers.delete(connection, worker.id))

    def alive(self) -> list[Worker]:
        """Return the workers with a recent heartbeat."""
        since = self._now() - self._timeout_millis
        return self._database.read(lambda connection: workers.alive_since(connection, since))

    def sweep(self) -> None:
        """Remove dead workers."""
        since = self._now() - self._timeout_millis
        self._database.write(lambda connection: workers.delete_silent(connection, since))
