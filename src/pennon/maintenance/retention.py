"""Retention of versions: which ones a policy keeps and why, and the removal of the others with their files."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, TypeVar

from pennon.catalog import maintenance_state, removals, transactions, versions
from pennon.catalog.removals import Removal
from pennon.commits.publication import digest_of
from pennon.core.clock import now_millis
from pennon.core.job_model import JobKind
from pennon.maintenance import retention_reasons
from pennon.maintenance.auto_cleanup import take_over_auto_cleanup
from pennon.maintenance.needed_versions import find_needed, referenced_versions
from pennon.maintenance.orphans import remove_orphans_daily
from pennon.maintenance.removed_files import remove_old_files
from pennon.maintenance.removed_manifests import RemovedManifests, read_archive, write_archive
from pennon.maintenance.retention_reasons import RetentionServices, find_old
from pennon.maintenance.schedule import FILE_BATCH_MILLIS
from pennon.storage.layout import versions_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pennon.catalog import Connection
    from pennon.catalog.jobs import Job
    from pennon.catalog.tables import Table
    from pennon.catalog.versions import Version
    from pennon.commits.ownership import Ownership
    from pennon.maintenance.needed_versions import Needed
    from pennon.maintenance.policy import MaintenancePolicy
    from pennon.tables.writer import Writer

Result = TypeVar("Result")

#: Versions that are removed together: their manifests are held in memory.
_BATCH = 64


@dataclass(frozen=True)
class Cleaned:
    """What a cleanup has removed."""

    versions: int = 0
    files: int = 0
    bytes: int = 0


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


class CleanupWork(Protocol):
    """The job that runs a cleanup."""

    @property
    def job(self) -> Job:
        """The job."""

    def check(self) -> None:
        """Raise when the job must stop, or give way to another one."""


def clean(
    services: CleanupServices, work: CleanupWork, table: Table, branch: str, policy: MaintenancePolicy
) -> Cleaned:
    """Remove the versions of a branch that its policy does not keep, and files that no version needs."""
    services.ownership.require_table(table)
    cleanup = _Cleanup(services, work, table, branch)
    cleanup.resume()
    take_over_auto_cleanup(services, work.job, table, branch)
    removed = cleanup.remove_versions(policy)
    keep_millis = int(policy.min_file_seconds * 1000)
    if work.job.kind != JobKind.CLEANUP:
        keep_millis += FILE_BATCH_MILLIS  # each time reads all manifests
    files = remove_old_files(services.database, cleanup.folder, table, branch, keep_millis, work.check)
    orphans = remove_orphans_daily(services.database, cleanup.folder, table, branch, work.check)
    return Cleaned(removed, files.files + orphans.files, files.bytes + orphans.bytes)


def why_kept(
    services: RetentionServices, table: Table, branch: str, version: int, policy: MaintenancePolicy
) -> list[str]:
    """Return why a version is kept, as sentences; empty if the next cleanup removes it."""
    return retention_reasons.why_kept(services, table, branch, [version], policy)[version]


class _Cleanup:
    """The cleanup of one branch.

    Versions are removed in batches, each in four steps. An archive of the manifests is written. The records of the
    versions are deleted, and that of the removal is added, in one transaction. The manifests are removed. Versions that
    were tagged meanwhile become versions again. After a crash, the next cleanup repeats the last two steps.
    """

    def __init__(self, services: CleanupServices, work: CleanupWork, table: Table, branch: str) -> None:
        self._services = services
        self._work = work
        self._table = table
        self._branch = branch
        self.folder = services.storage_root.folder(table.location)

    def resume(self) -> None:
        """Finish what a cleanup that was interrupted has left."""
        if all(removal.unlisted for removal in self._read(removals.of_branch)):
            return
        with self._services.writer.lock(self._table):
            for removal in self._read(removals.of_branch):
                if not removal.unlisted:
                    self._work.check()
                    self._unlist(removal, read_archive(self.folder, removal.id))

    def remove_versions(self, policy: MaintenancePolicy) -> int:
        """Remove the versions that the policy does not keep; return their number."""
        old = self._services.database.read(lambda connection: find_old(connection, self._table, self._branch, policy))
        going = old.without(self._needed() if old.versions else {})
        removed = sum(self._remove(going[start : start + _BATCH]) for start in range(0, len(going), _BATCH))
        kept = len(old.versions) - removed
        self._services.database.write(
            lambda connection: maintenance_state.record_kept(connection, self._table.id, self._branch, kept)
        )
        return removed

    def _remove(self, batch: Sequence[Version]) -> int:
        self._work.check()
        removed = RemovedManifests({record.version: record for record in batch}, self._manifests(batch))
        removal_id = write_archive(self.folder, removed)
        with self._services.writer.lock(self._table):
            needed = self._needed()
            numbers = tuple(record.version for record in batch if record.version not in needed)
            removal = Removal(removal_id, self._table.id, self._branch, numbers, now_millis())
            self._services.database.write(lambda connection: self._record(connection, removal))
            kept = self._unlist(removal, removed)
        self._services.queue.end_commit(self._work.job)
        return len(numbers) - kept

    def _record(self, connection: Connection, removal: Removal) -> None:
        """Delete the records of versions, unless the job may not commit any more."""
        job = self._work.job
        self._services.queue.begin_commit(connection, job)
        removals.insert(connection, removal)
        versions.delete_numbers(connection, self._table.id, self._branch, removal.versions)
        properties = {"operation": "Cleanup", "principal": job.submitted_by, "job_id": job.id}
        transactions.insert(connection, "Cleanup", self._table.identifier, properties)

    def _unlist(self, removal: Removal, removed: RemovedManifests) -> int:
        """Remove the manifests of removed versions; return the number of those that must stay.

        A pin is set without a lock, and then it is checked that the manifest is still there. So a version whose
        manifest was removed before its pin was set has no pin, and any other is seen here.
        """
        place = versions_folder(self._branch)
        records = [removed.records[number] for number in removal.versions if number in removed.records]
        self.folder.remove_files([f"{place}/{record.manifest}" for record in records])
        referenced = referenced_versions(self.folder, self._branch)
        kept = [record for record in records if record.version in referenced and record.version in removed.manifests]
        restored = [self._restore(record, removed.manifests[record.version]) for record in kept]
        gone = tuple(number for number in removal.versions if number not in {record.version for record in kept})

        def work(connection: Connection) -> None:
            for record in restored:
                versions.insert(connection, record)
            removals.mark_unlisted(connection, removal.id, gone)

        self._services.database.write(work)
        return len(kept)

    def _restore(self, record: Version, content: bytes) -> Version:
        path = f"{versions_folder(self._branch)}/{record.manifest}"
        stored = self.folder.put_if_absent(path, content) or self.folder.stat(path)
        return replace(record, e_tag=stored.e_tag if stored else None, staged=None)

    def _manifests(self, batch: Sequence[Version]) -> dict[int, bytes]:
        found = {}
        for record in batch:
            with suppress(FileNotFoundError):  # a client's cleanup has removed it
                content = self.folder.read(f"{versions_folder(self._branch)}/{record.manifest}")
                if digest_of(content) == record.digest:  # or a client has replaced it
                    found[record.version] = content
        return found

    def _needed(self) -> Needed:
        return self._services.database.read(
            lambda connection: find_needed(connection, self.folder, self._table, self._branch)
        )

    def _read(self, find: Callable[[Connection, str, str], Result]) -> Result:
        return self._services.database.read(lambda connection: find(connection, self._table.id, self._branch))
