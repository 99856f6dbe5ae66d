"""Clones of tables, as LanceDB's remote client asks for them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import unquote

from lance_namespace.errors import InvalidInputError, TableNotFoundError

from pennon.catalog import CommitOutcomeUnknownError, clones, tables, versions
from pennon.core.caller import current_caller
from pennon.namespace.models.extensions import CloneTableResponse
from pennon.namespace.new_tables import NewTables
from pennon.namespace.resolver import TableResolver
from pennon.namespace.transaction_records import transaction_recorder
from pennon.services import Services
from pennon.storage.links import link
from pennon.tables.lance_errors import typed_errors
from pennon.tables.snapshots import bases_of, check_copy
from pennon.views import pins

if TYPE_CHECKING:
    from pennon.catalog import Connection
    from pennon.catalog.tables import Table
    from pennon.core.identifiers import Identifier


@dataclass(frozen=True)
class CloneOperations:
    """Create tables from versions of other tables."""

    services: Services
    resolver: TableResolver
    new_tables: NewTables

    def clone_table(
        self, identifier: Identifier, source: str, version: int | None, tag: str | None, *, shallow: bool
    ) -> CloneTableResponse:
        """Create a table from a version of another one, with a copy of its files or without."""
        origin = self._cloneable(source)
        if version is not None and tag is not None:
            raise InvalidInputError("Name source_version or source_tag, not both.")
        try:
            return self._clone(identifier, origin, version, tag, shallow=shallow)
        except Exception as error:
            if self.resolver.find_by_id(origin.id) is None:
                raise TableNotFoundError("The table at source_location was dropped.") from error
            raise

    def _clone(
        self, identifier: Identifier, origin: Table, version: int | None, tag: str | None, *, shallow: bool
    ) -> CloneTableResponse:
        branch = ""
        if tag is not None:
            found = self.resolver.tag(origin, tag)
            branch, version = found.branch, found.version
        dataset = self.services.datasets.reopen(origin, branch, version)
        table = self.new_tables.plan(identifier, None, None)
        own = self.services.storage_root.unique_location(identifier, table.id)
        if self.services.storage_root.link_path(own) is not None:
            # Lance writes the files before the table is recorded: at the location of its name, discovery would find it.
            table = replace(table, location=own)
        reference = (branch or None, dataset.version)
        options = self.services.storage_root.options or None
        record = transaction_recorder("CloneTable", table)

        def work(connection: Connection) -> str:
            self.new_tables.insert(connection, table)
            if shallow:
                clones.insert(connection, table.id, origin.id)
                clones.insert_bases(connection, table.id, {origin.location, *bases_of(dataset)})
            for stored in self.new_tables.versions_on_storage(table):
                versions.insert(connection, stored)
            tables.mark_written(connection, table.id)
            return record(connection)

        origin_folder, is_copied = self.resolver.folder(origin), False
        try:
            if shallow:
                pins.pin(origin_folder, table.id, dataset.version, branch)
            with typed_errors():
                copy = dataset.shallow_clone if shallow else dataset.deep_clone
                copied = copy(table.location, reference, storage_options=options)
            is_copied = True
            check_copy(copied, dataset)
            transaction_id = self.new_tables.write(identifier, work)
        except CommitOutcomeUnknownError:
            raise  # the table may exist, and need its files
        except BaseException:
            if is_copied or table.location == own:  # otherwise the files may be those of another table
                self.resolver.folder(table).remove_all()
            pins.release(origin_folder, table.id)
            raise
        link(self.services.database, self.services.storage_root, table)
        return CloneTableResponse(transaction_id=transaction_id, location=table.location)

    def _cloneable(self, source: str) -> Table:
        """Return the table at a location if the caller may see it."""
        is_uri = source.startswith("file://")
        location = (unquote(source.removeprefix("file://")) if is_uri else source).rstrip("/")
        found = self.services.database.read(lambda connection: tables.find_by_location(connection, location))
        if found is None or current_caller().principal.role_on(found.namespace) is None:
            raise TableNotFoundError("There is no table at source_location.")
        return found
