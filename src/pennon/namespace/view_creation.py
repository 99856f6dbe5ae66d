"""Creation of materialized views: the query is parsed, checked and recorded together with an empty table."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from lance_namespace import CreateMaterializedViewRequest, CreateMaterializedViewResponse
from lance_namespace.errors import (
    InvalidInputError,
    LanceNamespaceError,
    TableAlreadyExistsError,
    TableNotFoundError,
)

from pennon.catalog import ForeignKeyError, namespaces, tables, views
from pennon.catalog.views import View
from pennon.columns.declarations import function_reference
from pennon.core.caller import Caller, current_caller
from pennon.core.identifiers import ROOT, Identifier, check_identifier, format_identifier, is_within
from pennon.core.job_model import JobKind, RefreshSpec
from pennon.namespace.dependents import Dependents
from pennon.namespace.functions import check_manifest
from pennon.namespace.models.views import CreateViewRequest
from pennon.namespace.new_tables import NewTables
from pennon.namespace.requests import parse_choice, request_as, table_id
from pennon.namespace.resolver import TableResolver, missing_table
from pennon.namespace.transaction_records import record_transaction
from pennon.services import Services
from pennon.tables.arrow_stream import ArrowSource, source_of
from pennon.views.compilation import CompiledView, OpenedTable, columns_by_table, compile_query
from pennon.views.function_views import compile_function_view
from pennon.views.model.definition import Kind
from pennon.views.model.query import StructuredQuery, TableUse
from pennon.views.model.schemas import decode_schema
from pennon.views.query_parser import parse_request
from pennon.views.schedules import check_schedule
from pennon.views.sql.simple_select import parse_simple_select
from pennon.views.sql.spark_sql import SparkQuery
from pennon.views.sql.text import without_functions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pennon.catalog import Connection
    from pennon.catalog.tables import Table

#: How a view handles new columns of its sources; the first is the default.
SCHEMA_CHANGES = ("ignore_new", "fail", "rebuild")
_NOT_STORED = frozenset({"id", "identity", "context", "udtf_spec"})


@dataclass(frozen=True)
class ViewCreation:
    """Creates views."""

    services: Services
    resolver: TableResolver
    dependents: Dependents
    new_tables: NewTables

    def create_materialized_view(
        self,
        view_request: CreateMaterializedViewRequest | CreateViewRequest | Mapping[str, object],
        database: Identifier = ROOT,
    ) -> CreateMaterializedViewResponse:
        """Create a view, by default empty. Tables that its query names are first looked up in the database."""
        request = request_as(CreateViewRequest, view_request)
        identifier = table_id(request)
        if not self.services.database.read(lambda connection: namespaces.exists(connection, identifier[:-1])):
            raise self.resolver.missing_namespace(identifier[:-1])
        if self.resolver.find(identifier) is not None:
            raise TableAlreadyExistsError(f"Table {format_identifier(identifier)!r} already exists.")
        compiled = self._compile(request, identifier, database)
        table = self.new_tables.plan(identifier, None, None)
        view = View(
            table_id=table.id,
            kind=request.kind,
            definition=compiled.definition.to_json(),
            request=_stored_request(request),
            auto_refresh=bool(request.auto_refresh),
            schedule=check_schedule(request.schedule) if request.schedule else None,
            on_schema_change=parse_choice("on_schema_change", request.on_schema_change, SCHEMA_CHANGES),
        )
        return self._create(table, view, compiled, fill=request.with_no_data is False)

    def submit_refresh(
        self, connection: Connection, view: Table, spec: RefreshSpec, caller: Caller, priority: int = 0
    ) -> str:
        """Submit a refresh inside a transaction, and return the job's id."""
        job = self.services.queue.submit(
            connection,
            JobKind.REFRESH,
            view,
            spec,
            priority=priority,
            submitted_by=caller.principal.name,
            context=caller.context,
        )
        return job.id

    def _create(
        self, table: Table, view: View, compiled: CompiledView, *, fill: bool
    ) -> CreateMaterializedViewResponse:
        """Create the empty table, and record the view in the transaction of its first version."""
        caller = current_caller()
        jobs: list[str] = []

        def on_commit(connection: Connection) -> str:
            sources = columns_by_table(compiled.definition)
            for source in compiled.definition.sources:
                if not tables.lock(connection, source.table_id):
                    raise missing_table(connection, source.identifier)
            self.new_tables.insert(connection, table)
            views.insert(connection, view, sources)
            if fill:
                jobs[:] = [self.submit_refresh(connection, table, {}, caller)]
            return record_transaction(connection, "CreateMaterializedView", table.identifier, caller)

        folder = self.resolver.folder(table)
        for content in compiled.functions:
            folder.put_if_absent(function_reference(content), content)
        try:
            self.dependents.pin_fixed_versions(table.id, compiled.definition)
            written = self.services.writer.create(table, _empty_source(compiled.schema), on_commit)
        except (LanceNamespaceError, ForeignKeyError) as error:
            owner = self.services.database.read(lambda connection: tables.find_by_location(connection, table.location))
            if owner is None or owner.id != table.id:
                self.dependents.release_pins(table.id, compiled.definition)
            if owner is None:  # otherwise they may be the functions of a concurrent caller
                for content in compiled.functions:
                    folder.remove(function_reference(content))
            if isinstance(error, ForeignKeyError):
                raise self.resolver.missing_namespace(table.namespace) from None
            raise
        return CreateMaterializedViewResponse(version=written.version, job_id=jobs[0] if jobs else None)

    def _compile(self, request: CreateViewRequest, own: Identifier, database: Identifier) -> CompiledView:
        declared = None if request.output_schema is None else decode_schema(request.output_schema)
        query = parse_request(request.model_dump(include={"query", "source_query"}))

        def open_table(use: TableUse) -> OpenedTable:
            return self._open_source(use, own, database)

        entry = request.udtf_spec
        if request.kind == "query":
            if entry is not None:
                raise InvalidInputError("udtf_spec is for views of the kinds udtf and chunker; leave it out.")
            return self._checked(compile_query(query, open_table, declared))
        if entry is None:
            raise InvalidInputError(
                f"A view of the kind {request.kind} needs a udtf_spec: the function that computes its rows."
            )
        if entry.kind != request.kind:
            raise InvalidInputError(f"kind is {request.kind!r}, but udtf_spec's kind is {entry.kind!r}.")
        kind: Kind = "udtf" if request.kind == "udtf" else "chunker"
        return self._checked(compile_function_view(kind, _source_of(query, request), entry, open_table, declared))

    def _checked(self, compiled: CompiledView) -> CompiledView:
        """Return a compiled after a check of the manifests of its functions."""
        expansion = compiled.definition.expansion
        for manifest in [function.manifest for function in compiled.definition.functions]:
            check_manifest(manifest, self.services.settings)
        if expansion is not None:
            check_manifest(expansion.manifest, self.services.settings)
        return compiled

    def _open_source(self, use: TableUse, own: Identifier, database: Identifier) -> OpenedTable:
        """Open a table that a query names, if the caller may read it."""
        table = self._readable([check_identifier((*database, *use.name)), check_identifier(use.name)], own)
        version = use.version
        if isinstance(version, str):
            tag = self.resolver.tag(table, version)
            if tag.branch:
                raise InvalidInputError(
                    f"The tag {version!r} is on a branch; a view reads the main branch of its sources."
                )
            version = tag.version
        return OpenedTable(use, table, self.services.datasets.at(table, "", version), version)

    def _readable(self, candidates: list[Identifier], own: Identifier) -> Table:
        principal = current_caller().principal
        for identifier in candidates:
            if identifier == own:
                raise InvalidInputError("A view cannot read itself.")
            if principal.role_on(identifier[:-1]) is not None and (found := self.resolver.find(identifier)) is not None:
                return found
        wanted = candidates[0]
        if principal.role_on(wanted[:-1]) is None:  # no hint at similar names
            raise TableNotFoundError(f"Table {format_identifier(wanted)!r} does not exist.")
        raise self.resolver.missing_table(wanted)


