"""The commit authority: exactly one of several racing commits of a version wins.

A commit has three steps. The staged manifest is checked. The version is recorded in the catalog, where a unique key
decides every race. The manifest is published under its final name, and only then is the commit acknowledged. If a
committer dies between the last two steps, the next reader of the version publishes it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lance_namespace.errors import (
    ConcurrentModificationError,
    InternalError,
    InvalidInputError,
    LanceNamespaceError,
    ServiceUnavailableError,
    TableNotFoundError,
)

from pennon.catalog import (
    CommitOutcomeUnknownError,
    ForeignKeyError,
    column_writes,
    tables,
    unflushed_files,
    versions,
    write_at_least_once,
)
from pennon.catalog.versions import MAIN, Version
from pennon.commits.confinement import Confinement
from pennon.commits.history import insert_version, stored_versions
from pennon.commits.manifest import InvalidManifestError
from pennon.commits.publication import digest_of, publish
from pennon.commits.staging import Inspector, ManifestLimits, Proposal, Staged, operation_of, staged_name
from pennon.commits.view_protection import check_client_commit
from pennon.core.identifiers import format_identifier
from pennon.storage.file_io import is_storage_failure
from pennon.storage.layout import check_branch, versions_folder
from pennon.storage.links import link

if TYPE_CHECKING:
    from lance.fragment import FragmentMetadata

    from pennon.catalog import Connection, Database
    from pennon.catalog.tables import Table
    from pennon.commits.deferred_flush import DeferredFlush
    from pennon.commits.history import History
    from pennon.commits.ownership import Ownership
    from pennon.storage.file_io import FileIO
    from pennon.storage.root import StorageRoot

logger = logging.getLogger("pennon.commits")

Entry = tuple["Table", Proposal]
#: Runs in the SQL transaction of a commit, records the transaction and returns its id.
OnCommit = Callable[["Connection"], str]

_ATTEMPTS = 3


def _dropped(table: Table) -> TableNotFoundError:
    return TableNotFoundError(f"Table {format_identifier(table.identifier)!r} was dropped.")


class VersionConflictError(ConcurrentModificationError):
    """A version cannot be recorded because it does not directly follow the latest version."""


class CommitAuthority:
    """Records versions of tables and publishes their manifests."""

    def __init__(
        self,
        database: Database,
        storage_root: StorageRoot,
        history: History,
        ownership: Ownership,
        deferred_flush: DeferredFlush,
        limits: ManifestLimits,
    ) -> None:
        self._database = database
        self._storage_root = storage_root
        self._history = history
        self._ownership = ownership
        self._deferred_flush = deferred_flush
        self.confinement = Confinement(database, storage_root)
        self._inspector = Inspector(self.confinement, limits)

    def commit(self, entries: Sequence[Entry], on_commit: OnCommit, *, by_client: bool = False) -> list[Version]:
        """Commit versions of one or more tables atomically.

        The operation of a client's commit is checked too: only Pennon writes the rows of views.
        """
        for table, _ in entries:
            self._ownership.require_table(table)
        unmanaged = [table for table, _ in entries if not table.managed]
        if unmanaged and len(entries) > 1:
            raise InvalidInputError(
                f"Table {format_identifier(unmanaged[0].identifier)!r} is not managed by Pennon, so it cannot be "
                "committed together with other tables; commit it alone."
            )
        if unmanaged:
            try:
                return [self._commit_unmanaged(*entries[0], on_commit)]
            except InvalidInputError:
                self._require_branch(*entries[0])
                raise
        for attempt in range(_ATTEMPTS):
            try:
                return self._commit_managed(entries, on_commit, by_client=by_client)
            except VersionConflictError:
                # The next attempt finds the version that has this number now. If there is none, versions before it are
                # missing from the catalog.
                if attempt > 0 and (attempt == _ATTEMPTS - 1 or not self._catch_up(entries)):
                    raise
            except CommitOutcomeUnknownError:
                # If it was recorded, the next attempt finds it, as it does for a client's retry.
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")

    def append(
        self,
        table: Table,
        latest: Version,
        content: bytes,
        fragments: Sequence[FragmentMetadata],
        on_commit: OnCommit,
    ) -> tuple[Version, bytes] | None:
        """Commit new fragments after the latest version, whose manifest has this content, without Lance.

        Returns the version and the content of its manifest. None if Lance must commit them: because another writer was
        faster, or the manifest has unusual parts. The caller must have checked that the table may be written, and that
        the fragments fit the schema of the latest version.
        """
        folder = self._storage_root.folder(table.location)
        staged = self._inspector.stage_append(table, folder, latest, content, fragments)
        if staged is None:
            return None
        files = self._deferred_flush.files_of(staged, fragments, latest, content)
        if files is None:
            folder.sync(staged.written[:-1])  # not the transaction's own file: the manifest contains the transaction

        def record(connection: Connection) -> str:
            if files is not None:
                unflushed_files.insert(connection, table.id, table.location, files)
            return on_commit(connection)

        try:
            (version,) = self._record_and_publish([staged], record)
        except CommitOutcomeUnknownError:
            # If it was recorded, the next attempt finds it, as it does for a client's retry.
            path = f"{folder.store_path}/{staged.written[0]}"
            (version,) = self.commit([(table, Proposal(staged.version.version, path, latest.branch))], on_commit)
        except (InternalError, ServiceUnavailableError):
            raise  # it may have been recorded: then the next reader publishes it
        except LanceNamespaceError as error:
            for path in (staged.written[0], staged.written[-1]):  # the staged manifest and the transaction
                folder.remove(path)
            if isinstance(error, VersionConflictError):
                return None
            raise
        if files is not None:
            self._deferred_flush.add(table.location, version, files)
        return version, staged.content

    def stage(self, table: Table, proposal: Proposal, *, by_client: bool = False) -> Staged | Version:
        """Check a proposal, and return it staged; for a replay, return the version that is already committed."""
        self._ownership.require_table(table)
        try:
            staged = self._stage(table, proposal, by_client=by_client)
        except (ConcurrentModificationError, InvalidInputError) as error:
            # A table that was just dropped lacks the files as well.
            if self._database.read(lambda connection: tables.find_by_id(connection, table.id)) is None:
                raise _dropped(table) from None
            if isinstance(error, InvalidInputError):
                self._require_branch(table, proposal)
            raise
        if by_client and isinstance(staged, Staged) and staged.version.branch != MAIN:
            self._check_first_of_branch(staged, proposal, self._latest(table, staged.version.branch))
        if isinstance(staged, Staged):
            staged.folder.sync(staged.written)  # the files must be durable before the record is
        if by_client and table.is_view and isinstance(staged, Staged):
            branch = staged.version.branch
            check_client_commit(table, branch, operation_of(staged.folder, branch, staged.manifest))
        return staged

    def _stage(self, table: Table, proposal: Proposal, *, by_client: bool) -> Staged | Version:
        folder = self._storage_root.folder(table.location)
        branch = check_branch(proposal.branch)
        name = staged_name(table, folder, proposal)
        known = self._history.find_recorded(table, branch, proposal.version)
        if known is None:
            latest = self._latest(table, branch)
            try:
                return self._inspector.inspect(table, folder, proposal, latest, by_client=by_client)
            except FileNotFoundError:
                # The client lost it, or a concurrent request published it.
                known = self._history.find_recorded(table, branch, proposal.version)
                if known is None and latest is not None:
                    self._require_latest(table, latest)
            except InvalidManifestError:
                self._require_latest(table, latest)
                raise
        if known is None:
            raise InvalidInputError("manifest_path names no file: there is no staged manifest.")
        return self._same_or_lost(folder, known, name)

    def _require_latest(self, table: Table, latest: Version | None) -> None:
        """Raise a conflict if the commit cannot be checked because the version it follows was lost on storage."""
        if latest is not None and self._history.repair(table, latest):
            raise VersionConflictError(f"The commit follows version {latest.version}, which was lost on storage.")

    def _require_branch(self, table: Table, proposal: Proposal) -> None:
        """Raise an error if the branch of a proposal does not exist."""
        branch = check_branch(proposal.branch)
        if branch != MAIN:
            self._history.latest(table, branch)

    def _check_first_of_branch(self, staged: Staged, proposal: Proposal, latest: Version | None) -> None:
        """Refuse a commit to a branch that was deleted or never existed.

        A client creates a branch by committing a clone of the parent's version under the parent's version number.
        """
        first = latest is None and staged.version.branch != MAIN
        if first and operation_of(staged.folder, staged.version.branch, staged.manifest) not in {"clone", None}:
            self._require_branch(staged.table, proposal)

    def record_version(self, connection: Connection, staged: Staged, transaction_id: str) -> Version:
        """Record a staged version in the transaction of its commit; the unique key of versions decides races."""
        version = replace(staged.version, transaction_id=transaction_id)
        latest = versions.latest(connection, version.table_id, version.branch)
        if latest is None and tables.find_by_id(connection, version.table_id) is None:
            raise _dropped(staged.table)
        first = 1 if version.branch == MAIN else version.version
        expected = first if latest is None else latest.version + 1
        if version.version != expected or version.version == 0:
            raise VersionConflictError(
                f"Version {version.version} cannot follow version {latest.version if latest else 0} of table "
                f"{format_identifier(staged.table.identifier)!r}."
            )
        if not insert_version(connection, version):
            raise VersionConflictError(f"Version {version.version} was committed by another writer.")
        if staged.column_write is not None:
            state = staged.column_write.encode()
            column_writes.save(connection, version.table_id, version.branch, version.version, state)
        return version

    def publish(self, staged: Staged, version: Version) -> Version:
        """Publish the manifest of a recorded version.

        If storage fails now, the version is committed all the same: an error would make the client write its rows
        again. The next reader publishes it.
        """
        try:
            if (version.branch, version.version) == (MAIN, 1):
                link(self._database, self._storage_root, staged.table)
            published = publish(self._database, staged.folder, version, staged.content)
        except Exception as error:
            if version.transaction_id is None or not is_storage_failure(error):
                raise
            logger.warning(
                "version %d is committed, but its manifest is not published yet", version.version, exc_info=True
            )
            return version
        if published.digest != version.digest:
            raise ConcurrentModificationError(f"Version {version.version} was written by another writer.")
        self._inspector.remember(published, staged.manifest)
        self._history.remember_published(published)
        return published

    def _commit_managed(self, entries: Sequence[Entry], on_commit: OnCommit, *, by_client: bool) -> list[Version]:
        staged = [self.stage(table, proposal, by_client=by_client) for table, proposal in entries]
        if all(isinstance(entry, Version) for entry in staged):
            return [entry for entry in staged if isinstance(entry, Version)]
        return self._record_and_publish(staged, on_commit)

    def _record_and_publish(self, staged: Sequence[Staged | Version], on_commit: OnCommit) -> list[Version]:
        def work(connection: Connection) -> list[Version]:
            transaction_id = on_commit(connection)
            return [
                entry if isinstance(entry, Version) else self.record_version(connection, entry, transaction_id)
                for entry in staged
            ]

        try:
            recorded = self._database.write(work)
        except ForeignKeyError:
            raise _dropped(next(entry.table for entry in staged if isinstance(entry, Staged))) from None
        pairs = zip(staged, recorded, strict=True)
        return [self.publish(entry, version) if isinstance(entry, Staged) else version for entry, version in pairs]

    def _latest(self, table: Table, branch: str) -> Version | None:
        def read() -> Version | None:
            return self._database.read(lambda connection: versions.latest(connection, table.id, branch))

        found = read()
        if found is None and branch != MAIN and self._history.adopt_all(table, branch):
            found = read()  # a branch that another writer created on storage
        return found

    def _same_or_lost(self, folder: FileIO, known: Version, name: str) -> Version:
        """Return the committed version to a replay of its commit; raise a conflict for any other commit of its number.

        The staged manifest is removed: the client stages its next attempt under another name and leaves this one.
        """
        if known.staged == name:
            return known
        path = f"{versions_folder(known.branch)}/{name}"
        try:
            same = digest_of(folder.read(path)) == (known.digest or self._stored_digest(folder, known))
        except FileNotFoundError:
            same = False
        folder.remove(path)
        if not same:
            raise ConcurrentModificationError(f"Version {known.version} was committed by another writer.")
        return known

    def _stored_digest(self, folder: FileIO, known: Version) -> str:
        return digest_of(folder.read(f"{versions_folder(known.branch)}/{known.manifest}"))

    def _catch_up(self, entries: Sequence[Entry]) -> bool:
        """Record versions that other writers put on storage; true if a retry of the commit may succeed."""
        return sum(self._history.adopt_all(table, check_branch(proposal.branch)) for table, proposal in entries) > 0

    def _commit_unmanaged(self, table: Table, proposal: Proposal, on_commit: OnCommit) -> Version:
        """Commit to a table that the catalog does not manage: a conditional put on storage decides races."""
        folder = self._storage_root.folder(table.location)
        branch = check_branch(proposal.branch)
        name = staged_name(table, folder, proposal)
        stored = {version.version: version for version in stored_versions(folder, table.id, branch)}
        if proposal.version in stored:
            return self._same_or_lost(folder, stored[proposal.version], name)
        latest = stored[max(stored)] if stored else None
        before = latest.version if latest is not None else 0 if branch == MAIN else proposal.version - 1
        if proposal.version != before + 1:
            raise ConcurrentModificationError(f"Version {proposal.version} cannot follow version {before}.")
        try:
            staged = self._inspector.inspect(table, folder, proposal, latest, by_client=True)
        except FileNotFoundError:
            raise InvalidInputError("manifest_path names no file: there is no staged manifest.") from None
        self._check_first_of_branch(staged, proposal, latest)
        staged.folder.sync(staged.written)
        version = self.publish(staged, staged.version)
        return replace(version, transaction_id=write_at_least_once(self._database, on_commit))
