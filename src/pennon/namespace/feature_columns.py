"""Operations on feature columns: backfills, the state of rows, and the errors of functions."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, cast

from lance_namespace import AlterTableBackfillColumnsRequest, AlterTableBackfillColumnsResponse
from lance_namespace.errors import InvalidInputError, InvalidTableStateError

from pennon.catalog import column_errors, jobs
from pennon.catalog.column_errors import ColumnError, ErrorScope
from pennon.columns.dependencies import columns_computed_together, find_incomplete_inputs
from pennon.columns.feature_columns import FeatureColumn, feature_columns, find_feature_column
from pennon.columns.plan import (
    BackfillMode,
    ColumnPlan,
    ColumnSummary,
    failed_rows,
    plan_backfill,
    summarize_column,
    unchanged_since,
)
from pennon.core.caller import current_caller
from pennon.core.errors import suggest
from pennon.core.job_model import BackfillSpec, JobKind
from pennon.core.paging import cut_page, decode_token, page_size
from pennon.functions.envelope import Envelope
from pennon.namespace.functions import check_manifest, column_function
from pennon.namespace.models.columns import (
    BackfillPlan,
    BackfillRequest,
    ColumnErrorsRequest,
    ColumnErrorsResponse,
    ColumnStateRequest,
    ColumnStateResponse,
    check_counts,
)
from pennon.namespace.requests import parse_choice, request_as, table_id
from pennon.namespace.resolver import TableResolver
from pennon.namespace.transaction_records import record_transaction
from pennon.services import Services
from pennon.storage.layout import check_branch
from pennon.tables.field_paths import find_field, plain_path
from pennon.tables.lance_errors import typed_errors
from pennon.tables.query.expressions import check_expression

if TYPE_CHECKING:
    from collections.abc import Callable

    import lance

    from pennon.catalog import Connection
    from pennon.catalog.tables import Table
    from pennon.core.settings import Settings

_DEFAULT_CLUSTER = "default"
#: Fields of a request that are not part of the job's spec.
_NOT_IN_SPEC = frozenset({"id", "identity", "context", "branch", "dry_run", "cascade", "priority", "mode"})
_ERRORS = "column-errors"
_DEFAULT_PAGE = 1000


@dataclass(frozen=True)
class FeatureColumnOperations:
    """Backfill feature columns, and describe their state and errors."""

    services: Services
    resolver: TableResolver

    def alter_table_backfill_columns(
        self, request: AlterTableBackfillColumnsRequest
    ) -> AlterTableBackfillColumnsResponse | BackfillPlan:
        """Submit a job that backfills a column; a dry run returns its plan instead."""
        backfill = request_as(BackfillRequest, request)
        table = self.resolver.table(table_id(backfill))
        branch = check_branch(backfill.branch)
        dataset = self.services.datasets.at(table, branch, backfill.read_version)
        column = find_feature_column(dataset, backfill.column)
        column_function(self.resolver.folder(table), column)  # raises an error if the function is unusable
        mode = BackfillMode(parse_choice("mode", backfill.mode, list(BackfillMode)))
        self._check_backfill(backfill, dataset)
        before = self._columns_to_fill_first(table, branch, dataset, column, cascade=backfill.cascade)
        if backfill.dry_run:
            return self._plan_backfill(table, branch, dataset, column, mode, backfill, before)
        fields = {
            name: value
            for name, value in backfill.model_dump(exclude_none=True, by_alias=True).items()
            if name not in _NOT_IN_SPEC
        }
        newest = self.services.datasets.newest(table, branch).version
        spec = cast("BackfillSpec", fields)
        spec["column"] = column.path
        spec["columns"] = columns_computed_together(dataset, [*before, column.path])
        spec["mode"] = str(mode)
        spec["since"] = newest
        if before:
            spec["before"] = before
        job_id = self.services.database.write(
            lambda connection: self._submit_backfill(connection, table, branch, backfill, spec)
        )
        return AlterTableBackfillColumnsResponse(job_id=job_id)

    def describe_column_state(self, request: ColumnStateRequest) -> ColumnStateResponse:
        """Count the rows of a feature column by state."""
        request = request_as(ColumnStateRequest, request)
        table = self.resolver.table(table_id(request))
        branch = check_branch(request.branch)
        dataset = self.services.datasets.at(table, branch, None)
        column = find_feature_column(dataset, request.column)
        summary = self._summarize_column(table, branch, dataset, column)
        active = self.services.database.read(lambda connection: jobs.active_on(connection, table.id))
        running = [job.id for job in active if job.branch == branch and column.path in job.columns]
        return ColumnStateResponse(
            column=request.column,
            function=column.name,
            function_version=column.version,
            active_job=running[0] if running else None,
            **asdict(summary),
        )

    def list_column_errors(self, request: ColumnErrorsRequest) -> ColumnErrorsResponse:
        """List the rows that functions failed on and that are not computed yet."""
        request = request_as(ColumnErrorsRequest, request)
        table = self.resolver.table(table_id(request))
        branch = check_branch(request.branch)
        dataset = self.services.datasets.at(table, branch, None)
        recorded = self.services.database.read(lambda connection: column_errors.columns(connection, table.id, branch))
        wanted = None if request.column is None else _error_column(dataset, request.column)
        names = [name for name in recorded if wanted in (None, name)]
        size = page_size(request.limit or _DEFAULT_PAGE, self.services.settings.page_limit)
        key = decode_token(_ERRORS, request.page_token, (str, int, int))
        found: list[tuple[str, ColumnError, ColumnError]] = []
        for name in names:
            if (key is not None and name < str(key[0])) or len(found) > size:
                continue
            after = (int(key[1]), int(key[2])) if key is not None and name == key[0] else None
            scope, limit = ErrorScope(table.id, branch, name), size + 1 - len(found)
            locate = self._locator(table, dataset, scope)
            found += [(name, *pair) for pair in self._errors_of(scope, locate, request.job_id, after, limit)]
        page = cut_page(_ERRORS, found, size, lambda item: (item[0], item[1].fragment_id, item[1].row_offset))
        return ColumnErrorsResponse(
            records=[_record(request.column or name, error) for name, _, error in page.items],
            truncated=page.token is not None,
            page_token=page.token,
        )

    def _errors_of(
        self,
        scope: ErrorScope,
        locate: Callable[[ColumnError], ColumnError | None],
        job_id: str | None,
        after: tuple[int, int] | None,
        limit: int,
    ) -> list[tuple[ColumnError, ColumnError]]:
        """Return the errors of rows that are still failed, each as recorded and with the row's current position."""
        found: list[tuple[ColumnError, ColumnError]] = []
        while len(found) < limit:
            page = self.services.database.read(
                partial(column_errors.page, scope=scope, job_id=job_id, after=after, limit=limit)
            )
            found += [(error, located) for error in page if (located := locate(error)) is not None]
            if len(page) < limit:
                break
            after = (page[-1].fragment_id, page[-1].row_offset)
        return found[:limit]

    def _locator(
        self, table: Table, dataset: lance.LanceDataset, scope: ErrorScope
    ) -> Callable[[ColumnError], ColumnError | None]:
        """Return a function that finds the current row of an error; it returns None if the error is out of date.

        Errors of rows of a view's source are kept up to date by its refreshes.
        """
        if scope.column not in feature_columns(dataset.schema):
            return lambda error: error if error.fragment_id == column_errors.SOURCE else None
        column = find_feature_column(dataset, scope.column)
        failed = failed_rows(
            dataset, self.services.column_state_store.read(dataset, table, scope.branch, column), column
        )
        stable = dataset.has_stable_row_ids
        rows = {row.row_id if stable else (row.fragment_id, row.offset): row for row in failed}

        def locate(error: ColumnError) -> ColumnError | None:
            row = rows.get(error.row_id if stable else (error.fragment_id, error.row_offset))
            if row is None or error.commit_version not in (None, row.version):
                return None
            return replace(error, fragment_id=row.fragment_id, row_offset=row.offset)

        return locate

    def _submit_backfill(
        self, connection: Connection, table: Table, branch: str, request: BackfillRequest, spec: BackfillSpec
    ) -> str:
        caller = current_caller()
        job = self.services.queue.submit(
            connection,
            JobKind.BACKFILL,
            table,
            spec,
            branch=branch,
            target=spec["column"],
            priority=request.priority,
            submitted_by=caller.principal.name,
            context=caller.context,
        )
        record_transaction(connection, "AlterTableBackfillColumns", table.identifier)
        return job.id

    def _check_backfill(self, request: BackfillRequest, dataset: lance.LanceDataset) -> None:
        """Refuse requests whose job could only fail."""
        check_counts(request)
        least, most = request.min_checkpoint_size, request.max_checkpoint_size
        if least is not None and most is not None and least > most:
            raise InvalidInputError(f"min_checkpoint_size is {least}; it must be at most max_checkpoint_size, {most}.")
        size = request.checkpoint_size
        if size is not None and not (least or size) <= size <= (most or size):
            raise InvalidInputError(
                f"checkpoint_size is {size}; it must be between min_checkpoint_size and max_checkpoint_size."
            )
        if request.where is not None:
            request.where = check_expression(request.where, self.services.sql_limits)
            with typed_errors():
                dataset.scanner([], request.where, with_row_id=True).explain_plan()
        check_cluster(self.services.settings, request.cluster)
        check_manifest(request.manifest, self.services.settings)

    def _columns_to_fill_first(
        self, table: Table, branch: str, dataset: lance.LanceDataset, column: FeatureColumn, *, cascade: bool
    ) -> list[str]:
        """Return the columns to backfill first, in order; raise an error if there are any and cascade is not set."""

        def count(upstream: FeatureColumn) -> int:
            return self._summarize_column(table, branch, dataset, upstream).incomplete

        incomplete = find_incomplete_inputs(dataset, column, count)
        if incomplete and not cascade:
            first = incomplete[0]
            raise InvalidTableStateError(
                f"{first.needed_by!r} is computed from {first.name!r}, which has {first.rows} missing or stale rows. "
                f"Backfill {first.name!r} first, or pass cascade: true."
            )
        return [column.name for column in incomplete]

    def _summarize_column(
        self, table: Table, branch: str, dataset: lance.LanceDataset, column: FeatureColumn
    ) -> ColumnSummary:
        return summarize_column(dataset, self.services.column_state_store.read(dataset, table, branch, column), column)

    def _plan_backfill(
        self,
        table: Table,
        branch: str,
        dataset: lance.LanceDataset,
        column: FeatureColumn,
        mode: BackfillMode,
        request: BackfillRequest,
        before: list[str],
    ) -> BackfillPlan:
        newest = self.services.datasets.at(table, branch, None)
        states = self.services.column_state_store.read(newest, table, branch, column)
        if request.read_version is not None:
            states = unchanged_since(dataset, newest, states, column)
        plan = plan_backfill(newest, states, column, mode=mode, where=request.where, max_fragments=request.num_frags)
        return BackfillPlan(
            column=request.column,
            version=plan.version,
            mode=str(mode),
            rows=plan.rows,
            fragments=len(plan.units),
            bytes=plan.bytes,
            udf_calls=self._count_calls(column_function(self.resolver.folder(table), column), plan),
            granularity=plan.granularity,
            before=before,
        )

    def _count_calls(self, envelope: Envelope | None, plan: ColumnPlan) -> int:
        if envelope is None:
            return 0
        if envelope.kind == "scalar":
            return plan.rows
        options, calls = envelope.options, 0
        for unit in plan.units:
            size = int(options.batch_size or self.services.settings.backfill_batch_rows)
            if options.batch_bytes is not None:
                size = max(1, min(size, options.batch_bytes * unit.count // max(unit.bytes, 1)))
            calls += -(-unit.count // size)
        return calls


def _error_column(dataset: lance.LanceDataset, path: str) -> str:
    """Return the column under which the errors of a column are recorded: the first output of its function."""
    find_field(dataset.schema, path)  # raises an error that names the column
    path = plain_path(path)
    return find_feature_column(dataset, path).first if path in feature_columns(dataset.schema) else path


def check_cluster(settings: Settings, name: str | None) -> None:
    """Refuse a cluster that the settings do not name."""
    known = [_DEFAULT_CLUSTER, *settings.clusters]
    if name is not None and name not in known:
        hint = suggest(name, known)
        raise InvalidInputError(f"There is no cluster {name!r}; the setting 'clusters' defines them.{hint}")


def _record(column: str, error: ColumnError) -> dict[str, object]:
    record = {"column": column, **error.__dict__}
    record["created_at_millis"] = record.pop("created_at")
    del record["commit_version"]
    if error.fragment_id == column_errors.SOURCE:
        del record["fragment_id"], record["row_offset"]
        record["source_row_id"] = record.pop("row_id")
        record["source_version"] = record.pop("table_version")
    return {name: value for name, value in record.items() if value is not None}
