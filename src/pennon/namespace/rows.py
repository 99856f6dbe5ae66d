"""Operations that write rows: create with data, insert, upsert, update, delete."""

from __future__ import annotations

import re
import time
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import lance_namespace as ln
from lance_namespace.errors import ConcurrentModificationError, InvalidInputError, TableAlreadyExistsError

from pennon.catalog import ForeignKeyError, namespaces, tables
from pennon.commits.view_protection import refuse_view_write
from pennon.core.identifiers import format_identifier
from pennon.maintenance.policy import check_properties
from pennon.namespace.dependents import Dependents
from pennon.namespace.new_tables import NewTables
from pennon.namespace.requests import parse_choice, request_as, table_id
from pennon.namespace.resolver import TableResolver
from pennon.namespace.transaction_records import transaction_recorder
from pennon.services import Services
from pennon.storage.layout import check_branch
from pennon.tables.arrow_stream import ArrowSource, source_of
from pennon.tables.field_paths import find_field
from pennon.tables.query.column_names import check_long_names
from pennon.tables.query.expressions import check_expression, check_written_size
from pennon.tables.query.row_sizes import delete_rows, update_rows
from pennon.tables.schema_checks import require_same_schema
from pennon.tables.upsert import Merge, Spool

if TYPE_CHECKING:
    import lance
    from lance.dataset import DeleteResult, ExecuteResult, UpdateResult

    from pennon.catalog import Connection
    from pennon.catalog.tables import Table
    from pennon.core.identifiers import Identifier
    from pennon.tables.writer import OnCommit, WriteResult

_DURATION = re.compile(r"(?P<value>[0-9]{1,9}(?:\.[0-9]{1,9})?)\s*(?P<unit>ms|s|m|h)?")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, None: 1.0}


class UpdatedResponse(ln.UpdateTableResponse):
    """The response to an update, with the row count also in the field that LanceDB's remote client reads."""

    rows_updated: int | None = None


class DeletedResponse(ln.DeleteFromTableResponse):
    """The response to a delete, with the row count that LanceDB's remote client reads."""

    num_deleted_rows: int | None = None


