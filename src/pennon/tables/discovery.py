"""Discovery of tables in the root folder that are not in the catalog, such as those of LanceDB on the same folder."""

from __future__ import annotations

import time
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from lance_namespace.errors import InvalidInputError

from pennon.catalog import garbage, tables
from pennon.catalog.tables import DISCOVERED, Table
from pennon.commits.history import stored_versions
from pennon.core.identifiers import ROOT, check_name, new_id
from pennon.core.inline import require_thread
from pennon.storage.layout import DEREGISTERED_MARKER, RESERVED_MARKER, TABLE_SUFFIX
from pennon.storage.links import is_link
from pennon.storage.root import check_url

if TYPE_CHECKING:
    from pennon.catalog import Connection, Database
    from pennon.storage.root import StorageRoot

#: Changes of a folder within this time may get the same modification time.
_TIMESTAMP_SECONDS = 0.1


class Discovery:
    """Adds ``*.lance`` folders of the root to the catalog, and removes deleted ones."""

    def __init__(self, database: Database, storage_root: StorageRoot, *, enabled: bool, seconds: float) -> None:
        self._database = database
        self._storage_root = storage_root
        self._enabled = enabled
        self._seconds = seconds
        self._lock = Lock()
        self._scanned_token: int | None = None
        self._scanned_at = float("-inf")

    def refresh(self) -> None:
        """Synchronize the catalog with the root folder, if it may have changed since the last scan."""
        if not self.is_due():
            return
        require_thread()
        with self._lock:
            change_token = self._change_token()
            started = time.time()
            complete = self._scan()
            is_stable = change_token is None or started - change_token / 1e9 > _TIMESTAMP_SECONDS
            self._scanned_token = change_token if is_stable and complete else None
            self._scanned_at = time.monotonic()

    def is_due(self) -> bool:
        """Return whether the root folder may have changed since the last scan."""
        return self._enabled and self._may_have_changed()

    def find(self, name: str) -> Table | None:
        """Find one root table that is not in the catalog, and add it."""
        if not self._enabled:
            return None
        found = self._inspect(name)
        if found is None:
            return None
        # Another caller may have added it first.
        self._database.write(lambda connection: _add(connection, found))
        return self._database.read(lambda connection: tables.find(connection, (name,)))

    def forget_if_gone_locally(self, table: Table) -> bool:
        """Do as ``forget_if_gone``, but only on local storage, where the check is cheap."""
        return table.origin == DISCOVERED and self._storage_root.root.is_local and self.forget_if_gone(table)

    def forget_if_gone(self, table: Table) -> bool:
        """Remove a discovered table from the catalog if its folder is gone; returns whether it was."""
        if table.origin != DISCOVERED:
            return False
        folder = self._storage_root.folder(table.location)
        if not self._leads_out(table.location) and not folder.is_empty():
            return False
        self._database.write(lambda connection: tables.deregister(connection, table.id))
        return True

    def _may_have_changed(self) -> bool:
        if self._storage_root.root.is_local:
            return self._scanned_token is None or self._change_token() != self._scanned_token
        return time.monotonic() - self._scanned_at >= self._seconds

    def _change_token(self) -> int | None:
        if not self._storage_root.root.is_local:
            return None
        try:
            return Path(self._storage_root.root_location).stat().st_mtime_ns
        except FileNotFoundError:
            return None

    def _scan(self) -> bool:
        """Add and remove tables; returns False if a folder may become a table without a change of the root."""
        root = self._storage_root.root_location
        folders = {
            f"{root}/{name}": name.removesuffix(TABLE_SUFFIX)
            for name in self._storage_root.root.folders()
            if name.endswith(TABLE_SUFFIX) and name != TABLE_SUFFIX
        }
        known = self._database.read(lambda connection: tables.in_namespace(connection, ROOT))
        taken = {table.location for table in known} | {f"{root}/{table.name}{TABLE_SUFFIX}" for table in known}
        new = [
            name
            for location, name in folders.items()
            if location not in taken and not is_link(self._storage_root, location)
        ]
        found = [table for table in map(self._inspect, new) if table is not None]
        discovered = [table for table in known if table.origin == DISCOVERED]
        gone = [table for table in discovered if table.location not in folders or self._leads_out(table.location)]
        reserved = [table for table in discovered if table.declared]
        written = [
            table for table in reserved if stored_versions(self._storage_root.folder(table.location), table.id, "")
        ]
        if found or gone or written:
            self._database.write(lambda connection: _apply(connection, found, gone, written))
        pending = set(new) - {table.name for table in found}
        return len(written) == len(reserved) and not any(self._may_become_table(name) for name in pending)

    def _may_become_table(self, name: str) -> bool:
        """Return whether a folder without a table may contain the first write of one."""
        folder = self._storage_root.folder(f"{self._storage_root.root_location}/{name}{TABLE_SUFFIX}")
        return self._storage_root.root.is_local and folder.stat(DEREGISTERED_MARKER) is None

    def _may_show(self, location: str) -> bool:
        """Return whether a folder is no link, or a link to an allowed location without a known table."""
        if not self._storage_root.folder(location).is_link(""):
            return True
        real = self._storage_root.real_location(location)
        if real is None or self._storage_root.is_internal(real):
            return False
        return self._database.read(lambda connection: tables.find_overlapping(connection, real)) is None

    def _leads_out(self, location: str) -> bool:
        """Return whether a folder is a link to a location that is not allowed."""
        return self._storage_root.folder(location).is_link("") and self._storage_root.real_location(location) is None

    def _inspect(self, name: str) -> Table | None:
        """Return the table in a folder; None for the remains of a dropped table."""
        found = self._read_folder(name)
        if found is None or self._database.read(lambda connection: garbage.contains(connection, found.location)):
            return None
        return self._read_folder(name)  # the first read may have seen the last files of a removal that has ended since

    def _read_folder(self, name: str) -> Table | None:
        """Return the table in a folder, from its data or its reservation marker; None if it was deregistered."""
        location = f"{self._storage_root.root_location}/{name}{TABLE_SUFFIX}"
        try:
            check_name(name)
            check_url(location)
        except InvalidInputError:
            return None
        folder = self._storage_root.folder(location)
        if folder.stat(DEREGISTERED_MARKER) is not None or is_link(self._storage_root, location):
            return None
        if not self._may_show(location):
            return None
        written = bool(stored_versions(folder, "", ""))
        if not written and folder.stat(RESERVED_MARKER) is None:
            return None
        return Table(new_id(), ROOT, name, location, origin=DISCOVERED, managed=False, declared=not written)


def _apply(connection: Connection, found: list[Table], gone: list[Table], written: list[Table]) -> None:
    for table in gone:
        tables.deregister(connection, table.id)
    for table in written:
        tables.mark_written(connection, table.id)
    for table in found:
        _add(connection, table)


def _add(connection: Connection, table: Table) -> bool:
    return not garbage.contains(connection, table.location) and tables.insert(connection, table)
