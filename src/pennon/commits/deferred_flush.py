"""Deferred flushing: the catalog keeps the files of small appends until they are flushed to disk.

A small append is durable once its record is. On a disk, its files would have to be flushed before that, which takes
longer than the rest of the append. Instead, their content is part of the record's transaction, whose flush is shared by
all tables, and the files are flushed together a moment later. After a power failure, the first process that opens the
catalog writes again what was not flushed. This needs a catalog whose processes are all on one machine: those of
PostgreSQL may be on others, which would read the files before they are written again.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from cachetools import LRUCache

from pennon.catalog import tables, unflushed_files, versions
from pennon.commits.publication import digest_of
from pennon.storage.file_io import is_storage_failure
from pennon.storage.layout import branch_folder, parse_manifest_name, versions_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance.fragment import FragmentMetadata

    from pennon.catalog import Connection, Database
    from pennon.catalog.unflushed_files import UnflushedFile
    from pennon.catalog.versions import Version
    from pennon.commits.ownership import Ownership
    from pennon.commits.staging import Staged
    from pennon.storage.root import StorageRoot

logger = logging.getLogger("pennon.commits")

#: How long files wait to be flushed, and how much of them may wait; beyond that, a commit flushes its own.
_FLUSH_SECONDS = 1.0
_MAX_WAITING_BYTES = 16 * 1024 * 1024
#: Larger commits flush their files: writing those twice takes longer.
_MAX_COMMIT_BYTES = 64 * 1024
_RECORDED_ENTRIES = 4096

_Files = defaultdict[tuple[str, str], list[str]]


class DeferredFlush:
    """Flushes files after their commit, and restores those that a power failure has taken."""

    def __init__(self, database: Database, storage_root: StorageRoot, ownership: Ownership) -> None:
        self._database = database
        self._storage_root = storage_root
        self._ownership = ownership
        self.is_possible = database.embedded and storage_root.durable_writes
        self._lock = threading.Lock()
        #: Paths by table and location.
        self._waiting: _Files = defaultdict(list)
        self._waiting_bytes = 0
        #: The digest of the last version of each branch that was recorded here.
        self._recorded: LRUCache[tuple[str, str], str] = LRUCache(_RECORDED_ENTRIES)
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()

    def files_of(
        self, staged: Staged, fragments: Sequence[FragmentMetadata], latest: Version, content: bytes
    ) -> dict[str, bytes] | None:
        """Return the files of a small append, to be recorded with it; None if they must be flushed first.

        They include the manifest of the version before it, unless that was recorded: other commits flush their staged
        manifest, and leave its final name to the commit that follows.
        """
        folder, size = staged.folder, len(staged.content)
        if not self.is_possible or not folder.is_local or self._closing.is_set():
            return None
        size += sum(file.file_size_bytes or _MAX_COMMIT_BYTES for each in fragments for file in each.files)
        if size > _MAX_COMMIT_BYTES or self._waiting_bytes > _MAX_WAITING_BYTES:
            return None
        home = branch_folder(staged.version.branch)
        names = [f"{home}data/{file.path}" for each in fragments for file in each.files]
        if any(folder.exists(name.removesuffix(".lance")) for name in names):
            return None  # blobs beside the data file
        files = {name: folder.read(name) for name in names}
        place = versions_folder(staged.version.branch)
        with self._lock:
            recorded = self._recorded.get((latest.table_id, latest.branch))
        if recorded != latest.digest:
            files[f"{place}/{latest.manifest}"] = content
        return {**files, f"{place}/{staged.version.manifest}": staged.content}

    def add(self, location: str, version: Version, files: Mapping[str, bytes]) -> None:
        """Flush the recorded files of a version soon."""
        with self._lock:
            self._recorded[version.table_id, version.branch] = version.digest
            self._waiting[version.table_id, location] += files
            self._waiting_bytes += sum(map(len, files.values()))
            if self._thread is None and not self._closing.is_set():
                self._thread = threading.Thread(target=self._flush_forever, name="pennon-deferred-flush", daemon=True)
                self._thread.start()

    def flush(self) -> None:
        """Flush the files that wait, and then forget their content."""
        with self._lock:
            waiting, self._waiting, self._waiting_bytes = self._waiting, defaultdict(list), 0
        for (table_id, location), paths in waiting.items():
            self._storage_root.folder(location).sync(paths)
            self._database.defer(partial(unflushed_files.delete, table_id=table_id, paths=paths))

    def restore(self) -> None:
        """Write the recorded files that are missing or damaged, and flush all."""
        if not self.is_possible:
            return
        recorded = self._database.read(unflushed_files.listed)
        for (table_id, location), group in groupby(recorded, key=lambda file: (file.table_id, file.location)):
            files = list(group)
            try:
                if self._ownership.may_write(location):
                    self._restore_table(table_id, location, files)
            except Exception as error:
                if not is_storage_failure(error):
                    raise
                logger.warning("could not restore unflushed files in %s: %s", location, error)

    def close(self) -> None:
        """Flush the files that wait; no more will be added."""
        with self._lock:
            self._closing.set()
        if self._thread is not None:
            self._thread.join()
        self.flush()

    def _flush_forever(self) -> None:
        while not self._closing.wait(_FLUSH_SECONDS):
            try:
                self.flush()
            except Exception:
                # The records stay: the next process that opens the catalog flushes the files.
                logger.exception("could not flush the files of commits")

    def _restore_table(self, table_id: str, location: str, files: Sequence[UnflushedFile]) -> None:
        folder = self._storage_root.folder(location)
        if folder.exists(versions_folder(versions.MAIN)):  # otherwise the table was dropped
            for file in files:
                if self._is_wanted(file) and not _is_intact(partial(folder.read, file.path), file.content):
                    folder.replace(file.path, file.content)
            folder.sync([file.path for file in files])
        paths = [file.path for file in files]
        self._database.write(partial(unflushed_files.delete, table_id=table_id, paths=paths))

    def _is_wanted(self, file: UnflushedFile) -> bool:
        """Tell whether a file may be written again: a manifest only if its version exists, and no table took its place.

        There is no table at the location if it was deregistered, which keeps its files.
        """
        if parse_manifest_name(file.path.rpartition("/")[2]) is None:
            return True

        def exists(connection: Connection) -> bool:
            holder = tables.find_by_location(connection, file.location)
            if holder is None:
                return True
            return holder.id == file.table_id and versions.has_digest(
                connection, file.table_id, digest_of(file.content)
            )

        return self._database.read(exists)


def _is_intact(read: Callable[[], bytes], content: bytes) -> bool:
    try:
        return read() == content
    except FileNotFoundError:
        return False