@dataclass(frozen=True)
class RowOperations:
    """Create tables with data, and write rows."""

    services: Services
    resolver: TableResolver
    dependents: Dependents
    new_tables: NewTables

    def create_table(self, request: ln.CreateTableRequest, request_data: bytes) -> ln.CreateTableResponse:
        """Create a table from an Arrow stream."""
        return self.create_table_from(request, source_of(request_data))

    def create_table_from(
        self, request: ln.CreateTableRequest, source: ArrowSource, location: str | None = None
    ) -> ln.CreateTableResponse:
        """Create a table with the rows of a source, atomically."""
        request = request_as(ln.CreateTableRequest, request)
        identifier = table_id(request)
        mode = parse_choice("mode", request.mode, ("create", "exist_ok", "overwrite"))
        existing = self.resolver.find(identifier)
        if existing is not None and mode != "exist_ok":
            self._refuse_new_location(existing, location)
        if existing is not None and not existing.declared:
            return self._create_existing(existing, mode, request, source)
        can_retry = mode == "exist_ok" or (mode == "overwrite" and source.is_small)
        try:
            return self._create_new(identifier, request, source, location, existing)
        except TableAlreadyExistsError as error:
            if mode == "create":
                raise
            if not can_retry:
                raise _concurrent_create(identifier) from error
            return self._create_existing(self.resolver.table(identifier), mode, request, source)

    def insert_into_table(self, request: ln.InsertIntoTableRequest, request_data: bytes) -> ln.InsertIntoTableResponse:
        """Append the rows of an Arrow stream, or replace all rows."""
        return self.insert_from(request, source_of(request_data, self.services.settings.max_grouped_append_bytes))

    def insert_from(self, request: ln.InsertIntoTableRequest, source: ArrowSource) -> ln.InsertIntoTableResponse:
        """Append the rows of a source, or replace all rows."""
        request = request_as(ln.InsertIntoTableRequest, request)
        mode = parse_choice("mode", request.mode, ("append", "overwrite"))
        table = self.resolver.writable_table(table_id(request))
        branch = check_branch(request.branch)
        written = self._write_first(table, branch, source, "InsertIntoTable")
        if written is None:
            if mode == "overwrite":
                self.dependents.check_replacement(table, branch, source.schema)
            write = self.services.writer.append if mode == "append" else self.services.writer.overwrite
            written = write(table, branch, source, transaction_recorder("InsertIntoTable", table))
        return ln.InsertIntoTableResponse(
            transaction_id=written.transaction_id, version=written.version, num_inserted_rows=written.rows
        )

    def merge_insert_into_table(
        self, request: ln.MergeInsertIntoTableRequest, request_data: bytes
    ) -> ln.MergeInsertIntoTableResponse:
        """Upsert the rows of an Arrow stream."""
        return self.merge_from(request, source_of(request_data))

    def merge_from(
        self, request: ln.MergeInsertIntoTableRequest, source: ArrowSource
    ) -> ln.MergeInsertIntoTableResponse:
        """Upsert the rows of a source. Concurrent upserts of a table run one after the other, also across processes."""
        request = request_as(ln.MergeInsertIntoTableRequest, request)
        table = self.resolver.writable_table(table_id(request))
        branch = check_branch(request.branch)
        timeout = _parse_duration(request.timeout)
        deadline = None if timeout is None else time.monotonic() + timeout
        merge = Merge(request, source.schema, self.services.sql_limits)
        first = self._write_first(table, branch, source, "MergeInsertIntoTable")
        if first is not None:
            return _merge_response(
                first, {"num_inserted_rows": first.rows, "num_updated_rows": 0, "num_deleted_rows": 0}
            )
        self.services.writer.adapt_source(table, branch, source)
        with Spool(source) as spool:

            def work(dataset: lance.LanceDataset) -> ExecuteResult:
                if deadline is not None and time.monotonic() >= deadline:
                    raise InvalidInputError("The merge insert timed out before it could start.")
                remaining = None if deadline is None else deadline - time.monotonic()
                counts: ExecuteResult = merge.builder(dataset, spool, remaining).execute(spool.read())
                return counts

            on_commit = transaction_recorder("MergeInsertIntoTable", table)
            result, written = self.services.writer.change(table, branch, on_commit, work, exclusive=True)
        return _merge_response(written, result)

    def update_table(self, request: ln.UpdateTableRequest) -> ln.UpdateTableResponse:
        """Set columns to SQL expressions in the rows that match a predicate."""
        request = request_as(ln.UpdateTableRequest, request)
        table = self.resolver.writable_table(table_id(request))
        if not request.updates or any(len(pair) != 2 for pair in request.updates):
            raise InvalidInputError("updates must be pairs of a column and an SQL expression.")
        limits = self.services.sql_limits
        updates = {column: check_expression(expression, limits) for column, expression in request.updates}
        if len(updates) < len(request.updates):
            raise InvalidInputError("updates names a column twice.")
        predicate = check_expression(request.predicate or "", limits) or None

        def work(dataset: lance.LanceDataset) -> UpdateResult:
            for path in updates:
                find_field(dataset.schema, path)
            check_long_names(dataset, predicate, *updates.values())
            check_written_size(dataset, updates.values(), predicate, limits)
            return update_rows(dataset, updates, predicate)

        on_commit = _property_recorder("UpdateTable", table, request.properties)
        result, written = self.services.writer.change(table, check_branch(request.branch), on_commit, work)
        count = result["num_rows_updated"]
        return UpdatedResponse(
            transaction_id=written.transaction_id,
            version=written.version,
            updated_rows=count,
            rows_updated=count,
            properties=table.properties if request.properties is None else request.properties,
        )

    def delete_from_table(self, request: ln.DeleteFromTableRequest) -> ln.DeleteFromTableResponse:
        """Delete the rows that match a predicate."""
        request = request_as(ln.DeleteFromTableRequest, request)
        table = self.resolver.writable_table(table_id(request))
        if not request.predicate.strip():
            raise InvalidInputError("The predicate is empty; to delete all rows, send 'true'.")
        predicate = check_expression(request.predicate, self.services.sql_limits)

        def work(dataset: lance.LanceDataset) -> DeleteResult:
            check_long_names(dataset, predicate)
            return delete_rows(dataset, predicate)

        result, written = self.services.writer.change(
            table,
            check_branch(request.branch),
            transaction_recorder("DeleteFromTable", table),
            work,
        )
        return DeletedResponse(
            transaction_id=written.transaction_id,
            version=written.version,
            num_deleted_rows=result["num_deleted_rows"],
        )

    def _refuse_new_location(self, table: Table, location: str | None) -> None:
        """Refuse another location for a table that exists."""
        if location is not None and self.services.storage_root.check_location(location) != table.location:
            raise InvalidInputError(
                f"Table {format_identifier(table.identifier)!r} exists at another location; leave the location out."
            )

    def _write_first(self, table: Table, branch: str, source: ArrowSource, operation: str) -> WriteResult | None:
        """Write the first version of a declared table; None if it has one, also if another caller was faster."""
        if branch or not self.resolver.is_only_declared(table):
            return None
        can_retry = source.is_small
        try:
            with self.resolver.not_found_if_dropped(table):
                return self.services.writer.create(table, source, transaction_recorder(operation, table))
        except TableAlreadyExistsError as error:
            if not can_retry:
                raise _concurrent_create(table.identifier) from error
            return None

    def _create_existing(
        self, table: Table, mode: str, request: ln.CreateTableRequest, source: ArrowSource
    ) -> ln.CreateTableResponse:
        """Handle a create for a table that exists: refuse, keep it, or overwrite it with a new version."""
        if mode == "create":
            raise TableAlreadyExistsError(f"Table {format_identifier(table.identifier)!r} already exists.")
        if mode == "exist_ok":
            dataset = self.services.datasets.at(table, "", None)
            source.adapt_to(dataset.schema)
            require_same_schema(format_identifier(table.identifier), dataset.schema, source.schema)
            return self._created(table, dataset.version, None)
        refuse_view_write(table)
        self.dependents.check_replacement(table, "", source.schema)
        on_commit = _property_recorder("CreateTable", table, request.properties)
        written = self.services.writer.overwrite(table, "", source, on_commit)
        return self._created(_with_properties(table, request.properties), written.version, written.transaction_id)

    def _create_new(
        self,
        identifier: Identifier,
        request: ln.CreateTableRequest,
        source: ArrowSource,
        location: str | None,
        declared: Table | None,
    ) -> ln.CreateTableResponse:
        if not self.services.database.read(lambda connection: namespaces.exists(connection, identifier[:-1])):
            raise self.resolver.missing_namespace(identifier[:-1])
        if declared is not None:
            table = _with_properties(declared, request.properties)
            on_commit = _property_recorder("CreateTable", table, request.properties)
        else:
            table = self.new_tables.plan(identifier, location, request.properties)
            record = transaction_recorder("CreateTable", table)

            def on_commit(connection: Connection) -> str:
                self.new_tables.insert(connection, table)
                return record(connection)

        try:
            with self.resolver.not_found_if_dropped(table) if declared is not None else nullcontext():
                written = self.services.writer.create(table, source, on_commit)
        except ForeignKeyError:
            raise self.resolver.missing_namespace(identifier[:-1]) from None
        return self._created(table, written.version, written.transaction_id)

    def _created(self, table: Table, version: int, transaction_id: str | None) -> ln.CreateTableResponse:
        return ln.CreateTableResponse(
            transaction_id=transaction_id,
            location=table.location,
            version=version,
            storage_options=self.services.storage_root.client_options(vend=None),
            properties=table.properties,
        )


