"""Operations on tables as objects of the catalog: declare, register, describe, rename, drop."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from lance_namespace import (
    DeclareTableRequest,
    DeclareTableResponse,
    DeregisterTableRequest,
    DeregisterTableResponse,
    DropTableRequest,
    DropTableResponse,
    RegisterTableRequest,
    RegisterTableResponse,
    RenameTableRequest,
    RenameTableResponse,
)
from lance_namespace.errors import ConcurrentModificationError, InvalidInputError, TableAlreadyExistsError

from pennon.catalog import StillReferencedError, dropped_locations, garbage, tables, versions
from pennon.catalog.tables import REGISTERED, Table
from pennon.commits.history import stored_versions
from pennon.commits.view_protection import refuse_view_write
from pennon.core.caller import current_caller
from pennon.core.identifiers import Identifier, check_identifier, format_identifier, new_id
from pennon.namespace.dependents import DependentOperations, Dropped, wants_cascade
from pennon.namespace.operations import (
    missing_table,
    parse_choice,
    record_transaction,
    request_as,
    require_unscoped,
    table_id,
)
from pennon.storage import refs
from pennon.storage.layout import DEREGISTERED_MARKER, RESERVED_MARKER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pennon.catalog import Connection
    from pennon.catalog.versions import Version


#: How long a new table waits for the folder that its name gives it, before it takes another.
_PATIENCE_SECONDS = 5.0


class PlaceInUseError(ConcurrentModificationError):
    """A table cannot have the place it was to have, because another's files are being removed from there."""


