"""The commit authority: of all who want to write a version, exactly one does.

A commit is three steps: the staged manifest is checked; the version is recorded in the catalog, where a unique key
decides every race; the manifest gets its final name. The answer is given after the third. Whoever meets a version that
was recorded but not put in place, because its committer died in between, finishes it first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    TableNotFoundError,
)

from pennon.catalog import (
    CommitOutcomeUnknownError,
    StillReferencedError,
    column_writes,
    tables,
    versions,
    write_transaction,
)
from pennon.catalog.versions import MAIN, Version
from pennon.commits.confinement import Confinement
from pennon.commits.history import record, stored_versions
from pennon.commits.manifest import BadManifestError
from pennon.commits.publication import digest_of, publish
from pennon.commits.staging import Inspector, Proposal, Staged, operation_of, staged_name
from pennon.commits.view_protection import check_client_commit
from pennon.core.identifiers import format_identifier
from pennon.storage.file_io import is_storage_failure
from pennon.storage.layout import check_branch, versions_folder
from pennon.storage.links import link

if TYPE_CHECKING:
    from pennon.catalog import Connection, Database
    from pennon.catalog.tables import Table
    from pennon.commits.history import History
    from pennon.commits.ownership import Ownership
    from pennon.storage.file_io import FileIO
    from pennon.storage.root import StorageRoot

logger = logging.getLogger("pennon.commits")

Entry = tuple["Table", Proposal]
#: What else happens in the transaction of a commit; returns the transaction's id.
Note = Callable[["Connection"], str]

_ATTEMPTS = 3


def _dropped(table: Table) -> TableNotFoundError:
    return TableNotFoundError(f"Table {format_identifier(table.identifier)!r} was dropped.")


class OvertakenError(ConcurrentModificationError):
    """A version could not be recorded, because it does not follow the newest one any more, or not yet."""


class CommitAuthority:
    """Records versions of tables and puts their manifests in place."""

    def __init__(
        self, database: Database, storage_root: StorageRoot, history: History, ownership: Ownership, cache_bytes: int
    ) -> None:
        self._database = database
        self._storage_root = storage_root
        self._history = history
        self._ownership = ownership
        self.confinement = Confinement(database, storage_root)
        self._inspector = Inspector(self.confinement, cache_bytes)

    def commit(self, entries: Sequence[Entry], note: Note, *, by_client: bool = False) -> list[Version]:
        """Commit versions of one or several tables together: all of them, or none.

        What a client staged is also checked for what it does: Pennon alone writes the rows of views.
        """
        for table, _ in entries:
            self._ownership.require_table(table)
        unmanaged = [table for table, _ in entries if not table.managed]
        if unmanaged and len(entries) > 1:
            raise InvalidInputError(
                f"Table {format_identifier(unmanaged[0].identifier)!r} is not managed by Pennon, so it cannot be "
                "committed together with others."
            )
        if unmanaged:
            try:
                return [self._commit_unmanaged(*entries[0], note)]
            except InvalidInputError:
                self._require_branch(*entries[0])
                raise
        for attempt in range(_ATTEMPTS):
            try:
                return self._commit_managed(entries, note, by_client=by_client)
            except OvertakenError:
                # The next look at the number finds who holds it now. Where nobody does, versions before it are missing.
                if attempt > 0 and (attempt == _ATTEMPTS - 1 or not self._catch_up(entries)):
                    raise
            except CommitOutcomeUnknownError:
                # If it was recorded, the next look finds it, as with a client that asks twice.
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")

    def stage(self, table: Table, proposal: Proposal, *, by_client: bool = False) -> Staged | Version:
        """Check a proposal: a version ready to be recorded, or the one that holds its number if it is the same."""
        self._ownership.require_table(table)
        try:
            staged = self._stage(table, proposal)
        except (ConcurrentModificationError, InvalidInputError) as error:
            # Its files are missing, too, when the table was dropped at that moment.
            if self._database.read(lambda connection: tables.find_by_id(connection, table.id)) is None:
                raise _dropped(table) from None
            if isinstance(error, InvalidInputError):
                self._require_branch(table, proposal)
            raise
        if by_client and isinstance(staged, Staged) and staged.version.branch != MAIN:
            self._check_first_of_branch(staged, proposal, self._latest(table, staged.version.branch))
        if isinstance(staged, Staged):
            staged.folder.sync(staged.written)  # the record must not outlive what it tells of
        if by_client and table.is_view and isinstance(staged, Staged):
            branch = staged.version.branch
            check_client_commit(table, branch, operation_of(staged.folder, branch, staged.manifest))
        return staged

    def _stage(self, table: Table, proposal: Proposal) -> Staged | Version:
        folder = self._storage_root.folder(table.location)
        branch = check_branch(proposal.branch)
        name = staged_name(table, folder, proposal)
        known = self._history.find_recorded(table, branch, proposal.version)
        if known is None:
            latest = self._latest(table, branch)
            try:
                return self._inspector.inspect(table, folder, proposal, latest)
            except FileNotFoundError:
                # Gone: lost by the client, or published by a request that overtook this one.
                known = self._history.find_recorded(table, branch, proposal.version)
                if known is None and latest is not None:
                    self._require_latest(table, latest)
            except BadManifestError:
                self._require_latest(table, latest)
                raise
        if known is None:
            raise InvalidInputError("There is no staged manifest at manifest_path.")
        return self._same_or_lost(folder, known, name)

    def _require_latest(self, table: Table, latest: Version | None) -> None:
        """Raise that a commit follows a version that is lost, where that is why it cannot be checked."""
        if latest is not None and self._history.repair(table, latest):
            raise OvertakenError(f"Version {latest.version}, which the commit follows, was lost on storage.")

    def _require_branch(self, table: Table, proposal: Proposal) -> None:
        """Raise that a branch does not exist, where that is what is wrong with a proposal."""
        branch = check_branch(proposal.branch)
        if branch != MAIN:
            self._history.latest(table, branch)

    def _check_first_of_branch(self, staged: Staged, proposal: Proposal, latest: Version | None) -> None:
        """Refuse the first version of a branch that does not make the branch: it was deleted since, or never there.

        A client makes a branch by committing a clone of its parent's version under the parent's number.
        """
        first = latest is None and staged.version.branch != MAIN
        if first and operation_of(staged.folder, staged.version.branch, staged.manifest) not in {"clone", None}:
            self._require_branch(staged.table, proposal)

    def record(self, connection: Connection, staged: Staged, transaction_id: str) -> Version:
        """Record a staged version inside the transaction of the commit; this is where races are decided."""
        version = replace(staged.version, transaction_id=transaction_id)
        latest = versions.latest(connection, version.table_id, version.branch)
        if latest is None and tables.find_by_id(connection, version.table_id) is None:
            raise _dropped(staged.table)
        first = 1 if version.branch == MAIN else version.version
        expected = first if latest is None else latest.version + 1
        if version.version != expected or version.version == 0:
            raise OvertakenError(
                f"Version {version.version} cannot follow version {latest.version if latest else 0} of table "
                f"{format_identifier(staged.table.identifier)!r}."
            )
        if not record(connection, version):
            raise OvertakenError(f"Version {version.version} was committed by another writer.")
        if staged.column_write is not None:
            state = staged.column_write.encode()
            column_writes.save(connection, version.table_id, version.branch, version.version, state)
        return version

    def publish(self, staged: Staged, version: Version) -> Version:
        """Put a recorded version's manifest in place.

        Where storage fails that moment, the version is committed nevertheless: to say anything else would make a client
        write its rows again. Whoever reads it next puts it in place.
        """
        try:
            if (version.branch, version.version) == (MAIN, 1):
                link(self._database, self._storage_root, staged.table)
            published = publish(self._database, staged.folder, version, staged.content)
        except Exception as error:
            if version.transaction_id is None or not is_storage_failure(error):
                raise
            logger.warning("version %d is committed, but not yet in place", version.version, exc_info=True)
            return version
        if published.digest != version.digest:
            raise ConcurrentModificationError(f"Version {version.version} was written by another writer.")
        self._inspector.remember(published, staged.manifest)
        return published

    def _commit_managed(self, entries: Sequence[Entry], note: Note, *, by_client: bool) -> list[Version]:
        staged = [self.stage(table, proposal, by_client=by_client) for table, proposal in entries]
        if all(isinstance(entry, Version) for entry in staged):
            return [entry for entry in staged if isinstance(entry, Version)]

        def work(connection: Connection) -> list[Version]:
            transaction_id = note(connection)
            return [
                entry if isinstance(entry, Version) else self.record(connection, entry, transaction_id)
                for entry in staged
            ]

        try:
            recorded = self._database.write(work)
        except StillReferencedError:
            raise _dropped(entries[0][0]) from None
        pairs = zip(staged, recorded, strict=True)
        return [self.publish(entry, version) if isinstance(entry, Staged) else version for entry, version in pairs]

    def _latest(self, table: Table, branch: str) -> Version | None:
        def read() -> Version | None:
            return self._database.read(lambda connection: versions.latest(connection, table.id, branch))

        found = read()
        if found is None and branch != MAIN and self._history.adopt_all(table, branch):
            found = read()  # a branch that was made around Pennon
        return found

    def _same_or_lost(self, folder: FileIO, known: Version, name: str) -> Version:
        """Answer a commit of a number that is taken: a replay gets the version, anyone else has lost.

        What a loser staged is removed, because its client will not: it stages its next attempt under another name.
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
        """Record what writers put on storage without asking; true when that may let a commit succeed."""
        return sum(self._history.adopt_all(table, check_branch(proposal.branch)) for table, proposal in entries) > 0

    def _commit_unmanaged(self, table: Table, proposal: Proposal, note: Note) -> Version:
        """Commit to a table whose versions only storage knows: its conditional put decides."""
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
            staged = self._inspector.inspect(table, folder, proposal, latest)
        except FileNotFoundError:
            raise InvalidInputError("There is no staged manifest at manifest_path.") from None
        self._check_first_of_branch(staged, proposal, latest)
        staged.folder.sync(staged.written)
        version = self.publish(staged, staged.version)
        return replace(version, transaction_id=write_transaction(self._database, note))
