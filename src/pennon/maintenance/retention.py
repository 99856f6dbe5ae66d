"""Retention of versions: which ones a policy keeps and why, and the removal of the others with their files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pennon.catalog import Connection, Database
    from pennon.catalog.jobs import Job
    from pennon.catalog.tables import Table
    from pennon.commits.history import History
    from pennon.commits.ownership import Ownership
    from pennon.maintenance.policy import MaintenancePolicy
    from pennon.storage.root import StorageRoot
    from pennon.tables.writer import Writer


@dataclass(frozen=True)
class Cleaned:
    """What a cleanup has removed."""

    versions: int = 0
    files: int = 0
    bytes: int = 0


class RetentionServices(Protocol):
    """The services that tell which versions are needed."""

    @property
    def database(self) -> Database:
        """The catalog."""

    @property
    def storage_root(self) -> StorageRoot:
        """The storage of the tables."""

    @property
    def history(self) -> History:
        """The versions of the tables."""


class JobQueue(Protocol):
    """The part of the job queue that guards the commits of a job."""

    def begin_commit(self, connection: Connection, job: Job) -> None:
        """Check that a job may commit; part of the transaction of the commit."""

    def end_commit(self, job: Job) -> None:
        """Record that a job has made its commit and continues."""


class CleanupServices(RetentionServices, Protocol):
    """The services that a cleanup needs."""

    @property
    def ownership(self) -> Ownership:
        """Whether this catalog may write."""

    @property
    def writer(self) -> Writer:
        """The locks of tables."""

    @property
    def queue(self) -> JobQueue:
        """The job queue."""


class CleanupLease(Protocol):
    """The lease on the job that runs a cleanup."""

    @property
    def job(self) -> Job:
        """The job."""

    def check(self) -> None:
        """Raise when the job must stop."""


def clean(
    services: CleanupServices, lease: CleanupLease, table: Table, branch: str, policy: MaintenancePolicy
) -> Cleaned:
    """Remove the versions of a branch that its policy does not keep, and files that no version needs."""
    raise NotImplementedError


def why_kept(
    services: RetentionServices, table: Table, branch: str, version: int, policy: MaintenancePolicy
) -> list[str]:
    """Return why a version is kept, as sentences; empty if the next cleanup removes it."""
    raise NotImplementedError