class TableOperations(DependentOperations):
    """Declare, register, rename, deregister and drop tables."""

    def declare_table(self, request: DeclareTableRequest) -> DeclareTableResponse:
        """Declare a table: its name and place are reserved, storage is not touched."""
        request = request_as(DeclareTableRequest, request)
        table, transaction_id = self._declare(table_id(request), request.location, request.properties)
        return DeclareTableResponse(
            transaction_id=transaction_id,
            location=table.location,
            storage_options=self.services.storage_root.client_options(vend=request.vend_credentials),
            properties=table.properties,
            managed_versioning=table.managed,
        )

    def create_empty_table(self, request: DeclareTableRequest) -> DeclareTableResponse:
        """Declare a table by the older route, which also leaves a mark where the folder itself is the catalog."""
        request = request_as(DeclareTableRequest, request)
        identifier = table_id(request)
        response = self.declare_table(request)
        if response.location is not None and self.services.storage_root.is_root_table(identifier, response.location):
            self.services.storage_root.folder(response.location).put_if_absent(RESERVED_MARKER, b"")
        return response

    def register_table(self, request: RegisterTableRequest) -> RegisterTableResponse:
        """Register a table that exists on storage, without moving it."""
        request = request_as(RegisterTableRequest, request)
        identifier = table_id(request)
        mode = parse_choice("mode", request.mode, ("create", "overwrite"))
        require_unscoped()
        location = self.services.storage_root.check_location(request.location)
        if not self.services.storage_root.is_root_table(identifier, location):
            self._notice(identifier)
        self.services.removal.wait_until_free(location)
        folder = self.services.storage_root.folder(location)
        new = Table(
            id=new_id(),
            namespace=identifier[:-1],
            name=identifier[-1],
            location=location,
            origin=REGISTERED,
            managed=self.services.settings.manage_registered,
            declared=False,
            properties=dict(request.properties or {}),
        )
        found = self._versions_on_storage(new)
        if not found:
            raise InvalidInputError("There is no Lance table at that location; declare one instead.")
        self.services.ownership.require_table(new)

        replaced = self._find(identifier) if mode == "overwrite" else None

        def work(connection: Connection) -> str:
            existing = tables.find(connection, identifier)
            if existing is not None and mode == "overwrite":
                tables.forget(connection, existing.id)
                self._refuse_to_forget(connection, existing)
            self._insert(connection, new)
            if new.managed:
                for version in found:
                    versions.insert(connection, version)
            return record_transaction(connection, "RegisterTable", identifier)

        with self.marked_deregistered([] if replaced is None else [replaced]):
            transaction_id = self._write_in_namespace(identifier, work)
        folder.remove(DEREGISTERED_MARKER)
        # As it was given; DescribeTable has the address.
        return RegisterTableResponse(
            transaction_id=transaction_id, location=request.location, properties=new.properties
        )

    def rename_table(self, request: RenameTableRequest) -> RenameTableResponse:
        """Give a table another name, also in another namespace; its data stays where it is."""
        request = request_as(RenameTableRequest, request)
        identifier = table_id(request)
        namespace = identifier[:-1] if request.new_namespace_id is None else check_identifier(request.new_namespace_id)
        renamed = check_identifier((*namespace, request.new_table_name))
        table = self._table(identifier)
        self._notice(renamed)

        def work(connection: Connection) -> str:
            if not tables.rename(connection, table.id, renamed):
                raise TableAlreadyExistsError(f"Table {format_identifier(renamed)!r} already exists.")
            if tables.find_by_id(connection, table.id) is None:
                raise missing_table(connection, identifier)
            return record_transaction(connection, "RenameTable", identifier)

        return RenameTableResponse(transaction_id=self._write_in_namespace(renamed, work))

    def drop_table(self, request: DropTableRequest) -> DropTableResponse:
        """Drop a table and delete its data; with cascade, also the views over it."""
        request = request_as(DropTableRequest, request)
        identifier = table_id(request)
        table = self._table(identifier)
        self.services.ownership.require_table(table)
        cascade = wants_cascade(request)
        dropped = Dropped()

        def work(connection: Connection) -> str:
            dropped.clear()
            self._drop(connection, [table], dropped)
            if table not in dropped.tables:
                raise missing_table(connection, identifier)
            self._drop_views_over(connection, _named(table), dropped, cascade=cascade)
            return record_transaction(connection, "DropTable", identifier)

        try:
            transaction_id = self._write(work)
        except StillReferencedError:  # cloned at the same moment, which is seen now
            transaction_id = self._write(work)
        self._finish(dropped)
        return DropTableResponse(
            transaction_id=transaction_id,
            id=list(identifier),
            location=table.location,
            properties=table.properties,
        )

    def deregister_table(self, request: DeregisterTableRequest) -> DeregisterTableResponse:
        """Forget a table and keep its data."""
        request = request_as(DeregisterTableRequest, request)
        identifier = table_id(request)
        table = self._table(identifier)
        with self.marked_deregistered([table]):
            transaction_id = self._write(lambda connection: self.forget(connection, table))
        self.services.ownership.release_table(table)
        return DeregisterTableResponse(
            transaction_id=transaction_id,
            id=list(identifier),
            location=table.location,
            properties=table.properties,
        )

    @contextmanager
    def marked_deregistered(self, leaving: Sequence[Table]) -> Iterator[None]:
        """Leave a mark where the folder itself would show tables again that are forgotten inside the block.

        First the mark, then the record: the other way round, a look at the folder in between brings them back.
        """
        for table in leaving:
            self._read(partial(self._refuse_to_forget, table=table))
        marked = [table for table in leaving if self._mark_deregistered(table)]
        try:
            yield
        except BaseException:
            for table in marked:
                if self._read(partial(tables.find_by_id, table_id=table.id)) is not None:
                    self.services.storage_root.folder(table.location).remove(DEREGISTERED_MARKER)
            raise

    def _mark_deregistered(self, table: Table) -> bool:
        storage_root = self.services.storage_root
        folder = storage_root.folder(table.location)
        shown = storage_root.is_shown_by_root(table.location) and not folder.is_empty()
        return shown and folder.put_if_absent(DEREGISTERED_MARKER, b"") is not None

    def forget(self, connection: Connection, table: Table) -> str:
        """Remove a table's record inside a transaction and return that transaction's id."""
        if not tables.forget(connection, table.id):
            raise missing_table(connection, table.identifier)
        self._refuse_to_forget(connection, table)  # as in a drop, views are looked for last
        return record_transaction(connection, "DeregisterTable", table.identifier)

    def _refuse_to_forget(self, connection: Connection, table: Table) -> None:
        """Refuse to forget a table that views read, or a view: its rows alone are not what it is."""
        refuse_view_write(table, "it cannot be forgotten and kept")
        self.settle(_named(table), self._views_over(connection, [table]), current_caller().principal, cascade=False)

    def plan_table(self, identifier: Identifier, location: str | None, properties: Mapping[str, str] | None) -> Table:
        """Return the record of a table to be declared; nothing is written yet."""
        self.services.ownership.require()
        fresh = new_id()
        if location is not None:
            require_unscoped()
            place = self.services.storage_root.check_location(location)
            self._notice(identifier)
            if self.services.storage_root.is_root_table(identifier, place) and self._read(
                partial(self._is_held, place=place)
            ):
                raise InvalidInputError(
                    "A table was dropped from that location, and writers may still hold it; name another, or none."
                )
            self.services.removal.wait_until_free(place)
        else:
            place = self._free_place(identifier, fresh)
        return Table(fresh, identifier[:-1], identifier[-1], place, properties=dict(properties or {}))

    def declare_planned(self, connection: Connection, table: Table) -> str:
        """Write the record of a planned table inside a transaction and return that transaction's id."""
        self._insert(connection, table)
        return record_transaction(connection, "DeclareTable", table.identifier)

    def _declare(
        self, identifier: Identifier, location: str | None, properties: Mapping[str, str] | None
    ) -> tuple[Table, str]:
        table = self.plan_table(identifier, location, properties)
        try:
            return table, self._write_in_namespace(identifier, partial(self.declare_planned, table=table))
        except PlaceInUseError:
            table = self.plan_table(identifier, location, properties)
            return table, self._write_in_namespace(identifier, partial(self.declare_planned, table=table))

    def _free_place(self, identifier: Identifier, fresh: str) -> str:
        """Return where a new table goes; a root table whose folder is in other use gets one of its own."""
        storage_root = self.services.storage_root
        place = storage_root.new_location(identifier, fresh)
        if not storage_root.is_root_table(identifier, place):
            self._notice(identifier)
            return place
        owner = self._read(lambda connection: tables.find_by_location(connection, place))
        if owner is not None and self.services.discovery.notices_loss(owner):
            owner = None
        taken = owner.identifier == identifier if owner else self.services.discovery.find(identifier[0]) is not None
        if taken:
            raise TableAlreadyExistsError(f"Table {format_identifier(identifier)!r} already exists.")
        known = owner is not None or self._read(partial(self._is_used, place=place))
        in_use = known or not storage_root.folder(place).is_empty()
        if in_use or not self.services.removal.becomes_free(place, _PATIENCE_SECONDS):
            return storage_root.own_location(identifier, fresh)
        return place

    def _is_used(self, connection: Connection, place: str) -> bool:
        """Tell whether a table is inside a place, or writers may still hold one that was there."""
        return tables.find_inside(connection, place) is not None or self._is_held(connection, place)

    def _is_held(self, connection: Connection, place: str) -> bool:
        """Tell whether writers may still hold an earlier table at the place that a name gives to one."""
        return self.services.settings.recreate_apart and dropped_locations.holds(connection, place)

    def _notice(self, identifier: Identifier) -> None:
        """Let a table that is in the root folder have its name, before another is given it and hides the folder."""
        if len(identifier) == 1:
            self.services.discovery.find(identifier[0])

    def _insert(self, connection: Connection, table: Table) -> None:
        name = format_identifier(table.identifier)
        # Nothing but the root is around a place in it that Pennon chooses.
        chosen = table.origin != REGISTERED and self.services.storage_root.is_generated(table.location)
        find = tables.find_inside if chosen else tables.find_overlapping
        neighbour = find(connection, table.location)
        if neighbour is not None and neighbour.identifier != table.identifier:
            raise TableAlreadyExistsError(f"The location of {name!r} already exists as that of another table.")
        if not tables.insert(connection, table):
            raise TableAlreadyExistsError(f"Table {name!r} already exists.")
        # Looked for after the insert, which waits for a drop of the same name to be recorded.
        if garbage.holds(connection, table.location):
            raise PlaceInUseError(f"The files of an earlier table {name!r} are being removed; try again.")
        by_name = table.origin != REGISTERED and self.services.storage_root.is_root_table(
            table.identifier, table.location
        )
        if by_name and self._is_held(connection, table.location):
            raise PlaceInUseError(f"An earlier table {name!r} was dropped at the same moment; try again.")

    def _write_in_namespace(self, identifier: Identifier, work: Callable[[Connection], str]) -> str:
        try:
            return self._write(work)
        except StillReferencedError:
            raise self._missing_namespace(identifier[:-1]) from None

    def _versions_on_storage(self, table: Table) -> list[Version]:
        folder = self.services.storage_root.folder(table.location)
        found = stored_versions(folder, table.id, "")
        for branch in refs.branches(folder):
            found += stored_versions(folder, table.id, branch.name)
        return found


def _named(table: Table) -> str:
    return f"Table {format_identifier(table.identifier)!r}"
