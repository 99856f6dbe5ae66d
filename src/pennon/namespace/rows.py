"""Operations that change rows: create with data, insert, upsert, update, delete."""

from __future__ import annotations

import re
import time
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lance_namespace import (
    CreateTableRequest,
    CreateTableResponse,
    DeleteFromTableRequest,
    DeleteFromTableResponse,
    InsertIntoTableRequest,
    InsertIntoTableResponse,
    MergeInsertIntoTableRequest,
    MergeInsertIntoTableResponse,
    UpdateTableRequest,
    UpdateTableResponse,
)
from lance_namespace.errors import ConcurrentModificationError, InvalidInputError, TableAlreadyExistsError

from pennon.catalog import StillReferencedError, namespaces, tables
from pennon.commits.view_protection import refuse_view_write
from pennon.core.identifiers import format_identifier
from pennon.namespace.operations import parse_choice, request_as, table_id, transaction_recorder
from pennon.namespace.tables import TableOperations
from pennon.storage.layout import check_branch
from pennon.tables.arrow_stream import ArrowSource, source_of
from pennon.tables.field_paths import find_field
from pennon.tables.query.expressions import check_expression, check_written_size
from pennon.tables.schema_comparison import require_same_schema
from pennon.tables.upsert import Merge, Spool

if TYPE_CHECKING:
    from pennon.catalog import Connection
    from pennon.catalog.tables import Table
    from pennon.core.identifiers import Identifier
    from pennon.tables.writer import Note, Written

_DURATION = re.compile(r"(?P<value>[0-9]{1,9}(?:\.[0-9]{1,9})?)\s*(?P<unit>ms|s|m|h)?")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, None: 1.0}


class UpdatedResponse(UpdateTableResponse):
    """An update's answer, with the row count also by the name LanceDB's own client reads."""

    rows_updated: int | None = None


class DeletedResponse(DeleteFromTableResponse):
    """A delete's answer, with the row count that LanceDB's own client reads."""

    num_deleted_rows: int | None = None


