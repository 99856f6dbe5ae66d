"""Operations on feature columns: fill them, and tell what is known of their rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lance_namespace import AlterTableBackfillColumnsResponse
from lance_namespace.errors import InvalidInputError, InvalidTableStateError

from pennon.catalog import column_errors, jobs
from pennon.catalog.column_errors import ColumnError, Place
from pennon.columns.declarations import read_function
from pennon.columns.dependencies import columns_filled, unfilled_before
from pennon.columns.feature_columns import FeatureColumn, feature_columns, find_feature_column
from pennon.columns.plan import Mode, Plan, Summary, failed_rows, known_to, plan_units, summarise
from pennon.core.caller import current_caller
from pennon.core.errors import suggest
from pennon.core.paging import cut_page, decode_token, page_size
from pennon.functions.envelope import COLUMN_KINDS, Envelope, read_envelope
from pennon.namespace.function_environments import check_manifest
from pennon.namespace.models.columns import (
    BackfillPlan,
    BackfillRequest,
    ColumnErrorsRequest,
    ColumnErrorsResponse,
    ColumnStateRequest,
    ColumnStateResponse,
    check_counts,
)
from pennon.namespace.operations import Operations, parse_choice, record_transaction, request_as, table_id
from pennon.storage.layout import check_branch
from pennon.tables.field_paths import find_field, plain_path
from pennon.tables.lance_errors import typed_errors
from pennon.tables.query.expressions import check_expression

if TYPE_CHECKING:
    from collections.abc import Callable

    from pennon.catalog import Connection
    from pennon.catalog.tables import Table
    from pennon.core.settings import Settings
    from pennon.storage.file_io import FileIO

KIND = "backfill"
_DEFAULT_CLUSTER = "default"
_OWN = frozenset({"id", "identity", "context", "branch", "dry_run", "cascade", "priority", "mode"})
_ERRORS = "column-errors"
_PAGE = 1000


class BackfillOperations(Operations):
    """Fill columns and look at them."""

    def alter_table_backfill_columns(self, request: Any) -> AlterTableBackfillColumnsResponse | BackfillPlan:
        """Submit a job that fills a column, or tell what it would do."""
        request = request_as(BackfillRequest, request)
        table = self._table(table_id(request))
        branch = check_branch(request.branch)
        dataset = self.services.datasets.at(table, branch, request.read_version)
        column = find_feature_column(dataset, request.column)
        self._envelope_of(table, column)  # says what is wrong with it, if anything is
        mode = Mode(parse_choice("mode", request.mode, list(Mode)))
        self._check_backfill(request, dataset)
        before = self._to_fill_before(table, branch, dataset, column, cascade=request.cascade)
        if request.dry_run:
            return self._plan_backfill(table, branch, dataset, column, mode, request, before)
        spec = {
            name: value
            for name, value in request.model_dump(exclude_none=True, by_alias=True).items()
            if name not in _OWN
        }
        newest = self.services.datasets.newest(table, branch).version
        spec |= {
            "column": column.path,
            "columns": columns_filled(dataset, [*before, column.path]),
            "mode": str(mode),
            "since": newest,
            **({"before": before} if before else {}),
        }
        job_id = self._write(lambda connection: self._submit_backfill(connection, table, branch, request, spec))
        return AlterTableBackfillColumnsResponse(job_id=job_id)

    def describe_column_state(self, request: ColumnStateRequest) -> ColumnStateResponse:
        """Count the rows of a feature column by what is known of them."""
        request = request_as(ColumnStateRequest, request)
        table = self._table(table_id(request))
        branch = check_branch(request.branch)
        dataset = self.services.datasets.at(table, branch, None)
        column = find_feature_column(dataset, request.column)
        summary = self._summarise_column(table, branch, dataset, column)
        active = self._read(lambda connection: jobs.active_on(connection, table.id))
        running = [job.id for job in active if job.branch == branch and column.path in job.columns]
        return ColumnStateResponse(
            column=request.column,
            function=column.name,
            function_version=column.version,
            active_job=running[0] if running else None,
            **summary.as_dict(),
        )

    def list_column_errors(self, request: ColumnErrorsRequest) -> ColumnErrorsResponse:
        """Return the rows that functions failed on, until they are computed again."""
        request = request_as(ColumnErrorsRequest, request)
        table = self._table(table_id(request))
        branch = check_branch(request.branch)
        dataset = self.services.datasets.at(table, branch, None)
        recorded = self._read(lambda connection: column_errors.columns(connection, table.id, branch))
        wanted = None if request.column is None else _recorded_as(dataset, request.column)
        names = [name for name in recorded if wanted in (None, name)]
        size = page_size(request.limit or _PAGE, self.services.settings.page_limit)
        key = decode_token(_ERRORS, request.page_token, (str, int, int))
        found: list[tuple[str, ColumnError, ColumnError]] = []
        for name in names:
            if (key is not None and name < str(key[0])) or len(found) > size:
                continue
            after = (int(key[1]), int(key[2])) if key is not None and name == key[0] else None
            place, most = Place(table.id, branch, name), size + 1 - len(found)
            locate = self._locating(table, dataset, place)
            found += [(name, *pair) for pair in self._errors_of(place, locate, request.job_id, after, most)]
        page = cut_page(_ERRORS, found, size, lambda item: (item[0], item[1].fragment_id, item[1].row_offset))
        return ColumnErrorsResponse(
            records=[_record(request.column or name, error) for name, _, error in page.items],
            truncated=page.token is not None,
            page_token=page.token,
        )

    def _errors_of(
        self,
        place: Place,
        locate: Callable[[ColumnError], ColumnError | None],
        job_id: str | None,
        after: tuple[int, int] | None,
        limit: int,
    ) -> list[tuple[ColumnError, ColumnError]]:
        """Return errors of rows that are still failed, as they were recorded and with the rows' present places."""
        found: list[tuple[ColumnError, ColumnError]] = []
        while len(found) < limit:
            page = self._page_of_errors(place, job_id, after, limit)
            found += [(error, located) for error in page if (located := locate(error)) is not None]
            if len(page) < limit:
                break
            after = (page[-1].fragment_id, page[-1].row_offset)
        return found[:limit]

    def _page_of_errors(
        self, place: Place, job_id: str | None, after: tuple[int, int] | None, limit: int
    ) -> list[ColumnError]:
        return self._read(
            lambda connection: column_errors.page(connection, place, job_id=job_id, after=after, limit=limit)
        )

    def _locating(self, table: Table, dataset: Any, place: Place) -> Callable[[ColumnError], ColumnError | None]:
        """Return what finds the row of an error, which may have moved; none if the row is not failed by that error.

        Those of a view's source are kept up to date by its refreshes.
        """
        if place.column not in feature_columns(dataset.schema):
            return lambda error: error if error.fragment_id == column_errors.SOURCE else None
        column = find_feature_column(dataset, place.column)
        failed = failed_rows(
            dataset, self.services.column_state_store.read(dataset, table, place.branch, column), column
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
        self, connection: Connection, table: Table, branch: str, request: BackfillRequest, spec: dict[str, Any]
    ) -> str:
        caller = current_caller()
        job = self.services.queue.submit(
            connection,
            kind=KIND,
            table_id=table.id,
            branch=branch,
            target=spec["column"],
            object=table.identifier,
            spec=spec,
            priority=request.priority,
            submitted_by=caller.principal.name,
            context=dict(caller.context),
        )
        record_transaction(connection, "AlterTableBackfillColumns", table.identifier)
        return job.id

    def _check_backfill(self, request: BackfillRequest, dataset: Any) -> None:
        """Refuse what a job could only fail on."""
        check_counts(request)
        least, most = request.min_checkpoint_size, request.max_checkpoint_size
        if least is not None and most is not None and least > most:
            raise InvalidInputError(f"min_checkpoint_size, {least}, is more than max_checkpoint_size, {most}.")
        size = request.checkpoint_size
        if size is not None and not (least or size) <= size <= (most or size):
            raise InvalidInputError("checkpoint_size is not between min_checkpoint_size and max_checkpoint_size.")
        if request.where is not None:
            request.where = check_expression(request.where, self.services.sql_limits)
            with typed_errors():
                dataset.scanner(columns=[], filter=request.where, with_row_id=True, limit=1).to_table()
        check_cluster(self.services.settings, request.cluster)
        check_manifest(request.manifest, self.services.settings)

    def _to_fill_before(
        self, table: Table, branch: str, dataset: Any, column: FeatureColumn, *, cascade: bool
    ) -> list[str]:
        """Return the columns that have to be filled first, in order; without leave to do so, refuse."""

        def count(upstream: FeatureColumn) -> int:
            return self._summarise_column(table, branch, dataset, upstream).unfilled

        unfilled = unfilled_before(dataset, column, count)
        if unfilled and not cascade:
            first = unfilled[0]
            raise InvalidTableStateError(
                f"{first.needed_by!r} is computed from {first.name!r}, of which {first.rows} rows are missing or "
                f"stale. Backfill {first.name!r} first, or pass cascade: true."
            )
        return [column.name for column in unfilled]

    def _summarise_column(self, table: Table, branch: str, dataset: Any, column: FeatureColumn) -> Summary:
        return summarise(dataset, self.services.column_state_store.read(dataset, table, branch, column), column)

    def _plan_backfill(
        self,
        table: Table,
        branch: str,
        dataset: Any,
        column: FeatureColumn,
        mode: Mode,
        request: BackfillRequest,
        before: list[str],
    ) -> BackfillPlan:
        newest = self.services.datasets.at(table, branch, None)
        states = self.services.column_state_store.read(newest, table, branch, column)
        if request.read_version is not None:
            states = known_to(dataset, newest, states, column)
        plan = plan_units(newest, states, column, mode=mode, where=request.where, most_fragments=request.num_frags)
        return BackfillPlan(
            column=request.column,
            version=plan.version,
            mode=str(mode),
            rows=plan.rows,
            fragments=len(plan.units),
            bytes=plan.bytes,
            udf_calls=self._count_calls(self._envelope_of(table, column), plan),
            granularity=plan.granularity,
            before=before,
        )

    def _count_calls(self, envelope: Envelope | None, plan: Plan) -> int:
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

    def _envelope_of(self, table: Table, column: FeatureColumn) -> Envelope | None:
        """Return what is known of a column's function; none of an expression."""
        if column.reference is None:
            return None
        envelope = stored_function(
            self.services.storage_root.folder(table.location), column.reference, repr(column.path)
        )
        if envelope.kind not in COLUMN_KINDS:
            raise InvalidInputError(f"The function of {column.path!r} is a {envelope.kind}; here it must be a udf.")
        return envelope


