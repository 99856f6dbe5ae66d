"""Operations on materialized views: describe, list, alter, refresh and drop them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from lance_namespace import RefreshMaterializedViewResponse
from lance_namespace.errors import InvalidInputError, LanceNamespaceError, PermissionDeniedError, TableNotFoundError

from pennon.catalog import jobs, namespaces, tables, views
from pennon.core.caller import Role, current_caller
from pennon.core.identifiers import format_identifier
from pennon.core.paging import cut_page, decode_token, page_size
from pennon.namespace.feature_columns import check_cluster
from pennon.namespace.function_environments import check_manifest
from pennon.namespace.job_privacy import HIDDEN, reads_hidden
from pennon.namespace.models.columns import check_counts
from pennon.namespace.models.dependents import DropTable
from pennon.namespace.models.views import (
    AlterViewRequest,
    AlterViewResponse,
    DescribeViewRequest,
    DescribeViewResponse,
    DropViewRequest,
    DropViewResponse,
    ListViewsRequest,
    ListViewsResponse,
    RefreshPlan,
    RefreshViewRequest,
    ViewSource,
)
from pennon.namespace.operations import (
    missing_namespace,
    missing_table,
    namespace_id,
    parse_choice,
    record_transaction,
    request_as,
    table_id,
)
from pennon.namespace.view_creation import SCHEMA_CHANGES, ViewCreationOperations
from pennon.tables.lance_errors import typed_errors
from pennon.views.lineage.upstream import views_before
from pennon.views.model.definition import Definition, Source
from pennon.views.refresh.freshness import is_untouched, was_remade
from pennon.views.refresh.plan import Planner
from pennon.views.schedules import check_schedule
from pennon.views.sql.text import query_text

if TYPE_CHECKING:
    from pennon.catalog import Connection
    from pennon.catalog.tables import Table
    from pennon.catalog.views import View
    from pennon.core.identifiers import Identifier
    from pennon.views.refresh import plan

_LISTING = "materialized_views"
#: What of a request is not for the worker.
_OWN = frozenset({"id", "identity", "context", "dry_run", "cascade", "priority", "source_version"})


class ViewOperations(ViewCreationOperations):
    """Look at views, change how they are kept up to date, refresh and drop them."""

    def describe_materialized_view(self, request: DescribeViewRequest) -> DescribeViewResponse:
        """Tell what a view is and how fresh."""
        request = request_as(DescribeViewRequest, request)
        table, view = self._view(table_id(request))
        definition = Definition.from_json(view.definition)
        sources = [self._describe_source(source, view) for source in definition.sources]
        behind = self._changed_source(view, definition, sources) if view.watermark is not None else None
        state, reason = _state(view, behind)
        principal = current_caller().principal
        if reason is not None and self._read(lambda connection: reads_hidden(connection, table.id, principal)):
            reason = HIDDEN
        rebuild_reason = definition.rebuild_reason or self._untraceable(definition.sources[0], sources[0].table)
        active = self._read(lambda connection: jobs.active_on(connection, table.id))
        return DescribeViewResponse(
            id=list(table.identifier),
            name=table.name,
            namespace=list(table.namespace),
            kind=view.kind,
            engine=definition.engine,
            query=query_text(definition, view.request),
            source_table=sources[0].table,
            incremental=rebuild_reason is None,
            rebuild_reason=rebuild_reason,
            state=state,
            reason=reason,
            version=self.services.datasets.newest(table, "").version,
            sources=sources,
            function=_function(definition),
            auto_refresh=view.auto_refresh,
            schedule=view.schedule,
            on_schema_change=view.on_schema_change,
            created_at_millis=view.created_at,
            refreshed_at_millis=view.refreshed_at,
            refreshed_version=view.refreshed_version,
            active_job=next((job.id for job in active if job.kind == "refresh"), None),
            failed_job=view.failed_job,
        )

    def list_materialized_views(self, request: ListViewsRequest) -> ListViewsResponse:
        """List the names of the views directly in a namespace."""
        request = request_as(ListViewsRequest, request)
        namespace = namespace_id(request)
        size = page_size(request.limit, self.services.settings.page_limit)
        key = decode_token(_LISTING, request.page_token, (str,))
        principal = current_caller().principal
        if not principal.may_traverse(namespace):
            raise missing_namespace(namespace)
        found: list[str] = []
        if principal.role_on(namespace) is not None:
            after = str(key[0]) if key else ""
            listed = self._read(lambda connection: views.page(connection, namespace, after=after, limit=size + 1))
            found = [identifier[-1] for identifier, _ in listed]
        if not found and not self._read(lambda connection: namespaces.exists(connection, namespace)):
            raise self._missing_namespace(namespace)
        page = cut_page(_LISTING, found, size, lambda name: (name,))
        return ListViewsResponse(views=page.items, page_token=page.token)

    def alter_materialized_view(self, request: AlterViewRequest) -> AlterViewResponse:
        """Change when a view is refreshed without being asked, and what new columns of its sources do."""
        request = request_as(AlterViewRequest, request)
        table, _ = self._view(table_id(request))
        changes = request.model_dump(include={"auto_refresh", "schedule", "on_schema_change"})
        if all(value is None for value in changes.values()):
            raise InvalidInputError("The request changes nothing: send auto_refresh, schedule or on_schema_change.")
        if request.schedule:
            check_schedule(request.schedule)
        if request.on_schema_change is not None:
            changes["on_schema_change"] = parse_choice("on_schema_change", request.on_schema_change, SCHEMA_CHANGES)

        def work(connection: Connection) -> AlterViewResponse:
            views.configure(connection, table.id, **changes)
            view = views.find(connection, table.id)
            if view is None:
                raise missing_table(connection, table.identifier)
            return AlterViewResponse(
                transaction_id=record_transaction(connection, "AlterMaterializedView", table.identifier),
                auto_refresh=view.auto_refresh,
                schedule=view.schedule,
                on_schema_change=view.on_schema_change,
            )

        return self._write(work)

    def drop_materialized_view(self, request: DropViewRequest) -> DropViewResponse:
        """Drop a view and its rows."""
        request = request_as(DropViewRequest, request)
        table, _ = self._view(table_id(request))
        dropped = self.drop_table(DropTable(id=list(table.identifier), cascade=request.cascade))
        return DropViewResponse(transaction_id=dropped.transaction_id)

    def refresh_materialized_view(self, request: Any) -> RefreshMaterializedViewResponse | RefreshPlan:
        """Submit a job that brings a view up to date, or tell what it would do."""
        request = request_as(RefreshViewRequest, request)
        table, view = self._view(table_id(request))
        definition = Definition.from_json(view.definition)
        version = self._check_refresh(request, definition)
        before = self._read(lambda connection: views_before(connection, definition)) if request.cascade else []
        upstream = [self._refreshable(view_id) for view_id in before]
        spec = {key: value for key, value in request.model_dump(exclude_none=True).items() if key not in _OWN}
        if version is not None:
            spec["src_version"] = version
        if request.dry_run:
            plan = self._plan_refresh(table, spec)
            return plan.model_copy(update={"before": [format_identifier(found.identifier) for found in upstream]})
        if before:
            spec["before"] = before
        caller = current_caller()

        def work(connection: Connection) -> str:
            job_id = self.submit_refresh(connection, table, spec, caller, request.priority)
            record_transaction(connection, "RefreshMaterializedView", table.identifier, caller)
            return job_id

        return RefreshMaterializedViewResponse(job_id=self._write(work))

    def _view(self, identifier: Identifier) -> tuple[Table, View]:
        """Return a view, or raise the error that tells that there is none of that name."""
        table = self._table(identifier)
        view = self._read(lambda connection: views.find(connection, table.id))
        if view is None:
            raise InvalidInputError(f"{format_identifier(identifier)!r} is a table, not a materialized view.")
        return table, view

    def _describe_source(self, source: Source, view: View) -> ViewSource:
        """Tell of a source what the caller may know of it."""
        table = self._read(lambda connection: tables.find_by_id(connection, source.table_id))
        if table is not None and current_caller().principal.role_on(table.namespace) is None:
            table = None  # what became of it is not the caller's to know
        identifier = table.identifier if table is not None else source.identifier
        described = ViewSource(
            table=".".join(identifier),
            id=list(identifier),
            columns=list(source.columns),
            pinned_version=source.version,
            version=view.watermark.versions.get(source.table_id) if view.watermark else None,
        )
        if table is not None:
            newest = self.services.history.latest(table, "")
            described.newest_version = None if newest is None else newest.version
        return described

    def _changed_source(self, view: View, definition: Definition, described: list[ViewSource]) -> ViewSource | None:
        """Return the first source that has gone on in a way that is something to the view."""
        follows = view.on_schema_change != "ignore_new"
        for source, known in zip(definition.sources, described, strict=True):
            held, newest = known.version, known.newest_version
            others = view.watermark is not None and source.table_id in view.watermark.manifests
            if known.pinned_version is not None or newest is None or (newest == held and not others):
                continue
            try:
                table = self._source_table(source)
                if view.watermark is not None and was_remade(self.services.datasets, table, view.watermark):
                    return known
                if newest == held:
                    continue
                at = partial(self.services.datasets.at, table, "")
                if held is None or not is_untouched(at, held, newest, source.columns, follows_columns=follows):
                    return known
            except LanceNamespaceError:
                return known  # a version or a column is gone
        return None

    def _untraceable(self, source: Source, name: str) -> str | None:
        """Return why changes of a view's one source cannot be followed, whatever the query; none when they can."""
        if source.version is not None:
            return None
        try:
            traceable = self.services.datasets.at(self._source_table(source), "", None).has_stable_row_ids
        except LanceNamespaceError:
            return None  # it is gone, which is told elsewhere
        reason = f"{name!r} was made without stable row ids, so a refresh after a change computes the whole view."
        return None if traceable else reason

    def _refreshable(self, view_id: str) -> Table:
        """Return a view that is to be refreshed first, if the caller may do that."""
        table = self._read(lambda connection: tables.find_by_id(connection, view_id))
        role = current_caller().principal.role_on(table.namespace) if table is not None else None
        if table is None or role is None or role < Role.WRITER:
            raise PermissionDeniedError("The view is computed from another one, which this key may not refresh.")
        return table

    def _check_refresh(self, request: RefreshViewRequest, definition: Definition) -> int | None:
        """Refuse what a job could only fail on, and return the version of the source that is asked for."""
        check_counts(request)
        if request.output_limit is not None and definition.kind != "chunker":
            raise InvalidInputError(f"output_limit is for chunkers; this view's kind is {definition.kind}.")
        check_cluster(self.services.settings, request.cluster)
        check_manifest(request.manifest, self.services.settings)
        versions = {number for number in (request.src_version, request.source_version) if number is not None}
        if len(versions) > 1:
            raise InvalidInputError("src_version and source_version are the same field by two names; send one.")
        return self._check_version(versions.pop(), request, definition) if versions else None

    def _check_version(self, version: int, request: RefreshViewRequest, definition: Definition) -> int:
        source = definition.sources[0]
        if len(definition.sources) > 1:
            raise InvalidInputError("src_version is for views over one table; this view reads several.")
        if source.version is not None:
            raise InvalidInputError(f"The view reads version {source.version} of its source, and no other.")
        if request.cascade:
            raise InvalidInputError("cascade brings the sources up to date, src_version keeps to one; send one.")
        self.services.history.find(self._source_table(source), "", version)
        return version

    def _plan_refresh(self, table: Table, spec: dict[str, Any]) -> RefreshPlan:
        """Tell what a refresh would do, as the worker would decide it."""
        plan = Planner(self.services, table, spec).plan()
        functions = len(plan.definition.functions) + (plan.definition.expansion is not None)
        rows = plan.rows if plan.mode != "rebuild" else _rows_to_compute(plan)
        return RefreshPlan(
            mode=plan.mode,
            reason=plan.reason,
            rows_to_add=len(plan.changes.added) if plan.mode != "rebuild" else rows,
            rows_to_update=len(plan.changes.changed) if plan.mode != "rebuild" else None,
            rows_to_remove=len(plan.changes.gone) if plan.mode != "rebuild" else None,
            udf_calls=0 if not functions else None if rows is None else functions * rows,
            source_version=plan.reads[0].dataset.version,
            source_versions=plan.versions,
        )

    def _source_table(self, source: Source) -> Table:
        table = self._read(lambda connection: tables.find_by_id(connection, source.table_id))
        if table is None:
            raise TableNotFoundError(f"The source {format_identifier(source.identifier)!r} was dropped.")
        return table


def _state(view: View, behind: ViewSource | None) -> tuple[str, str | None]:
    """Return in which state a view is, and why."""
    if view.failed_job is not None:
        return "failed", view.stale_reason
    if view.watermark is None:
        return "empty", "The view has not been filled yet; refresh it."
    if view.stale_reason is not None:
        return "stale", view.stale_reason
    if behind is not None:
        newest, held = behind.newest_version, behind.version
        return "stale", f"{behind.table!r} is at version {newest}; the view holds version {held}."
    return "fresh", None


def _rows_to_compute(plan: plan.RefreshPlan) -> int | None:
    """Return how many rows of its source a rebuild computes; of a query that Spark runs, nobody knows before."""
    definition = plan.definition
    if definition.engine == "spark":
        return None
    with typed_errors():
        rows = plan.reads[0].dataset.count_rows(definition.where)
    rows = max(int(rows) - (definition.offset or 0), 0)
    return rows if definition.limit is None else min(rows, definition.limit)


def _function(definition: Definition) -> dict[str, Any] | None:
    expansion = definition.expansion
    if expansion is None:
        return None
    shown = {key: value for key, value in vars(expansion).items() if value is not None and key != "reference"}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in shown.items()}
