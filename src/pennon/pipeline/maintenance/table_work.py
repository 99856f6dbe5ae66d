"""What the steps of a maintenance job share: its table, its policy, and when it must stop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lance_namespace.errors import ConcurrentModificationError

from pennon.catalog import claim_rules, transactions
from pennon.core.clock import now_millis
from pennon.jobs.errors import LeaseLostError, StopRequestedError

if TYPE_CHECKING:
    from pennon.catalog import Connection
    from pennon.catalog.jobs import Job
    from pennon.catalog.tables import Table
    from pennon.maintenance.policy import MaintenancePolicy
    from pennon.pipeline.worker.lease import Lease
    from pennon.pipeline.worker.worker_services import WorkerServices


class YieldedError(Exception):
    """A job of users waits for the table, so the maintenance job is released; what it has committed stays."""


@dataclass
class TableWork:
    """The table that a maintenance job works on."""

    services: WorkerServices
    lease: Lease
    table: Table
    branch: str
    policy: MaintenancePolicy
    #: Why a commit was refused: the job has lost its lease or must stop. Lance replaces such errors by its own.
    refusal: Exception | None = None

    @property
    def job(self) -> Job:
        """The job."""
        return self.lease.job

    def check(self) -> None:
        """Raise when the job must stop, or give way to another job."""
        self.lease.check()
        if self.services.queue.should_yield(self.lease.job):
            raise YieldedError

    def record(self, connection: Connection, operation: str) -> str:
        """Record the transaction of a commit, unless the job may not commit any more."""
        job = self.lease.job
        try:
            self.services.queue.begin_commit(connection, job)
        except (LeaseLostError, StopRequestedError) as refusal:
            self.refusal = refusal
            raise ConcurrentModificationError("The maintenance job may not commit any more.") from refusal
        # Lance refuses an index that was built while its fragments were rewritten. A build records itself before it
        # opens the table, so it is seen here, or it sees this commit.
        if claim_rules.has_index_build(connection, job.id, now_millis()):
            self.refusal = YieldedError()
            raise ConcurrentModificationError("An index of the branch is being built.")
        properties = {"operation": operation, "principal": job.submitted_by, "job_id": job.id}
        return transactions.insert(connection, operation, self.table.identifier, properties)