def _concurrent_create(identifier: Identifier) -> ConcurrentModificationError:
    """Return the error for a table that another caller created first, if the rows cannot be read again."""
    name = format_identifier(identifier)
    return ConcurrentModificationError(f"Another caller wrote the first rows of table {name!r} meanwhile; try again.")


def _with_properties(table: Table, properties: dict[str, str] | None) -> Table:
    return table if properties is None else replace(table, properties=properties)


def _property_recorder(operation: str, table: Table, properties: dict[str, str] | None) -> OnCommit:
    """Return a function that records an operation and sets the table's properties, if any are given."""
    check_properties(properties)
    record = transaction_recorder(operation, table)

    def work(connection: Connection) -> str:
        if properties is not None:
            tables.set_properties(connection, table.id, properties)
        return record(connection)

    return work


def _merge_response(written: WriteResult, counts: ExecuteResult) -> ln.MergeInsertIntoTableResponse:
    return ln.MergeInsertIntoTableResponse(
        transaction_id=written.transaction_id,
        version=written.version,
        num_inserted_rows=counts["num_inserted_rows"],
        num_updated_rows=counts["num_updated_rows"],
        num_deleted_rows=counts["num_deleted_rows"],
    )


def _parse_duration(text: str | None) -> float | None:
    if not text:
        return None
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise InvalidInputError(f"timeout is {text!r}; write it as '30s' or '5m'.")
    return float(match["value"]) * _SECONDS[match["unit"]]
