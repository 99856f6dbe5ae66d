"""The versions of a table: from the catalog for managed tables, from storage for others."""

from __future__ import annotations

from functools import partial
from threading import Lock
from typing import TYPE_CHECKING

from cachetools import LRUCache
from lance_namespace.errors import TableBranchNotFoundError, TableVersionNotFoundError

from pennon.catalog import ForeignKeyError, column_writes, removals, tables, versions
from pennon.catalog.changes import versions_subject
from pennon.catalog.versions import MAIN, Version
from pennon.commits.column_writes import ColumnWrite
from pennon.commits.manifest import InvalidManifestError, Manifest, parse_manifest
from pennon.commits.publication import digest_of
from pennon.commits.recovery import complete, examine, recover_latest
from pennon.commits.staging import column_write_of
from pennon.core.errors import suggest
from pennon.core.identifiers import format_identifier
from pennon.storage import refs
from pennon.storage.layout import manifest_name, parse_manifest_name, versions_folder

if TYPE_CHECKING:
    from collections.abc import Callable

    from pennon.catalog import Connection, Database
    from pennon.catalog.tables import Table
    from pennon.commits.ownership import Ownership
    from pennon.storage.file_io import FileIO, StoredFile
    from pennon.storage.root import StorageRoot

#: Comparisons of versions that are cached; most take a few hundred bytes.
_COMPARISON_CACHE_ENTRIES = 4096
_PUBLISHED_ENTRIES = 1024