class RowOperations(TableOperations):
    """Create tables with data and change their rows."""

    def create_table(self, request: CreateTableRequest, request_data: bytes) -> CreateTableResponse:
        """Create a table from an Arrow stream."""
        return self.create_table_from(request, source_of(request_data))

    def create_table_from(
        self, request: CreateTableRequest, source: ArrowSource, location: str | None = None
    ) -> CreateTableResponse:
        """Create a table from a source; it appears with all its rows, or not at all."""
        request = request_as(CreateTableRequest, request)
        identifier = table_id(request)
        mode = parse_choice("mode", request.mode, ("create", "exist_ok", "overwrite"))
        existing = self._find(identifier)
        if existing is not None and mode != "exist_ok":
            self._refuse_to_move(existing, location)
        if existing is not None and not existing.declared:
            return self._create_again(existing, mode, request, source)
        again = mode == "exist_ok" or (mode == "overwrite" and source.is_small)
        try:
            return self._create_new(identifier, request, source, location, existing)
        except TableAlreadyExistsError as error:
            if mode == "create":
                raise
            if not again:
                raise _overtaken(identifier) from error
            return self._create_again(self._table(identifier), mode, request, source)

    def insert_into_table(self, request: InsertIntoTableRequest, request_data: bytes) -> InsertIntoTableResponse:
        """Append the rows of an Arrow stream, or replace all rows by them."""
        return self.insert_from(request, source_of(request_data, self.services.settings.group_append_bytes))

    def insert_from(self, request: InsertIntoTableRequest, source: ArrowSource) -> InsertIntoTableResponse:
        """Append the rows of a source, or replace all rows by them."""
        request = request_as(InsertIntoTableRequest, request)
        mode = parse_choice("mode", request.mode, ("append", "overwrite"))
        table = self._writable(table_id(request))
        branch = check_branch(request.branch)
        written = self._write_first(table, branch, source, "InsertIntoTable")
        if written is None:
            if mode == "overwrite":
                self.refuse_other_columns(table, branch, source.schema)
            write = self.services.writer.append if mode == "append" else self.services.writer.overwrite
            written = write(table, branch, source, transaction_recorder("InsertIntoTable", table))
        return InsertIntoTableResponse(
            transaction_id=written.transaction_id, version=written.version, num_inserted_rows=written.rows
        )

    def merge_insert_into_table(
        self, request: MergeInsertIntoTableRequest, request_data: bytes
    ) -> MergeInsertIntoTableResponse:
        """Upsert the rows of an Arrow stream."""
        return self.merge_from(request, source_of(request_data))

    def merge_from(self, request: MergeInsertIntoTableRequest, source: ArrowSource) -> MergeInsertIntoTableResponse:
        """Upsert the rows of a source: writers of the same keys take turns, also across processes."""
        request = request_as(MergeInsertIntoTableRequest, request)
        table = self._writable(table_id(request))
        branch = check_branch(request.branch)
        limit = _seconds(request.timeout)
        deadline = None if limit is None else time.monotonic() + limit
        merge = Merge(request, source.schema, self.services.sql_limits)
        first = self._write_first(table, branch, source, "MergeInsertIntoTable")
        if first is not None:
            return _merged(first, {"num_inserted_rows": first.rows})
        self.services.writer.fit(table, branch, source)
        with Spool(source) as spool:

            def work(dataset: Any) -> Any:
                if deadline is not None and time.monotonic() >= deadline:
                    raise InvalidInputError("The merge insert timed out before it could start.")
                left = None if deadline is None else deadline - time.monotonic()
                return merge.builder(dataset, spool, left).execute(spool.read())

            note = transaction_recorder("MergeInsertIntoTable", table)
            result, written = self.services.writer.change(table, branch, note, work, alone=True)
        return _merged(written, result)

    def update_table(self, request: UpdateTableRequest) -> UpdateTableResponse:
        """Set columns to the values of SQL expressions where a predicate holds."""
        request = request_as(UpdateTableRequest, request)
        table = self._writable(table_id(request))
        if not request.updates or any(len(pair) != 2 for pair in request.updates):
            raise InvalidInputError("updates must be pairs of a column and an SQL expression.")
        limits = self.services.sql_limits
        updates = {column: check_expression(expression, limits) for column, expression in request.updates}
        if len(updates) < len(request.updates):
            raise InvalidInputError("updates names a column twice.")
        predicate = check_expression(request.predicate or "", limits) or None

        def work(dataset: Any) -> Any:
            for path in updates:
                find_field(dataset.schema, path)
            check_written_size(dataset, updates.values(), predicate, limits)
            return dataset.update(updates, where=predicate)

        note = _noting_properties("UpdateTable", table, request.properties)
        result, written = self.services.writer.change(table, check_branch(request.branch), note, work)
        count = result["num_rows_updated"]
        return UpdatedResponse(
            transaction_id=written.transaction_id,
            version=written.version,
            updated_rows=count,
            rows_updated=count,
            properties=table.properties if request.properties is None else request.properties,
        )

    def delete_from_table(self, request: DeleteFromTableRequest) -> DeleteFromTableResponse:
        """Delete the rows where a predicate holds."""
        request = request_as(DeleteFromTableRequest, request)
        table = self._writable(table_id(request))
        if not request.predicate.strip():
            raise InvalidInputError("The predicate is empty; to delete all rows, say 'true'.")
        predicate = check_expression(request.predicate, self.services.sql_limits)
        result, written = self.services.writer.change(
            table,
            check_branch(request.branch),
            transaction_recorder("DeleteFromTable", table),
            lambda dataset: dataset.delete(predicate),
        )
        return DeletedResponse(
            transaction_id=written.transaction_id,
            version=written.version,
            num_deleted_rows=(result or {}).get("num_deleted_rows"),
        )

    def _refuse_to_move(self, table: Table, location: str | None) -> None:
        """Refuse another place for a table that has one: its versions are there, or are about to be."""
        if location is not None and self.services.storage_root.check_location(location) != table.location:
            raise InvalidInputError(
                f"Table {format_identifier(table.identifier)!r} has its location; only a new table can be given one."
            )

    def _write_first(self, table: Table, branch: str, source: ArrowSource, operation: str) -> Written | None:
        """Make a declared table of its first rows; none where the table has some, also those of a faster caller."""
        if branch or not self._is_only_declared(table):
            return None
        again = source.is_small
        try:
            with self._not_found_if_dropped(table):
                return self.services.writer.create(table, source, transaction_recorder(operation, table))
        except TableAlreadyExistsError as error:
            if not again:
                raise _overtaken(table.identifier) from error
            return None

    def _create_again(
        self, table: Table, mode: str, request: CreateTableRequest, source: ArrowSource
    ) -> CreateTableResponse:
        """Answer a create for a table that exists: refuse, keep it, or give it new content as a new version."""
        if mode == "create":
            raise TableAlreadyExistsError(f"Table {format_identifier(table.identifier)!r} already exists.")
        if mode == "exist_ok":
            dataset = self.services.datasets.at(table, "", None)
            source.fit(dataset.schema)
            require_same_schema(format_identifier(table.identifier), dataset.schema, source.schema)
            return self._created(table, dataset.version, None)
        refuse_view_write(table)
        self.refuse_other_columns(table, "", source.schema)
        note = _noting_properties("CreateTable", table, request.properties)
        written = self.services.writer.overwrite(table, "", source, note)
        return self._created(_with_properties(table, request.properties), written.version, written.transaction_id)

    def _create_new(
        self,
        identifier: Identifier,
        request: CreateTableRequest,
        source: ArrowSource,
        location: str | None,
        declared: Table | None,
    ) -> CreateTableResponse:
        if not self._read(lambda connection: namespaces.exists(connection, identifier[:-1])):
            raise self._missing_namespace(identifier[:-1])
        if declared is not None:
            table = _with_properties(declared, request.properties)
            note = _noting_properties("CreateTable", table, request.properties)
        else:
            table = self.plan_table(identifier, location, request.properties)
            noted = transaction_recorder("CreateTable", table)

            def note(connection: Connection) -> str:
                self._insert(connection, table)
                return noted(connection)

        try:
            with self._not_found_if_dropped(table) if declared is not None else nullcontext():
                written = self.services.writer.create(table, source, note)
        except StillReferencedError:
            raise self._missing_namespace(identifier[:-1]) from None
        return self._created(table, written.version, written.transaction_id)

    def _created(self, table: Table, version: int, transaction_id: str | None) -> CreateTableResponse:
        return CreateTableResponse(
            transaction_id=transaction_id,
            location=table.location,
            version=version,
            storage_options=self.services.storage_root.client_options(vend=None),
            properties=table.properties,
        )