def database_of(name: str | None, identifier: Identifier) -> Identifier:
    """Return the namespace that a client uses as its database, if an identifier is inside of it."""
    return (name,) if name and len(identifier) > 1 and is_within(identifier, (name,)) else ROOT


def _source_of(query: StructuredQuery | SparkQuery, request: CreateViewRequest) -> StructuredQuery:
    """Return the query whose rows a function takes; it must be one that Lance can run without Spark."""
    if isinstance(query, StructuredQuery):
        return query
    plain = parse_simple_select(request.source_query or "")
    if plain is None:
        raise InvalidInputError(
            f"The source of a {request.kind} must be a SELECT over one table that works row by row, or Pennon's JSON. "
            "For other queries, create a view with the query, and use it as the source."
        )
    return plain


def _stored_request(request: CreateViewRequest) -> dict[str, object]:
    """Return the part of a request that is stored: all but its sender and the bytes of functions."""
    stored = {key: value for key, value in request.model_dump(exclude_none=True).items() if key not in _NOT_STORED}
    if request.source_query is not None:
        stored["source_query"] = without_functions(request.source_query)
    if request.udtf_spec is not None:
        entry = request.udtf_spec.model_dump(exclude_none=True, exclude={"udtf"})
        stored["udtf_spec"] = {**entry, "udtf_sha256": hashlib.sha256(request.udtf_spec.udtf.encode()).hexdigest()}
    return stored


def _empty_source(schema: pa.Schema) -> ArrowSource:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema):
        pass
    return source_of(sink.getvalue().to_pybytes())
