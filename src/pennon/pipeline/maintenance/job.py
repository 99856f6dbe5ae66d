"""The driver of a maintenance job: its steps, in the order in which they help each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pennon.core.job_model import MaintenanceResult
    from pennon.pipeline.worker.lease import Lease
    from pennon.pipeline.worker.worker_services import WorkerServices


class YieldedError(Exception):
    """A job of users waits for the table, so the maintenance job is released; what it has committed stays."""


class Maintenance:
    """One maintenance job of any kind."""

    def __init__(self, services: WorkerServices, lease: Lease) -> None:
        self._services = services
        self._lease = lease
        self.phase = "plan"

    def run(self) -> MaintenanceResult:
        """Run the steps of the job's kind; a step that fails does not stop the others."""
        raise NotImplementedError
