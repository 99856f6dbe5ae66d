"""Operations on tables as objects of the catalog: declare, register, rename, deregister, drop."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import lance_namespace as ln
from lance_namespace.errors import InvalidInputError, TableAlreadyExistsError

from pennon.catalog import ForeignKeyError, tables, versions
from pennon.catalog.tables import REGISTERED, Table
from pennon.commits.view_protection import refuse_view_write
from pennon.core.caller import current_caller
from pennon.core.identifiers import Identifier, check_identifier, format_identifier, new_id
from pennon.maintenance.policy import check_properties
from pennon.namespace.dependents import Dependents, Dropped, wants_cascade
from pennon.namespace.new_tables import LocationInUseError, NewTables
from pennon.namespace.requests import parse_choice, request_as, require_unscoped, table_id
from pennon.namespace.resolver import TableResolver, missing_table
from pennon.namespace.transaction_records import record_transaction
from pennon.services import Services
from pennon.storage.layout import DEREGISTERED_MARKER, RESERVED_MARKER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pennon.catalog import Connection


@dataclass(frozen=True)
class TableOperations:
    """Declare, register, rename, deregister and drop tables."""

    services: Services
    resolver: TableResolver
    dependents: Dependents
    new_tables: NewTables

    def declare_table(self, request: ln.DeclareTableRequest) -> ln.DeclareTableResponse:
        """Declare a table: reserve its name and location without touching storage."""
        request = request_as(ln.DeclareTableRequest, request)
        table, transaction_id = self._declare(table_id(request), request.location, request.properties)
        return ln.DeclareTableResponse(
            transaction_id=transaction_id,
            location=table.location,
            storage_options=self.services.storage_root.client_options(vend=request.vend_credentials),
            properties=table.properties,
            managed_versioning=table.managed,
        )

    def create_empty_table(self, request: ln.DeclareTableRequest) -> ln.DeclareTableResponse:
        """Declare a table by the older route, which also marks the folder of a root table as reserved."""
        request = request_as(ln.DeclareTableRequest, request)
        identifier = table_id(request)
        response = self.declare_table(request)
        if response.location is not None and self.services.storage_root.is_root_table(identifier, response.location):
            self.services.storage_root.folder(response.location).put_if_absent(RESERVED_MARKER, b"")
        return response

    def register_table(self, request: ln.RegisterTableRequest) -> ln.RegisterTableResponse:
        """Register a table that exists on storage, without moving its files."""
        request = request_as(ln.RegisterTableRequest, request)
        identifier = table_id(request)
        mode = parse_choice("mode", request.mode, ("create", "overwrite"))
        check_properties(request.properties)
        require_unscoped()
        location = self.services.storage_root.check_location(request.location)
        if not self.services.storage_root.is_root_table(identifier, location):
            self.new_tables.discover(identifier)
        self.services.removal.wait_until_free(location)
        folder = self.services.storage_root.folder(location)
        new = Table(
            id=new_id(),
            namespace=identifier[:-1],
            name=identifier[-1],
            location=location,
            origin=REGISTERED,
            managed=self.services.settings.manage_registered_tables,
            declared=False,
            properties=dict(request.properties or {}),
        )
        found = self.new_tables.versions_on_storage(new)
        if not found:
            raise InvalidInputError("There is no Lance table at that location; to create one there, declare it.")
        self.services.ownership.require_table(new)

        replaced = self.resolver.find(identifier) if mode == "overwrite" else None

        def work(connection: Connection) -> str:
            existing = tables.find(connection, identifier)
            if existing is not None and mode == "overwrite":
                tables.deregister(connection, existing.id)
                self._check_deregister(connection, existing)
            self.new_tables.insert(connection, new)
            if new.managed:
                for version in found:
                    versions.insert(connection, version)
            return record_transaction(connection, "RegisterTable", identifier)

        with self.marked_deregistered([] if replaced is None else [replaced]):
            transaction_id = self.new_tables.write(identifier, work)
        folder.remove(DEREGISTERED_MARKER)
        # The location as the client wrote it; DescribeTable returns the complete one.
        return ln.RegisterTableResponse(
            transaction_id=transaction_id, location=request.location, properties=new.properties
        )

    def rename_table(self, request: ln.RenameTableRequest) -> ln.RenameTableResponse:
        """Give a table another name, also in another namespace, without moving its files."""
        request = request_as(ln.RenameTableRequest, request)
        identifier = table_id(request)
        namespace = identifier[:-1] if request.new_namespace_id is None else check_identifier(request.new_namespace_id)
        renamed = check_identifier((*namespace, request.new_table_name))
        table = self.resolver.table(identifier)
        self.new_tables.discover(renamed)

        def work(connection: Connection) -> str:
            if not tables.rename(connection, table.id, renamed):
                raise TableAlreadyExistsError(f"Table {format_identifier(renamed)!r} already exists.")
            if tables.find_by_id(connection, table.id) is None:
                raise missing_table(connection, identifier)
            return record_transaction(connection, "RenameTable", identifier)

        return ln.RenameTableResponse(transaction_id=self.new_tables.write(renamed, work))

    def drop_table(self, request: ln.DropTableRequest) -> ln.DropTableResponse:
        """Drop a table and delete its data; with cascade, also the views over it."""
        request = request_as(ln.DropTableRequest, request)
        identifier = table_id(request)
        table = self.resolver.table(identifier)
        self.services.ownership.require_table(table)
        cascade = wants_cascade(request)
        dropped = Dropped()

        def work(connection: Connection) -> str:
            dropped.clear()
            self.dependents.drop(connection, [table], dropped)
            if table not in dropped.tables:
                raise missing_table(connection, identifier)
            self.dependents.drop_views_over(connection, _named(table), dropped, cascade=cascade)
            return record_transaction(connection, "DropTable", identifier)

        try:
            transaction_id = self.services.database.write(work)
        except ForeignKeyError:  # a concurrent clone, which the second attempt sees
            transaction_id = self.services.database.write(work)
        self.dependents.clean_up(dropped)
        return ln.DropTableResponse(
            transaction_id=transaction_id,
            id=list(identifier),
            location=table.location,
            properties=table.properties,
        )

    def deregister_table(self, request: ln.DeregisterTableRequest) -> ln.DeregisterTableResponse:
        """Remove a table from the catalog and keep its files."""
        request = request_as(ln.DeregisterTableRequest, request)
        identifier = table_id(request)
        table = self.resolver.table(identifier)
        with self.marked_deregistered([table]):
            transaction_id = self.services.database.write(lambda connection: self.deregister(connection, table))
        self.services.ownership.release_table(table)
        return ln.DeregisterTableResponse(
            transaction_id=transaction_id,
            id=list(identifier),
            location=table.location,
            properties=table.properties,
        )

    @contextmanager
    def marked_deregistered(self, deregistered: Sequence[Table]) -> Iterator[None]:
        """Mark the folders of tables that are deregistered inside the block, so that discovery skips them.

        The mark comes before the change of the catalog: otherwise discovery could bring a table back in between.
        """
        for table in deregistered:
            self.services.database.read(partial(self._check_deregister, table=table))
        marked = [table for table in deregistered if self._mark_deregistered(table)]
        try:
            yield
        except BaseException:
            for table in marked:
                if self.resolver.find_by_id(table.id) is not None:
                    self.resolver.folder(table).remove(DEREGISTERED_MARKER)
            raise

    def _mark_deregistered(self, table: Table) -> bool:
        storage_root = self.services.storage_root
        folder = storage_root.folder(table.location)
        is_discoverable = storage_root.is_shown_by_root(table.location) and not folder.is_empty()
        return is_discoverable and folder.put_if_absent(DEREGISTERED_MARKER, b"") is not None

    def deregister(self, connection: Connection, table: Table) -> str:
        """Remove a table's record inside a transaction, and return the transaction's id."""
        if not tables.deregister(connection, table.id):
            raise missing_table(connection, table.identifier)
        self._check_deregister(connection, table)  # last, as in a drop: a new view locks its sources
        return record_transaction(connection, "DeregisterTable", table.identifier)

    def _check_deregister(self, connection: Connection, table: Table) -> None:
        """Refuse to deregister a table that views read, or a view: its files do not hold its definition."""
        refuse_view_write(table, "it cannot be deregistered")
        self.dependents.check(
            _named(table), self.dependents.views_over(connection, [table]), current_caller().principal
        )

    def _declare(
        self, identifier: Identifier, location: str | None, properties: Mapping[str, str] | None
    ) -> tuple[Table, str]:
        table = self.new_tables.plan(identifier, location, properties)
        try:
            return table, self.new_tables.write(identifier, partial(self.new_tables.declare, table=table))
        except LocationInUseError:
            table = self.new_tables.plan(identifier, location, properties)
            return table, self.new_tables.write(identifier, partial(self.new_tables.declare, table=table))


def _named(table: Table) -> str:
    return f"Table {format_identifier(table.identifier)!r}"
