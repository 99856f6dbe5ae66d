"""Making a materialized view: its query is read, checked and recorded together with its empty table."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from lance_namespace import CreateMaterializedViewResponse
from lance_namespace.errors import (
    InvalidInputError,
    LanceNamespaceError,
    TableAlreadyExistsError,
    TableNotFoundError,
    TableTagNotFoundError,
)

from pennon.catalog import StillReferencedError, namespaces, tables, views
from pennon.catalog.views import View
from pennon.columns.declarations import function_reference
from pennon.core.caller import Caller, current_caller
from pennon.core.errors import suggest
from pennon.core.identifiers import ROOT, Identifier, check_identifier, format_identifier, is_within
from pennon.jobs.auto_refresh import submit_refresh
from pennon.namespace.function_environments import check_manifest
from pennon.namespace.models.views import CreateViewRequest
from pennon.namespace.operations import missing_table, parse_choice, record_transaction, request_as, table_id
from pennon.namespace.rows import RowOperations
from pennon.storage import refs
from pennon.tables.arrow_stream import ArrowSource, source_of
from pennon.views.compilation import Draft, Opened, draft_query, merged_sources
from pennon.views.function_views import draft_expansion
from pennon.views.model.definition import Kind
from pennon.views.model.query import StructuredQuery, TableUse
from pennon.views.model.schemas import decode_schema
from pennon.views.query_parser import parse_request
from pennon.views.schedules import check_schedule
from pennon.views.sql.simple_select import take_apart
from pennon.views.sql.spark_sql import SparkQuery
from pennon.views.sql.text import without_functions

if TYPE_CHECKING:
    from pennon.catalog import Connection
    from pennon.catalog.tables import Table

#: What new columns of a source do to a view; the first is the default.
SCHEMA_CHANGES = ("ignore_new", "fail", "rebuild")
_NOT_KEPT = frozenset({"id", "identity", "context", "udtf_spec"})


class ViewCreationOperations(RowOperations):
    """Make views."""

    def create_materialized_view(self, request: Any, database: Identifier = ROOT) -> CreateMaterializedViewResponse:
        """Make a view, by default empty; tables that its query names are first looked for in the database."""
        request = request_as(CreateViewRequest, request)
        identifier = table_id(request)
        if not self._read(lambda connection: namespaces.exists(connection, identifier[:-1])):
            raise self._missing_namespace(identifier[:-1])
        if self._find(identifier) is not None:
            raise TableAlreadyExistsError(f"Table {format_identifier(identifier)!r} already exists.")
        draft = self._draft(request, identifier, database)
        table = self.plan_table(identifier, None, None)
        view = View(
            table_id=table.id,
            kind=request.kind,
            definition=draft.definition.to_json(),
            request=_kept(request),
            auto_refresh=bool(request.auto_refresh),
            schedule=check_schedule(request.schedule) if request.schedule else None,
            on_schema_change=parse_choice("on_schema_change", request.on_schema_change, SCHEMA_CHANGES),
        )
        return self._make(table, view, draft, fill=request.with_no_data is False)

    def submit_refresh(
        self, connection: Connection, view: Table, spec: dict[str, Any], caller: Caller, priority: int = 0
    ) -> str:
        """Put a refresh into the queue, inside a transaction, and return the job's id."""
        name, context = caller.principal.name, dict(caller.context)
        job = submit_refresh(
            self.services.queue, connection, view, spec, submitted_by=name, context=context, priority=priority
        )
        return job.id

    def _make(self, table: Table, view: View, draft: Draft, *, fill: bool) -> CreateMaterializedViewResponse:
        """Write an empty table and record the view in the transaction of its first version."""
        caller = current_caller()
        jobs: list[str] = []

        def note(connection: Connection) -> str:
            sources = merged_sources(draft.definition)
            for source in draft.definition.sources:
                if not tables.hold(connection, source.table_id):
                    raise missing_table(connection, source.identifier)
            self._insert(connection, table)
            views.insert(connection, view, sources)
            if fill:
                jobs[:] = [self.submit_refresh(connection, table, {}, caller)]
            return record_transaction(connection, "CreateMaterializedView", table.identifier, caller)

        folder = self.services.storage_root.folder(table.location)
        for content in draft.functions:
            folder.put_if_absent(function_reference(content), content)
        try:
            self.pin_fixed_versions(table.id, draft.definition)
            written = self.services.writer.create(table, _no_rows(draft.schema), note)
        except (LanceNamespaceError, StillReferencedError) as error:
            owner = self._read(lambda connection: tables.find_by_location(connection, table.location))
            if owner is None or owner.id != table.id:
                self.release_pins(table.id, draft.definition)
            if owner is None:  # otherwise they may be the functions of who was faster
                for content in draft.functions:
                    folder.remove(function_reference(content))
            if isinstance(error, StillReferencedError):
                raise self._missing_namespace(table.namespace) from None
            raise
        return CreateMaterializedViewResponse(version=written.version, job_id=jobs[0] if jobs else None)

    def _draft(self, request: CreateViewRequest, own: Identifier, database: Identifier) -> Draft:
        declared = None if request.output_schema is None else decode_schema(request.output_schema)
        query = parse_request(request.model_dump(include={"query", "source_query"}))

        def open_table(use: TableUse) -> Opened:
            return self._open_source(use, own, database)

        entry = request.udtf_spec
        if request.kind == "query":
            if entry is not None:
                raise InvalidInputError("udtf_spec is for views of the kinds udtf and chunker; leave it out.")
            return self._checked(draft_query(query, open_table, declared))
        if entry is None:
            raise InvalidInputError(f"A view of the kind {request.kind} needs a udtf_spec: the function that fills it.")
        if entry.kind != request.kind:
            raise InvalidInputError(f"kind is {request.kind!r}, but udtf_spec's kind is {entry.kind!r}.")
        kind: Kind = "udtf" if request.kind == "udtf" else "chunker"
        return self._checked(draft_expansion(kind, _source_of(query, request), entry, open_table, declared))

    def _checked(self, draft: Draft) -> Draft:
        """Return a draft whose manifests some worker can read."""
        expansion = draft.definition.expansion
        for manifest in [function.manifest for function in draft.definition.functions]:
            check_manifest(manifest, self.services.settings)
        if expansion is not None:
            check_manifest(expansion.manifest, self.services.settings)
        return draft

    def _open_source(self, use: TableUse, own: Identifier, database: Identifier) -> Opened:
        """Return a table that a query names, if the caller may read it."""
        table = self._readable([check_identifier((*database, *use.name)), check_identifier(use.name)], own)
        version = use.version
        if isinstance(version, str):
            version = self._tagged_version(table, version)
        return Opened(use, table, self.services.datasets.at(table, "", version), version)

    def _readable(self, candidates: list[Identifier], own: Identifier) -> Table:
        principal = current_caller().principal
        for identifier in candidates:
            if identifier == own:
                raise InvalidInputError("A view cannot read itself.")
            if principal.role_on(identifier[:-1]) is not None and (found := self._find(identifier)) is not None:
                return found
        wanted = candidates[0]
        if principal.role_on(wanted[:-1]) is None:  # not even whether it has a neighbour of a similar name is told
            raise TableNotFoundError(f"Table {format_identifier(wanted)!r} does not exist.")
        raise self._missing_table(wanted)

    def _tagged_version(self, table: Table, tag: str) -> int:
        known = {ref.name: ref for ref in refs.tags(self.services.storage_root.folder(table.location))}
        if tag not in known:
            name = format_identifier(table.identifier)
            raise TableTagNotFoundError(f"Table {name!r} has no tag {tag!r}.{suggest(tag, known)}")
        if known[tag].branch:
            raise InvalidInputError(f"The tag {tag!r} is on a branch; a view reads the main line of its sources.")
        return known[tag].version