class History:
    """Reads the versions of tables, and completes interrupted commits."""

    def __init__(self, database: Database, storage_root: StorageRoot, ownership: Ownership) -> None:
        self._database = database
        self._storage_root = storage_root
        self._ownership = ownership
        self._lock = Lock()
        #: What versions of unmanaged tables wrote in place.
        self._compared: LRUCache[tuple[str, str, int, str | None], ColumnWrite | None] = LRUCache(
            _COMPARISON_CACHE_ENTRIES
        )
        #: The last version of each branch that this process published. Its record is finalized a moment later; without
        #: this, the next of several inserts in a row would take the commit for an interrupted one and complete it,
        #: which costs three more requests on an object store.
        self._published: LRUCache[tuple[str, str], Version] = LRUCache(_PUBLISHED_ENTRIES)

    def remember_published(self, version: Version) -> None:
        """Remember a version that this process has published."""
        with self._lock:
            self._published[version.table_id, version.branch] = version

    def latest(self, table: Table, branch: str) -> Version | None:
        """Return the newest version of a branch; none for a table without data."""
        folder = self._storage_root.folder(table.location)
        if not table.managed:
            stored = stored_versions(folder, table.id, branch)
            newest = max(stored, key=lambda version: version.version, default=None)
        else:
            newest = self._latest_managed(table, branch, folder)
        if newest is None and branch != MAIN:
            raise self._no_such_branch(folder, branch)
        return newest

    def freshness_check(self, table: Table) -> Callable[[], bool] | None:
        """Return a cheap check whether the latest recorded version is the latest on storage; None if it is pending."""
        newest = self._database.cached_read(versions_subject(table.id), versions.latest, table.id, MAIN)
        if newest is not None and newest.pending:
            return None
        folder = self._storage_root.folder(table.location)
        return partial(self._is_newest, folder, MAIN, newest) if folder.is_local else _always

    def find(self, table: Table, branch: str, number: int) -> Version:
        """Return one version; raises an error that names the missing branch or version."""
        found = self.find_recorded(table, branch, number)
        if found is None:
            self.latest(table, branch)  # names a missing branch rather than a missing version
            raise TableVersionNotFoundError(
                f"Table {format_identifier(table.identifier)!r} has no version {number}"
                + (f" on branch {branch!r}." if branch else ".")
            )
        return found

    def find_recorded(self, table: Table, branch: str, number: int) -> Version | None:
        """Return one version if it exists and its manifest can be read."""
        folder = self._storage_root.folder(table.location)
        if not table.managed:
            return next((v for v in stored_versions(folder, table.id, branch) if v.version == number), None)
        found = self._database.read(lambda connection: versions.find(connection, table.id, branch, number))
        if found is None:
            return self._adopt_unrecorded(table, branch, number) if folder.is_local else None
        if found.pending:
            return self._published_here(found) or self._complete(folder, found)
        size = folder.size(f"{versions_folder(branch)}/{found.manifest}")
        if size == found.size:
            return found
        newest = self._database.read(lambda connection: versions.latest(connection, table.id, branch))
        if size is None and newest is not None and newest.version != number:
            self._withdraw([found])  # a client's cleanup removed it
            return None
        self.repair(table, found)
        return self._database.read(lambda connection: versions.find(connection, table.id, branch, number))

    def repair(self, table: Table, version: Version) -> bool:
        """Recover or withdraw a version that cannot be read; false if its manifest is intact."""
        folder = self._storage_root.folder(table.location)
        if not table.managed or examine(folder, version).version is not None:
            return False
        if not self._ownership.may_write(table.location):
            return False
        with self._database.exclusive(f"recovery-{table.id}"):
            recover_latest(self._database, folder, version)
        return True

    def page(self, table: Table, branch: str, *, after: int | None, descending: bool, limit: int) -> list[Version]:
        """Return versions in order, after a version number."""
        folder = self._storage_root.folder(table.location)
        newest = self.latest(table, branch)
        if newest is None or limit == 0:
            return []
        if table.managed and limit <= 2 and descending and after is None:
            return [newest, *(self._before(table, newest, folder) if limit == 2 else [])]
        if not table.managed:
            stored = {version.version: version for version in stored_versions(folder, table.id, branch)}
            numbers = sorted(stored, reverse=descending)
            kept = [n for n in numbers if after is None or (n < after if descending else n > after)]
            return [stored[number] for number in kept[:limit]]

        def read() -> list[Version]:
            return self._database.read(
                lambda c: versions.page(c, table.id, branch, after=after, descending=descending, limit=limit)
            )

        found: list[Version] = []
        for _ in range(2):  # twice, because completing a commit may withdraw its version
            rows = read()
            if self._removed(table, branch, rows):
                every = self._database.read(lambda c: versions.in_range(c, table.id, branch, 0, None))
                self._withdraw(self._removed(table, branch, every))
                rows = read()
            finished = [self._complete(folder, row) if row.pending else row for row in rows]
            found = [row for row in finished if row is not None]
            if len(found) == len(rows):
                break
        return found

    def adopt(self, table: Table, branch: str, number: int) -> Version | None:
        """Record a version that another writer put on storage; None if there is none."""
        stored = self._on_storage(table, branch, number)
        if stored is None:
            return None
        found, write = stored

        def work(connection: Connection) -> bool:
            if removals.contains(connection, table.id, branch, number):
                return False  # a cleanup is removing it
            added = insert_version(connection, found)
            if added and write is not None:
                column_writes.save(connection, table.id, branch, number, write.encode())
            return added

        try:
            added = self._database.write(work)
        except ForeignKeyError:
            return None  # the table was dropped meanwhile
        if added:
            return found
        # It was committed through Pennon at the same time; its record has more information than storage.
        row = self._database.read(lambda connection: versions.find(connection, table.id, branch, number))
        return self._complete(self._storage_root.folder(table.location), row) if row and row.pending else row

    def adopt_all(self, table: Table, branch: str) -> int:
        """Record all versions that are on storage but not in the catalog, and return their number."""
        stored = stored_versions(self._storage_root.folder(table.location), table.id, branch)
        if not stored:
            return 0
        rows = self._database.read(lambda c: versions.in_range(c, table.id, branch, 0, None))
        missing = {version.version for version in stored} - {row.version for row in rows}
        return sum(self.adopt(table, branch, number) is not None for number in sorted(missing))

    def _adopt_unrecorded(self, table: Table, branch: str, number: int) -> Version | None:
        """Record a version that another writer put on storage, and all others like it."""
        found = self.adopt(table, branch, number)
        if found is not None:
            self.adopt_all(table, branch)
        return found

    def _removed(self, table: Table, branch: str, rows: list[Version]) -> list[Version]:
        """Return the recorded versions that a client's cleanup has removed.

        Storage is listed after the records were read, so that a version committed in between does not seem removed.
        """
        stored = {
            version.version for version in stored_versions(self._storage_root.folder(table.location), table.id, branch)
        }
        return [row for row in rows if not row.pending and row.version not in stored]

    def _on_storage(self, table: Table, branch: str, number: int) -> tuple[Version, ColumnWrite | None] | None:
        folder = self._storage_root.folder(table.location)
        stored = stored_manifest(folder, branch, number)
        if stored is None:
            return None
        try:
            content = folder.read(stored.path)
            manifest = parse_manifest(content)
        except (FileNotFoundError, InvalidManifestError):
            return None
        version = Version(
            table_id=table.id,
            branch=branch,
            version=number,
            manifest=stored.path.rsplit("/", 1)[1],
            size=stored.size,
            e_tag=stored.e_tag,
            digest=digest_of(content),
            created_at=manifest.timestamp_millis,
            statistics=manifest.statistics,
        )
        return version, self._column_write(folder, branch, content, manifest)

    def column_writes(self, table: Table, branch: str, since: int, until: int) -> list[ColumnWrite]:
        """Return what the versions of a branch after ``since`` and up to ``until`` wrote in place, oldest first.

        If some are unknown, the first item says so.
        """
        if not table.managed:
            return self._stored_column_writes(table, branch, since, until)
        recorded = self._database.read(lambda c: column_writes.of_branch(c, table.id, branch, since))
        writes = [ColumnWrite.decode(number, state) for number, state in recorded if number <= until]
        if len(recorded) < column_writes.MAX_RECORDS:
            return writes
        return [ColumnWrite.unknown(recorded[0][0]), *writes]

    def _stored_column_writes(self, table: Table, branch: str, since: int, until: int) -> list[ColumnWrite]:
        """Compare the versions on storage one by one; a version without a manifest may have written anything."""
        folder = self._storage_root.folder(table.location)
        stored = {version.version: version for version in stored_versions(folder, table.id, branch)}
        oldest = until - column_writes.MAX_RECORDS + 1
        looked_for = range(max(since + 1, oldest - 1), until + 1)
        unknown = max((number for number in looked_for if number < oldest or number not in stored), default=since)
        compared = [self._stored_column_write(folder, stored[number]) for number in range(unknown + 1, until + 1)]
        found = [write for write in compared if write is not None]
        return [ColumnWrite.unknown(unknown), *found] if unknown > since else found

    def _stored_column_write(self, folder: FileIO, version: Version) -> ColumnWrite | None:
        """Return what a version on storage wrote in place; cached, because a manifest never changes."""
        key = (version.table_id, version.branch, version.version, version.e_tag)
        with self._lock:
            if version.e_tag is not None and key in self._compared:
                return self._compared[key]
        try:
            content = folder.read(f"{versions_folder(version.branch)}/{version.manifest}")
            found = self._column_write(folder, version.branch, content, parse_manifest(content))
        except (FileNotFoundError, InvalidManifestError):
            return ColumnWrite.unknown(version.version)
        with self._lock:
            self._compared[key] = found
        return found

    def _column_write(self, folder: FileIO, branch: str, content: bytes, manifest: Manifest) -> ColumnWrite | None:
        """Return what a version wrote in place; unknown if the previous version cannot be read."""
        try:
            stored = stored_manifest(folder, branch, manifest.version - 1)
            before = parse_manifest(folder.read(stored.path)) if stored is not None else None
        except (FileNotFoundError, InvalidManifestError):
            before = None
        return column_write_of(folder, branch, content, manifest, before)

    def _latest_managed(self, table: Table, branch: str, folder: FileIO) -> Version | None:
        newest = self._database.cached_read(versions_subject(table.id), versions.latest, table.id, branch)
        if newest is not None and newest.pending:
            newest = self._published_here(newest) or self._recorded(table, branch)
        for _ in range(2):  # twice, because a record that is finalized meanwhile is not withdrawn
            if newest is None or branch == MAIN or not self._is_gone(folder, newest):
                break
            self._withdraw_branch(table, branch, folder)
            newest = self._recorded(table, branch)
        if not folder.is_local:
            return newest
        if self._is_newest(folder, branch, newest):
            return newest
        # A writer that uses the folder directly has committed around Pennon: adopt its versions, also if it created the
        # branch or removed the latest recorded version.
        if (newest is None or self._is_gone(folder, newest)) and self.adopt_all(table, branch):
            newest = self._recorded(table, branch)
        if newest is not None and not self._is_whole(folder, newest) and self.repair(table, newest):
            newest = self._recorded(table, branch)
        while newest is not None and (newer := self.adopt(table, branch, newest.version + 1)) is not None:
            newest = newer
        return newest

    def _published_here(self, pending: Version) -> Version | None:
        """Return a pending version as it is on storage, if this process has published it."""
        with self._lock:
            known = self._published.get((pending.table_id, pending.branch))
        is_same = known is not None and (known.version, known.digest) == (pending.version, pending.digest)
        return known if is_same else None

    def _recorded(self, table: Table, branch: str) -> Version | None:
        """Return the latest recorded version without a cache; an interrupted commit is completed or withdrawn."""
        newest = self._database.read(lambda connection: versions.latest(connection, table.id, branch))
        if newest is None or not newest.pending:
            return newest
        folder = self._storage_root.folder(table.location)
        if self._ownership.may_write(table.location):
            return complete(self._database, folder, newest) or self._recorded(table, branch)
        rows = self._database.read(lambda c: versions.in_range(c, table.id, branch, 0, None))
        return next((row for row in reversed(rows) if not row.pending or not self._is_gone(folder, row)), None)

    def _complete(self, folder: FileIO, row: Version) -> Version | None:
        """Complete an interrupted commit; without the right to write, return it only if it is published."""
        if self._ownership.may_write(folder.location):
            return complete(self._database, folder, row)
        return None if self._is_gone(folder, row) else row

    def _before(self, table: Table, newest: Version, folder: FileIO) -> list[Version]:
        """Return the version before the newest, if any, without listing storage: every commit asks for it."""
        if newest.version == 1:
            return []
        rows = self._database.read(
            lambda c: versions.page(c, table.id, newest.branch, after=newest.version, descending=True, limit=1)
        )
        if rows and (rows[0].pending or (folder.is_local and self._is_gone(folder, rows[0]))):
            return self.page(table, newest.branch, after=newest.version, descending=True, limit=1)
        return rows

    def _is_newest(self, folder: FileIO, branch: str, known: Version | None) -> bool:
        """Check by a few probes whether a branch on storage ends with a version."""
        place = versions_folder(branch)
        if known is None:
            return not folder.exists(place)
        following = known.version + 1
        return self._is_whole(folder, known) and not (
            folder.exists(f"{place}/{manifest_name(following, 'V2')}")
            or folder.exists(f"{place}/{manifest_name(following, 'V1')}")
        )

    def _is_whole(self, folder: FileIO, version: Version) -> bool:
        return folder.size(f"{versions_folder(version.branch)}/{version.manifest}") == version.size

    def _is_gone(self, folder: FileIO, version: Version) -> bool:
        return not folder.exists(f"{versions_folder(version.branch)}/{version.manifest}")

    def _withdraw_branch(self, table: Table, branch: str, folder: FileIO) -> None:
        """Withdraw the versions of a branch that a client deleted, but not those of a new branch of the same name."""
        rows = self._database.read(lambda connection: versions.in_range(connection, table.id, branch, 0, None))
        if rows and self._is_gone(folder, rows[-1]):
            self._withdraw(rows)

    def _withdraw(self, gone: list[Version]) -> None:
        if not self._ownership.may_write():
            return  # the root may belong to another catalog

        def work(connection: Connection) -> None:
            for version in gone:
                versions.withdraw(connection, version)

        self._database.write(work)

    def _no_such_branch(self, folder: FileIO, branch: str) -> TableBranchNotFoundError:
        known = [ref.name for ref in refs.branches(folder)]
        return TableBranchNotFoundError(f"The table has no branch {branch!r}.{suggest(branch, known)}")


