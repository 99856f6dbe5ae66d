"""Removal of the files of dropped tables, even if the process that dropped them has died."""

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
_WAIT_SECONDS = 30.0


class Removal:
    """Removes the folders of dropped tables."""

    def __init__(self, database: Database, storage_root: StorageRoot, ownership: Ownership) -> None:
        self._database = database
        self._storage_root = storage_root
        self._ownership = ownership

    def schedule(self, connection: Connection, table: Table) -> None:
        """Schedule the removal of a table's files, in the transaction that drops it; this catalog must own them."""
        self._ownership.check_drop(table)
        garbage.add(connection, table.location, table.id, _LEASE_MILLIS)
        if self._storage_root.is_shown_by_root(table.location):
            dropped_locations.add(connection, table.location)

    def remove(self, tables: Iterable[tuple[str, str]]) -> None:
        """Remove the files of tables, given by location and id, that this process has scheduled or claimed.

        Files that are being read or cannot be removed are left to a later sweep.
        """
        for location, table_id in tables:
            if self._database.is_locked(_reading(table_id)):
                self._database.write(partial(garbage.release, location=location))
                continue
            try:
                self._ownership.check_removal(location)
                unlink(self._storage_root, location)
                self._storage_root.folder(location).remove_all()
            except Exception:  # each kind of storage has its own errors
                logger.exception("cannot remove the files of a dropped table at %s; will try again", location)
            else:
                self._database.write(partial(garbage.delete, location=location))
                self._database.delete_locks(table_id, _reading(table_id), f"recovery-{table_id}")
                if self._storage_root.is_shown_by_root(location):
                    link_namesake(self._database, self._storage_root, location)

    def hold(self, table: Table) -> Callable[[], None]:
        """Keep the files of a table while it is read, even if it is dropped; returns a function that releases them."""
        return self._database.lock_shared(_reading(table.id))

    def sweep(self) -> int:
        """Remove files that dead processes have left; returns the number of locations."""
        if not self._ownership.may_write():
            return 0
        claimed = self._database.write(lambda connection: garbage.claim(connection, _LEASE_MILLIS))
        self.remove(claimed)
        return len(claimed)

    def wait_until_free(self, location: str) -> None:
        """Wait until no files of a dropped table are left at a location."""
        if not self.wait_for_removal(location, _WAIT_SECONDS):
            raise ServiceUnavailableError(
                "The files of a dropped table at this location are still being removed or read; try again soon."
            )

    def wait_for_removal(self, location: str, seconds: float) -> bool:
        """Wait for the removal of a dropped table's files from a location; returns False after a timeout."""
        deadline = time.monotonic() + seconds
        while self._database.read(lambda connection: garbage.contains(connection, location)):
            self.sweep()
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True


def _reading(table_id: str) -> str:
    return f"reading-{table_id}"