def database_of(name: str | None, identifier: Identifier) -> Identifier:
    """Return the namespace that a client takes for its database, if the identifier it sent was put in there."""
    return (name,) if name and len(identifier) > 1 and is_within(identifier, (name,)) else ROOT


def _source_of(query: StructuredQuery | SparkQuery, request: CreateViewRequest) -> StructuredQuery:
    """Return the query that feeds a function, which works on Lance's rows and not on Spark's."""
    if isinstance(query, StructuredQuery):
        return query
    plain = take_apart(request.source_query or "")
    if plain is None:
        raise InvalidInputError(
            f"The source of a {request.kind} is a SELECT over one table that works row by row, or Pennon's JSON. "
            "For more, put the function on a view that the query makes."
        )
    return plain


def _kept(request: CreateViewRequest) -> dict[str, Any]:
    """Return what is kept of a request: all but who sent it, and the bytes of functions."""
    kept = {key: value for key, value in request.model_dump(exclude_none=True).items() if key not in _NOT_KEPT}
    if request.source_query is not None:
        kept["source_query"] = without_functions(request.source_query)
    if request.udtf_spec is not None:
        entry = request.udtf_spec.model_dump(exclude_none=True, exclude={"udtf"})
        kept["udtf_spec"] = {**entry, "udtf_sha256": hashlib.sha256(request.udtf_spec.udtf.encode()).hexdigest()}
    return kept


def _no_rows(schema: pa.Schema) -> ArrowSource:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema):
        pass
    return source_of(sink.getvalue().to_pybytes())
