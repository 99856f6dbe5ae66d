"""Who carries out jobs: workers sign on, are heard of, and leave."""

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

#: A worker that was not heard of for so many leases is dead.
_SILENT_LEASES = 3


class WorkerRegistry:
    """The workers of a catalog that are alive."""

    def __init__(self, database: Database, lease_seconds: float, *, clock: Callable[[], int] = now_millis) -> None:
        self._database = database
        self._silence = int(_SILENT_LEASES * lease_seconds * 1000)
        self._now = clock

    def register(self, slots: int = 1) -> Worker:
        """Sign this process on as a worker."""
        now, host = self._now(), socket.gethostname()
        worker = Worker(f"{host}-{os.getpid()}-{new_id()[-6:]}", host, os.getpid(), now, now, slots, 0, __version__)
        self._database.write(lambda connection: workers.beat(connection, worker))
        return worker

    def heartbeat(self, worker: Worker, busy: int) -> None:
        """Say that a worker is alive, and how many jobs it has at hand."""
        alive = replace(worker, heartbeat_at=self._now(), busy=busy)
        self._database.write(lambda connection: workers.beat(connection, alive))

    def leave(self, worker: Worker) -> None:
        """Sign a worker off."""
        self._database.write(lambda connection: workers.forget(connection, worker.id))

    def alive(self) -> list[Worker]:
        """Return the workers that were heard of lately."""
        since = self._now() - self._silence
        return self._database.read(lambda connection: workers.heard_since(connection, since))

    def sweep(self) -> None:
        """Forget the dead."""
        since = self._now() - self._silence
        self._database.write(lambda connection: workers.forget_silent(connection, since))
