"""Records of new tables: where a table goes, and the catalog row that reserves its name and location."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from lance_namespace.errors import ConcurrentModificationError, InvalidInputError, TableAlreadyExistsError

from pennon.catalog import ForeignKeyError, dropped_locations, garbage, tables
from pennon.catalog.tables import REGISTERED, Table
from pennon.commits.history import stored_versions
from pennon.core.identifiers import Identifier, format_identifier, new_id
from pennon.maintenance.policy import check_properties
from pennon.namespace.requests import require_unscoped
from pennon.namespace.resolver import TableResolver
from pennon.namespace.transaction_records import record_transaction
from pennon.services import Services

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pennon.catalog import Connection
    from pennon.catalog.versions import Version

#: How long a new table waits for the folder of its name to become free before it takes another one.
_FOLDER_WAIT_SECONDS = 5.0


class LocationInUseError(ConcurrentModificationError):
    """The files of an earlier table are being removed from the location of a new one."""


@dataclass(frozen=True)
class NewTables:
    """Plans and inserts the records of new tables."""

    services: Services
    resolver: TableResolver

    def plan(self, identifier: Identifier, location: str | None, properties: Mapping[str, str] | None) -> Table:
        """Return the record of a new table without writing it."""
        check_properties(properties)
        self.services.ownership.require()
        table_id = new_id()
        if location is not None:
            require_unscoped()
            checked = self.services.storage_root.check_location(location)
            self.discover(identifier)
            if self.services.storage_root.is_root_table(identifier, checked) and self.services.database.read(
                partial(self._was_dropped, location=checked)
            ):
                raise InvalidInputError(
                    "A table was dropped from that location, and writers may still hold it; name another, or none."
                )
            self.services.removal.wait_until_free(checked)
        else:
            checked = self._free_location(identifier, table_id)
        return Table(table_id, identifier[:-1], identifier[-1], checked, properties=dict(properties or {}))

    def declare(self, connection: Connection, table: Table) -> str:
        """Insert the record of a planned table inside a transaction and return the transaction's id."""
        self.insert(connection, table)
        return record_transaction(connection, "DeclareTable", table.identifier)

    def insert(self, connection: Connection, table: Table) -> None:
        """Insert the record of a planned table, or raise the error that says why its name or location is taken."""
        name = format_identifier(table.identifier)
        # A location that Pennon chooses inside the root can only contain other tables, never lie inside one.
        is_generated = table.origin != REGISTERED and self.services.storage_root.is_generated(table.location)
        find = tables.find_inside if is_generated else tables.find_overlapping
        neighbour = find(connection, table.location)
        if neighbour is not None and neighbour.identifier != table.identifier:
            raise TableAlreadyExistsError(f"The location of {name!r} already exists as that of another table.")
        if not tables.insert(connection, table):
            raise TableAlreadyExistsError(f"Table {name!r} already exists.")
        # Checked after the insert, which waits until a concurrent drop of the same name is recorded.
        if garbage.contains(connection, table.location):
            raise LocationInUseError(f"The files of an earlier table {name!r} are being removed; try again.")
        is_by_name = table.origin != REGISTERED and self.services.storage_root.is_root_table(
            table.identifier, table.location
        )
        if is_by_name and self._was_dropped(connection, table.location):
            raise LocationInUseError(f"An earlier table {name!r} was dropped at the same moment; try again.")

    def write(self, identifier: Identifier, work: Callable[[Connection], str]) -> str:
        """Run a transaction that inserts a table, and raise which namespace is missing if that is why it fails."""
        try:
            return self.services.database.write(work)
        except ForeignKeyError:
            raise self.resolver.missing_namespace(identifier[:-1]) from None

    def discover(self, identifier: Identifier) -> None:
        """Record a table that only the root folder has, before another table takes its name and hides it."""
        if len(identifier) == 1:
            self.services.discovery.find(identifier[0])

    def versions_on_storage(self, table: Table) -> list[Version]:
        """Return all versions whose manifests are in a table's folder, on all branches."""
        folder = self.resolver.folder(table)
        branches = ["", *self.resolver.branches(table)]
        return [version for branch in branches for version in stored_versions(folder, table.id, branch)]

    def _free_location(self, identifier: Identifier, table_id: str) -> str:
        """Return the location of a new table: that of its name, or a unique one if that is in use."""
        storage_root = self.services.storage_root
        location = storage_root.new_location(identifier, table_id)
        if not storage_root.is_root_table(identifier, location):
            self.discover(identifier)
            return location
        owner = self.services.database.read(lambda connection: tables.find_by_location(connection, location))
        if owner is not None and self.services.discovery.forget_if_gone_locally(owner):
            owner = None
        taken = owner.identifier == identifier if owner else self.services.discovery.find(identifier[0]) is not None
        if taken:
            raise TableAlreadyExistsError(f"Table {format_identifier(identifier)!r} already exists.")
        known = owner is not None or self.services.database.read(partial(self._is_used, location=location))
        in_use = known or not storage_root.folder(location).is_empty()
        if in_use or not self.services.removal.wait_for_removal(location, _FOLDER_WAIT_SECONDS):
            return storage_root.unique_location(identifier, table_id)
        return location

    def _is_used(self, connection: Connection, location: str) -> bool:
        """Return whether a location contains a table, or writers may still hold one that was dropped from it."""
        return tables.find_inside(connection, location) is not None or self._was_dropped(connection, location)

    def _was_dropped(self, connection: Connection, location: str) -> bool:
        """Return whether writers may still hold a table that was dropped from a location."""
        return self.services.settings.isolate_recreated_tables and dropped_locations.contains(connection, location)
