"""Tables that are in the root folder without the catalog knowing: those of LanceDB on the same folder."""

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
from pennon.storage.layout import DEREGISTERED_MARKER, RESERVED_MARKER, TABLE_SUFFIX
from pennon.storage.links import is_link
from pennon.storage.root import check_address

if TYPE_CHECKING:
    from pennon.catalog import Connection, Database
    from pennon.storage.root import StorageRoot

#: Changes of a folder that are closer together than this may leave the same time stamp on it.
_STAMP_SECONDS = 0.1


class Discovery:
    """Adds ``*.lance`` folders of the root to the catalog, and removes those that are gone."""

    def __init__(self, database: Database, storage_root: StorageRoot, *, enabled: bool, seconds: float) -> None:
        self._database = database
        self._storage_root = storage_root
        self._enabled = enabled
        self._seconds = seconds
        self._lock = Lock()
        self._seen: int | None = None
        self._looked_at = float("-inf")

    def refresh(self) -> None:
        """Bring the catalog in line with the root folder, if that may have changed since the last look."""
        if not self.is_due():
            return
        with self._lock:
            change_token = self._stamp()
            started = time.time()
            complete = self._scan()
            settled = change_token is None or started - change_token / 1e9 > _STAMP_SECONDS
            self._seen = change_token if settled and complete else None
            self._looked_at = time.monotonic()

    def is_due(self) -> bool:
        """Tell whether the root folder may hold something that was not seen yet."""
        return self._enabled and self._may_have_changed()

    def find(self, name: str) -> Table | None:
        """Look for one root table that the catalog does not know, and add it."""
        if not self._enabled:
            return None
        found = self._inspect(name)
        if found is None:
            return None
        # Another caller may have been first; then the table is the one it added.
        self._database.write(lambda connection: _add(connection, found))
        return self._database.read(lambda connection: tables.find(connection, (name,)))

    def notices_loss(self, table: Table) -> bool:
        """Tell whether a discovered table's folder is gone, where a look at it costs next to nothing."""
        return table.origin == DISCOVERED and self._storage_root.root.is_local and self.forget_if_gone(table)

    def forget_if_gone(self, table: Table) -> bool:
        """Remove a discovered table from the catalog when its folder is gone."""
        if table.origin != DISCOVERED:
            return False
        folder = self._storage_root.folder(table.location)
        if not self._leads_out(table.location) and not folder.is_empty():
            return False
        self._database.write(lambda connection: tables.forget(connection, table.id))
        return True

    def _may_have_changed(self) -> bool:
        if self._storage_root.root.is_local:
            return self._seen is None or self._stamp() != self._seen
        return time.monotonic() - self._looked_at >= self._seconds

    def _stamp(self) -> int | None:
        if not self._storage_root.root.is_local:
            return None
        try:
            return Path(self._storage_root.root_location).stat().st_mtime_ns
        except FileNotFoundError:
            return None

    def _scan(self) -> bool:
        """Add and remove tables; false when a folder may yet become a table without a change to the root."""
        root = self._storage_root.root_location
        folders = {
            f"{root}/{name}": name.removesuffix(TABLE_SUFFIX)
            for name in self._storage_root.root.folders()
            if name.endswith(TABLE_SUFFIX) and name != TABLE_SUFFIX
        }
        known = self._database.read(lambda connection: tables.in_namespace(connection, ROOT))
        taken = {table.location for table in known} | {f"{root}/{table.name}{TABLE_SUFFIX}" for table in known}
        new = [name for place, name in folders.items() if place not in taken and not is_link(self._storage_root, place)]
        found = [table for table in map(self._inspect, new) if table is not None]
        mine = [table for table in known if table.origin == DISCOVERED]
        gone = [table for table in mine if table.location not in folders or self._leads_out(table.location)]
        reserved = [table for table in mine if table.declared]
        written = [
            table for table in reserved if stored_versions(self._storage_root.folder(table.location), table.id, "")
        ]
        if found or gone or written:
            self._database.write(lambda connection: _apply(connection, found, gone, written))
        pending = set(new) - {table.name for table in found}
        return len(written) == len(reserved) and not any(self._is_being_made(name) for name in pending)

    def _is_being_made(self, name: str) -> bool:
        """Tell whether a folder that is no table yet may hold the first write of one."""
        folder = self._storage_root.folder(f"{self._storage_root.root_location}/{name}{TABLE_SUFFIX}")
        return self._storage_root.root.is_local and folder.stat(DEREGISTERED_MARKER) is None

    def _may_show(self, location: str) -> bool:
        """Tell whether a folder is no link, or one to where tables may be and none is known."""
        if not self._storage_root.folder(location).is_link(""):
            return True
        real = self._storage_root.real_location(location)
        if real is None or self._storage_root.is_own(real):
            return False
        return self._database.read(lambda connection: tables.find_overlapping(connection, real)) is None

    def _leads_out(self, location: str) -> bool:
        return self._storage_root.folder(location).is_link("") and self._storage_root.real_location(location) is None

    def _inspect(self, name: str) -> Table | None:
        """Return the table a folder holds; nothing when that is what is left of one that was dropped."""
        found = self._look(name)
        if found is None or self._database.read(lambda connection: garbage.holds(connection, found.location)):
            return None
        return self._look(name)  # the first may have seen the last files of a removal that is over by now

    def _look(self, name: str) -> Table | None:
        """Return the table that files in a folder tell of: data, or a reservation; nothing when it was deregistered."""
        location = f"{self._storage_root.root_location}/{name}{TABLE_SUFFIX}"
        try:
            check_name(name)
            check_address(location)
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
        tables.forget(connection, table.id)
    for table in written:
        tables.mark_written(connection, table.id)
    for table in found:
        _add(connection, table)


def _add(connection: Connection, table: Table) -> bool:
    return not garbage.holds(connection, table.location) and tables.insert(connection, table)