def _overtaken(identifier: Identifier) -> ConcurrentModificationError:
    """Return the error for rows that came too late to be a table's first ones, and cannot be read again."""
    name = format_identifier(identifier)
    return ConcurrentModificationError(f"Another caller wrote the first rows of table {name!r} meanwhile; try again.")


def _with_properties(table: Table, properties: dict[str, str] | None) -> Table:
    return table if properties is None else replace(table, properties=properties)


def _noting_properties(operation: str, table: Table, properties: dict[str, str] | None) -> Note:
    """Return what records an operation together with the properties that it gives a table, if any."""
    note = transaction_recorder(operation, table)

    def work(connection: Connection) -> str:
        if properties is not None:
            tables.set_properties(connection, table.id, properties)
        return note(connection)

    return work


def _merged(written: Written, counts: dict[str, int]) -> MergeInsertIntoTableResponse:
    return MergeInsertIntoTableResponse(
        transaction_id=written.transaction_id,
        version=written.version,
        num_inserted_rows=counts.get("num_inserted_rows", 0),
        num_updated_rows=counts.get("num_updated_rows", 0),
        num_deleted_rows=counts.get("num_deleted_rows", 0),
    )


def _seconds(text: str | None) -> float | None:
    if not text:
        return None
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise InvalidInputError(f"timeout is {text!r}; write it as '30s' or '5m'.")
    return float(match["value"]) * _SECONDS[match["unit"]]
