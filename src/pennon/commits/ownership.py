"""Ownership of storage: a mark file in the root, or in a table outside it, names the one catalog that writes there.

Two catalogs that commit to the same table lose each other's versions. Therefore a catalog marks its root before it
writes, and does not write where it finds the mark of another catalog. Reads are not affected.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING

from lance_namespace.errors import PermissionDeniedError, ServiceUnavailableError

from pennon.catalog import garbage, identity, tables
from pennon.catalog.identity import Identity
from pennon.commits.history import stored_versions
from pennon.core.identifiers import format_identifier
from pennon.storage.file_io import is_storage_failure
from pennon.storage.read_only import refuse

if TYPE_CHECKING:
    from pennon.catalog import Database
    from pennon.catalog.tables import Table
    from pennon.storage.file_io import FileIO
    from pennon.storage.root import StorageRoot

#: The mark file of a root; no table can have this name.
ROOT_MARK = ".pennon-root"
#: The mark file of a managed table outside the root.
TABLE_MARK = ".pennon-table"
#: How long a mark that was read is trusted: reading it takes 20 µs on a disk and about 20 ms in a bucket, and commits
#: must not wait for that. An adoption by another catalog is noticed after this time at the latest.
_LOCAL_SECONDS, _REMOTE_SECONDS = 1.0, 60.0
_FIX = "Reads work; writes are refused until an administrator runs `pennon doctor --adopt` with this server's settings"

Mark = dict[str, object]


@dataclass(frozen=True)
class Adoption:
    """The result of adopting a root: the new id of the catalog, and which tables were found in the root."""

    catalog_id: str
    relocated: list[str]
    outside: list[str]


class Ownership:
    """Checks whether this catalog may write to the storage root and to tables outside it."""

    def __init__(self, database: Database, storage_root: StorageRoot) -> None:
        self._database = database
        self._storage_root = storage_root
        self._lock = Lock()
        self._seconds = _LOCAL_SECONDS if storage_root.root.is_local else _REMOTE_SECONDS
        self._checked_at = float("-inf")
        self._tables: dict[str, float] = {}
        #: Why writes to the root are refused, as of the last check; None if they are allowed.
        self.refusal: str | None = None

    @property
    def is_due(self) -> bool:
        """Whether a write must read the mark of the root first, or is refused."""
        return self.refusal is not None or time.monotonic() - self._checked_at > self._seconds

    def require(self) -> None:
        """Refuse a write unless the root has the mark of this catalog; the first write creates it."""
        if time.monotonic() - self._checked_at > self._seconds:
            self.check()
        if self.refusal is not None:
            raise PermissionDeniedError(f"{self.refusal} {_FIX}.")

    def check(self) -> str | None:
        """Read the mark of the root, create it if it is absent, and return why writes are refused, if they are."""
        with self._lock:
            try:
                self.refusal = self.find_refusal(claim=True)
            except Exception as error:
                if not is_storage_failure(error):
                    raise
                raise ServiceUnavailableError(
                    "The storage root cannot be read or written at the moment; try again later."
                ) from error
            self._checked_at = time.monotonic()
        return self.refusal

    def may_write(self, location: str | None = None) -> bool:
        """Tell whether a reader may complete or withdraw a commit in the root, or of a table at a location."""
        try:
            self.require()
            if location is not None:
                self._check_location(location)
        except (PermissionDeniedError, ServiceUnavailableError):
            return False
        return True

    def require_location(self, location: str) -> None:
        """Refuse a write to a location that is neither in the root nor under an allowed prefix."""
        self.require()
        self._check_location(location)

    def check_drop(self, table: Table) -> None:
        """Refuse to drop a table of another catalog, as of the last check; reads no storage inside a transaction."""
        if self.refusal is not None:
            raise PermissionDeniedError(f"{self.refusal} {_FIX}.")
        self._check_location(table.location)

    def check_removal(self, location: str) -> None:
        """Refuse to remove the files of a dropped table where another catalog may write."""
        self.require_location(location)
        if not self._storage_root.is_in_root(location):
            found = _read_mark(self._storage_root.folder(location), TABLE_MARK)
            if found is not None and found != self._table_mark(self._identity()):
                raise PermissionDeniedError("The table's files belong to another catalog, so they are not removed.")

    def _check_location(self, location: str) -> None:
        if not self._storage_root.contains(location):
            refuse()

    def require_table(self, table: Table) -> None:
        """Refuse a write to a table that another catalog owns."""
        location = table.location
        self.require_location(location)
        if self._storage_root.is_in_root(location):
            return
        name = format_identifier(table.identifier)
        if table.managed and time.monotonic() - self._tables.get(location, float("-inf")) > self._seconds:
            self._require_mark(self._storage_root.folder(location), name)
            self._tables[location] = time.monotonic()

    def release_table(self, table: Table) -> None:
        """Remove the mark of this catalog from a table outside the root that it no longer manages."""
        if (
            table.managed
            and not self._storage_root.is_in_root(table.location)
            and self._storage_root.contains(table.location)
        ):
            folder = self._storage_root.folder(table.location)
            if _read_mark(folder, TABLE_MARK) == self._table_mark(self._identity()):
                folder.remove(TABLE_MARK)
            self._tables.pop(table.location, None)

    def adopt(self) -> Adoption:
        """Make this catalog the owner of the root: give it a new id, and relocate tables to their files in the root."""
        relocated = [table.name for table in self._outside() if self._relocate(table)]
        renewed = self._database.write(identity.renew)
        self._storage_root.root.replace(ROOT_MARK, json.dumps(self._root_mark(renewed)).encode())
        self._database.write(partial(identity.set_root, root=self._storage_root.root_location))
        self._database.write(lambda connection: garbage.delete_unless(connection, self._storage_root.contains))
        self.check()
        return Adoption(renewed.id, relocated, [format_identifier(table.identifier) for table in self._outside()])

    def managed_outside(self) -> list[Table]:
        """Return the managed tables that are neither in the root nor under an allowed prefix."""
        return [table for table in self._outside() if table.managed]

    def _outside(self) -> list[Table]:
        outside = self._database.read(tables.outside_root)
        return [table for table in outside if not self._storage_root.contains(table.location)]

    def _relocate(self, table: Table) -> bool:
        """Record the location in the root where a suffix of the old location has the files of a table."""
        parts = table.location.partition("://")[2].split("/") if "://" in table.location else table.location.split("/")
        for start in range(1, len(parts)):
            location = "/".join([self._storage_root.root_location, *parts[start:]])
            if stored_versions(self._storage_root.folder(location), table.id, "") and not self._is_taken(location):
                self._database.write(partial(tables.relocate, table_id=table.id, location=location))
                return True
        return False

    def _is_taken(self, location: str) -> bool:
        return self._database.read(lambda connection: tables.find_overlapping(connection, location)) is not None

    def find_refusal(self, *, claim: bool) -> str | None:
        """Return why writes to the root are refused, if they are; with ``claim``, mark a root that has no mark."""
        root = self._storage_root.root
        known = self._identity() if claim else self._database.read(identity.find) or Identity("", "")
        expected = self._root_mark(known)
        found = _read_mark(root, ROOT_MARK)
        if found is None:
            if known.root not in {"", root.location} and self._catalog_in_root() is None:
                return "This catalog was used with another storage root, and this root has no mark of it."
            if known.root == root.location and self._catalog_in_root() is None:
                return "The mark of this catalog is missing from the storage root: its disk may not be mounted."
            if not claim:
                return None
            if root.put_if_absent(ROOT_MARK, json.dumps(expected).encode()) is None:
                found = _read_mark(root, ROOT_MARK)
        if found is not None and found != expected:
            return _reason(found, expected)
        if claim and known.root != root.location:
            self._database.write(partial(identity.set_root, root=root.location))
        return None

    def _require_mark(self, folder: FileIO, name: str) -> None:
        expected = self._table_mark(self._identity())
        found = _read_mark(folder, TABLE_MARK)
        if found is None and folder.put_if_absent(TABLE_MARK, json.dumps(expected).encode()) is None:
            found = _read_mark(folder, TABLE_MARK)
        if found is not None and found != expected:
            raise PermissionDeniedError(
                f"Table {name!r} is outside the storage root and is managed by another catalog, or by the catalog that "
                f"this one is a copy of; only one may commit to it. Deregister it here or, if the other catalog no "
                f"longer exists, remove the file {TABLE_MARK} from the table's folder."
            )

    def _identity(self) -> Identity:
        return self._database.read(identity.find) or self._database.write(identity.ensure)

    def _catalog_in_root(self) -> str | None:
        """Return the path of an embedded catalog in the root, if it is there: both are copied and moved together."""
        if self._database.file is None or "://" in self._storage_root.root_location:
            return None
        root = os.path.realpath(self._storage_root.root_location)
        path = os.path.relpath(os.path.realpath(self._database.file), root)
        return None if path.startswith("..") else path

    def _root_mark(self, known: Identity) -> Mark:
        inside = self._catalog_in_root()
        return {"catalog": known.id, "instance": f"root:{inside}" if inside else self._database.instance()}

    def _table_mark(self, known: Identity) -> Mark:
        return {"catalog": known.id, "instance": self._database.instance()}


def _read_mark(folder: FileIO, path: str) -> Mark | None:
    """Return the content of a mark file; empty, and so the mark of another catalog, if it is not valid."""
    try:
        content = folder.read(path)
    except FileNotFoundError:
        return None
    try:
        mark = json.loads(content)
    except ValueError:
        return {}
    return mark if isinstance(mark, dict) else {}


def _reason(found: Mark, expected: Mark) -> str:
    if found.get("catalog") == expected["catalog"]:
        return "The storage root belongs to the catalog that this one was copied, moved or restored from."
    return "The storage root belongs to another catalog."
