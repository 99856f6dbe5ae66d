"""Removing the files of dropped tables, also when the process that dropped them died."""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import TYPE_CHECKING

from lance_namespace.errors import ServiceUnavailableError

from pennon.catalog import dropped_locations, garbage
from pennon.storage.links import link_namesake, unlink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pennon.catalog import Connection, Database
    from pennon.catalog.tables import Table
    from pennon.commits.ownership import Ownership
    from pennon.storage.root import StorageRoot

logger = logging.getLogger("pennon.tables")

_LEASE_MILLIS = 60_000
_PATIENCE_SECONDS = 30.0


class Removal:
    """Removes folders whose tables are gone from the catalog."""

    def __init__(self, database: Database, storage_root: StorageRoot, ownership: Ownership) -> None:
        self._database = database
        self._storage_root = storage_root
        self._ownership = ownership

    def schedule(self, connection: Connection, table: Table) -> None:
        """Remember, in the transaction that drops a table, that its files must go; they must be this catalog's."""
        self._ownership.refuse_drop(table)
        garbage.add(connection, table.location, table.id, _LEASE_MILLIS)
        if self._storage_root.is_shown_by_root(table.location):
            dropped_locations.add(connection, table.location)

    def remove(self, tables: Iterable[tuple[str, str]]) -> None:
        """Remove the files of tables, of each the location and the id, that were scheduled or claimed by this process.

        What is being read, or cannot be removed, is left to whoever sweeps later: the tables are gone all the same.
        """
        for location, table_id in tables:
            if self._database.is_shared(_reading(table_id)):
                self._database.write(partial(garbage.release, location=location))
                continue
            try:
                self._ownership.require_files(location)
                unlink(self._storage_root, location)
                self._storage_root.folder(location).remove_all()
            except Exception:  # each kind of storage has errors of its own
                logger.exception("the files of a dropped table at %s cannot be removed; that is tried again", location)
            else:
                self._database.write(partial(garbage.remove, location=location))
                self._database.forget_locks(table_id, _reading(table_id), f"healing-{table_id}")
                if self._storage_root.is_shown_by_root(location):
                    link_namesake(self._database, self._storage_root, location)

    def hold(self, table: Table) -> Callable[[], None]:
        """Keep the files of a table while it is read, also when it is dropped; return what lets go of them."""
        return self._database.share(_reading(table.id))

    def sweep(self) -> int:
        """Remove what processes that died have left, and return how many locations that were."""
        if not self._ownership.may_write():
            return 0
        claimed = self._database.write(lambda connection: garbage.claim(connection, _LEASE_MILLIS))
        self.remove(claimed)
        return len(claimed)

    def wait_until_free(self, location: str) -> None:
        """Wait until no files of a dropped table are left at a location."""
        if not self.becomes_free(location, _PATIENCE_SECONDS):
            raise ServiceUnavailableError(
                "A dropped table's files are still being removed there, or read; try again soon."
            )

    def becomes_free(self, location: str, seconds: float) -> bool:
        """Wait for the files of a dropped table to go from a location; false when they may be there even then."""
        deadline = time.monotonic() + seconds
        while self._database.read(lambda connection: garbage.holds(connection, location)):
            self.sweep()
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True


def _reading(table_id: str) -> str:
    return f"reading-{table_id}"
