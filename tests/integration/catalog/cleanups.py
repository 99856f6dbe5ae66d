"""Cleanups of tables in a lake, each as the job that a worker would run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pennon.catalog import tables
from pennon.core.job_model import JobKind, JobState
from pennon.maintenance import retention
from pennon.maintenance.policy import MaintenancePolicy, check_values
from tests.integration.catalog.lakes import parts

if TYPE_CHECKING:
    from pennon.catalog import Connection
    from pennon.catalog.jobs import Job
    from pennon.catalog.tables import Table
    from pennon.maintenance.retention import Cleaned
    from tests.integration.catalog.lakes import Lake

#: Versions and files go at once.
AT_ONCE: dict[str, object] = {"min_version_seconds": 0, "min_file_seconds": 0, "snapshot_seconds": 0}


@dataclass(frozen=True)
class HeldJob:
    """A job that nobody stops."""

    job: Job

    def check(self) -> None:
        """Go on."""


def table_of(lake: Lake, identifier: str) -> Table:
    found = lake.ns.services.database.read(lambda connection: tables.find(connection, parts(identifier)))
    assert found is not None
    return found


def policy(**fields: object) -> MaintenancePolicy:
    return MaintenancePolicy().model_copy(update=check_values({**AT_ONCE, **fields}))


def begin(lake: Lake, identifier: str, branch: str = "", kind: JobKind = JobKind.CLEANUP) -> HeldJob:
    """Submit a job and claim it."""
    services, table = lake.ns.services, table_of(lake, identifier)

    def submit(connection: Connection) -> Job:
        return services.queue.submit(
            connection, kind, table, {}, branch=branch, target="maintenance", submitted_by="ada"
        )

    submitted = services.database.write(submit)
    claimed = services.queue.claim("w", 60)
    assert claimed is not None
    assert claimed.id == submitted.id
    return HeldJob(claimed)


def clean(lake: Lake, identifier: str, branch: str = "", **fields: object) -> Cleaned:
    """Run a cleanup to its end."""
    held = begin(lake, identifier, branch)
    try:
        return retention.clean(lake.ns.services, held, table_of(lake, identifier), branch, policy(**fields))
    finally:
        lake.ns.services.queue.finish(held.job, JobState.DONE, counters={})


def why(lake: Lake, identifier: str, version: int, branch: str = "", **fields: object) -> list[str]:
    """Ask why a version is kept."""
    return retention.why_kept(lake.ns.services, table_of(lake, identifier), branch, version, policy(**fields))


def values(dataset: Any) -> list[int]:
    """Return the numbers in a dataset, sorted."""
    return sorted(dataset.to_table()["number"].to_pylist())