def _recorded_as(dataset: Any, path: str) -> str:
    """Return the column for which the errors of one are recorded."""
    find_field(dataset.schema, path)  # names what is missing
    path = plain_path(path)
    return find_feature_column(dataset, path).first if path in feature_columns(dataset.schema) else path


def stored_function(folder: FileIO, reference: str, whose: str) -> Envelope:
    """Return what is known of a function in a table's folder, without loading it."""
    content = read_function(folder, reference)
    try:
        return read_envelope(content)
    except ValueError as error:
        raise InvalidInputError(f"The function of {whose} cannot be read: {error}") from None


def check_cluster(settings: Settings, name: str | None) -> None:
    """Refuse a cluster that no setting names."""
    known = [_DEFAULT_CLUSTER, *settings.clusters]
    if name is not None and name not in known:
        hint = suggest(name, known)
        raise InvalidInputError(f"There is no cluster {name!r}; the setting 'clusters' names them.{hint}")


def _record(column: str, error: ColumnError) -> dict[str, Any]:
    record = {"column": column, **error.__dict__}
    record["created_at_millis"] = record.pop("created_at")
    del record["commit_version"]
    if error.fragment_id == column_errors.SOURCE:
        del record["fragment_id"], record["row_offset"]
        record["source_row_id"] = record.pop("row_id")
        record["source_version"] = record.pop("table_version")
    return {name: value for name, value in record.items() if value is not None}