def _always() -> bool:
    return True


def insert_version(connection: Connection, version: Version) -> bool:
    """Insert a version; the first version on main also marks a declared table as written."""
    inserted = versions.insert(connection, version)
    if inserted and version.branch == MAIN:
        tables.mark_written(connection, version.table_id)
    return inserted


def stored_manifest(folder: FileIO, branch: str, number: int) -> StoredFile | None:
    """Return the manifest of a version on storage, by either of its two names."""
    names: list[str] = [manifest_name(number, "V2"), manifest_name(number, "V1")]
    return next(filter(None, (folder.stat(f"{versions_folder(branch)}/{name}") for name in names)), None)


def stored_versions(folder: FileIO, table_id: str, branch: str) -> list[Version]:
    """Return the versions whose manifests are on storage, unordered."""
    place = versions_folder(branch)
    found = []
    for file in folder.files(place):
        name = file.path.removeprefix(place + "/")
        parsed = parse_manifest_name(name)
        if parsed is not None:
            found.append(
                Version(
                    table_id=table_id,
                    branch=branch,
                    version=parsed.version,
                    manifest=name,
                    size=file.size,
                    e_tag=file.e_tag,
                    digest="",
                    created_at=file.modified_millis,
                )
            )
    return found


def manifest_path(version: Version, folder: FileIO) -> str:
    """Return the path by which Lance names a version's manifest."""
    return f"{folder.store_path}/{versions_folder(version.branch)}/{version.manifest}"
