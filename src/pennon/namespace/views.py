"""Operations on materialized views: describe, list, alter, refresh and drop."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, cast

from lance_namespace import RefreshMaterializedViewRequest, RefreshMaterializedViewResponse
from lance_namespace.errors import InvalidInputError, LanceNamespaceError, PermissionDeniedError, TableNotFoundError

from pennon.catalog import jobs, views
from pennon.core.caller import Role, current_caller
from pennon.core.identifiers import format_identifier
from pennon.core.job_model import JobKind, RefreshSpec
from pennon.core.paging import cut_page
from pennon.namespace.feature_columns import check_cluster
from pennon.namespace.functions import check_manifest
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
from pennon.namespace.requests import name_cursor, namespace_id, parse_choice, request_as, table_id
from pennon.namespace.resolver import TableResolver, missing_table
from pennon.namespace.tables import TableOperations
from pennon.namespace.transaction_records import record_transaction
from pennon.namespace.view_creation import SCHEMA_CHANGES, ViewCreation
from pennon.services import Services
from pennon.tables.lance_errors import typed_errors
from pennon.views.lineage.upstream import upstream_views
from pennon.views.model.definition import Definition, Source
from pennon.views.refresh.freshness import is_unchanged, was_recreated
from pennon.views.refresh.plan import Planner
from pennon.views.schedules import check_schedule
from pennon.views.sql.text import query_text

if TYPE_CHECKING:
    from pennon.catalog import Connection
    from pennon.catalog.tables import Table
    from pennon.catalog.views import View
    from pennon.views.refresh import plan

_LISTING = "materialized_views"
#: Fields of a request that are not part of the job's spec.
_NOT_IN_SPEC = frozenset({"id", "identity", "context", "dry_run", "cascade", "priority", "source_version"})


@dataclass(frozen=True)
class ViewOperations:
    """Describe, list, alter, refresh and drop views."""

    services: Services
    resolver: TableResolver
    tables: TableOperations
    creation: ViewCreation

    def describe_materialized_view(self, request: DescribeViewRequest) -> DescribeViewResponse:
        """Describe a view, its sources and whether it is up to date."""
        request = request_as(DescribeViewRequest, request)
        table, view = self.resolver.view(table_id(request))
        definition = Definition.from_json(view.definition)
        sources = [self._describe_source(source, view) for source in definition.sources]
        behind = self._changed_source(view, definition, sources) if view.watermark is not None else None
        state, reason = _state(view, behind)
        principal = current_caller().principal
        if reason is not None and self.services.database.read(
            lambda connection: reads_hidden(connection, table.id, principal)
        ):
            reason = HIDDEN
        rebuild_reason = definition.rebuild_reason or self._full_refresh_reason(definition.sources[0], sources[0].table)
        active = self.services.database.read(lambda connection: jobs.active_on(connection, table.id))
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
            active_job=next((job.id for job in active if job.kind == JobKind.REFRESH), None),
            failed_job=view.failed_job,
        )

    def list_materialized_views(self, request: ListViewsRequest) -> ListViewsResponse:
        """List the names of the views in a namespace."""
        request = request_as(ListViewsRequest, request)
        namespace = namespace_id(request)
        size, after = name_cursor(_LISTING, request, self.services.settings.page_limit)

        def names(connection: Connection) -> list[str]:
            return [found[-1] for found, _ in views.page(connection, namespace, after=after, limit=size + 1)]

        found = self.resolver.list_names(namespace, names)
        page = cut_page(_LISTING, found, size, lambda name: (name,))
        return ListViewsResponse(views=page.items, page_token=page.token)

    def alter_materialized_view(self, request: AlterViewRequest) -> AlterViewResponse:
        """Change when a view is refreshed automatically, and how it handles new columns of its sources."""
        request = request_as(AlterViewRequest, request)
        table, _ = self.resolver.view(table_id(request))
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

        return self.services.database.write(work)

    def drop_materialized_view(self, request: DropViewRequest) -> DropViewResponse:
        """Drop a view and its rows."""
        request = request_as(DropViewRequest, request)
        table, _ = self.resolver.view(table_id(request))
        dropped = self.tables.drop_table(DropTable(id=list(table.identifier), cascade=request.cascade))
        return DropViewResponse(transaction_id=dropped.transaction_id)

    def refresh_materialized_view(
        self, request: RefreshMaterializedViewRequest
    ) -> RefreshMaterializedViewResponse | RefreshPlan:
        """Submit a job that refreshes a view; a dry run returns its plan instead."""
        refresh = request_as(RefreshViewRequest, request)
        table, view = self.resolver.view(table_id(refresh))
        definition = Definition.from_json(view.definition)
        version = self._check_refresh(refresh, definition)
        before = (
            self.services.database.read(lambda connection: upstream_views(connection, definition))
            if refresh.cascade
            else []
        )
        upstream = [self._refreshable(view_id) for view_id in before]
        fields = {key: value for key, value in refresh.model_dump(exclude_none=True).items() if key not in _NOT_IN_SPEC}
        spec = cast("RefreshSpec", fields)
        if version is not None:
            spec["src_version"] = version
        if refresh.dry_run:
            plan = self._plan_refresh(table, spec)
            return plan.model_copy(update={"before": [format_identifier(found.identifier) for found in upstream]})
        if before:
            spec["before"] = before
        caller = current_caller()

        def work(connection: Connection) -> str:
            job_id = self.creation.submit_refresh(connection, table, spec, caller, refresh.priority)
            record_transaction(connection, "RefreshMaterializedView", table.identifier, caller)
            return job_id

        return RefreshMaterializedViewResponse(job_id=self.services.database.write(work))

    def _describe_source(self, source: Source, view: View) -> ViewSource:
        """Describe a source, without what the caller may not know."""
        table = self.resolver.find_by_id(source.table_id)
        if table is not None and current_caller().principal.role_on(table.namespace) is None:
            table = None  # the caller may not know its current name and version
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
        """Return the first source with changes that the view has not seen."""
        follows_columns = view.on_schema_change != "ignore_new"
        for source, known in zip(definition.sources, described, strict=True):
            held, newest = known.version, known.newest_version
            has_manifest = view.watermark is not None and source.table_id in view.watermark.manifests
            if known.pinned_version is not None or newest is None or (newest == held and not has_manifest):
                continue
            try:
                table = self._source_table(source)
                if view.watermark is not None and was_recreated(self.services.datasets, table, view.watermark):
                    return known
                if newest == held:
                    continue
                at = partial(self.services.datasets.at, table, "")
                if held is None or not is_unchanged(at, held, newest, source.columns, follows_columns=follows_columns):
                    return known
            except LanceNamespaceError:
                return known  # a version or a column was deleted
        return None

    def _full_refresh_reason(self, source: Source, name: str) -> str | None:
        """Return why changes of a source force a full refresh, whatever the query; None if they do not."""
        if source.version is not None:
            return None
        try:
            is_traceable = self.services.datasets.at(self._source_table(source), "", None).has_stable_row_ids
        except LanceNamespaceError:
            return None  # it was dropped, which the state of the view says
        reason = f"{name!r} was created without stable row ids, so a refresh after a change computes the whole view."
        return None if is_traceable else reason

    def _refreshable(self, view_id: str) -> Table:
        """Return a view that must be refreshed first, if the caller may refresh it."""
        table = self.resolver.find_by_id(view_id)
        role = current_caller().principal.role_on(table.namespace) if table is not None else None
        if table is None or role is None or role < Role.WRITER:
            raise PermissionDeniedError("The view reads another view, which this key may not refresh.")
        return table

    def _check_refresh(self, request: RefreshViewRequest, definition: Definition) -> int | None:
        """Refuse requests whose job could only fail, and return the source version to refresh to, if one is named."""
        check_counts(request)
        if request.output_limit is not None and definition.kind != "chunker":
            raise InvalidInputError(f"output_limit is for chunkers; this view's kind is {definition.kind}.")
        check_cluster(self.services.settings, request.cluster)
        check_manifest(request.manifest, self.services.settings)
        versions = {number for number in (request.src_version, request.source_version) if number is not None}
        if len(versions) > 1:
            raise InvalidInputError("src_version and source_version are two names of one field; send one of them.")
        return self._check_version(versions.pop(), request, definition) if versions else None

    def _check_version(self, version: int, request: RefreshViewRequest, definition: Definition) -> int:
        source = definition.sources[0]
        if len(definition.sources) > 1:
            raise InvalidInputError("src_version is for views over one table; this view reads several.")
        if source.version is not None:
            raise InvalidInputError(f"The query names version {source.version} of its source; leave src_version out.")
        if request.cascade:
            raise InvalidInputError("cascade and src_version exclude each other; send one of them.")
        self.services.history.find(self._source_table(source), "", version)
        return version

    def _plan_refresh(self, table: Table, spec: RefreshSpec) -> RefreshPlan:
        """Return the plan that a worker would make for a refresh."""
        plan = Planner(self.services, table, spec).plan()
        functions = len(plan.definition.functions) + (plan.definition.expansion is not None)
        rows = plan.rows if plan.mode != "rebuild" else _rows_to_compute(plan)
        return RefreshPlan(
            mode=plan.mode,
            reason=plan.reason,
            rows_to_add=len(plan.changes.added) if plan.mode != "rebuild" else rows,
            rows_to_update=len(plan.changes.changed) if plan.mode != "rebuild" else None,
            rows_to_remove=len(plan.changes.removed) if plan.mode != "rebuild" else None,
            udf_calls=0 if not functions else None if rows is None else functions * rows,
            source_version=plan.reads[0].dataset.version,
            source_versions=plan.versions,
        )

    def _source_table(self, source: Source) -> Table:
        table = self.resolver.find_by_id(source.table_id)
        if table is None:
            raise TableNotFoundError(f"The source {format_identifier(source.identifier)!r} was dropped.")
        return table


def _state(view: View, behind: ViewSource | None) -> tuple[str, str | None]:
    """Return the state of a view, and the reason for it."""
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


def _rows_to_compute(plan: plan.PlannedRefresh) -> int | None:
    """Return the number of source rows that a rebuild computes; None if Spark runs the query."""
    definition = plan.definition
    if definition.engine == "spark":
        return None
    with typed_errors():
        rows = plan.reads[0].dataset.count_rows(definition.where)
    rows = max(int(rows) - (definition.offset or 0), 0)
    return rows if definition.limit is None else min(rows, definition.limit)


def _function(definition: Definition) -> dict[str, object] | None:
    expansion = definition.expansion
    if expansion is None:
        return None
    shown = {key: value for key, value in vars(expansion).items() if value is not None and key != "reference"}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in shown.items()}
