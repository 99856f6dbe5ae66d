"""Tables of a Pennon server: LanceDB's table, with feature columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Unpack, cast, overload

from lance_namespace import (
    AlterTableAddColumnsResponse,
    AlterTableAlterColumnsResponse,
    AlterTableDropColumnsResponse,
)

from pennon.client.backfill import BackfillOptions, backfill_body
from pennon.client.columns import alteration_entry, column_entries, has_definitions
from pennon.client.delegation import Delegating
from pennon.client.job import Job, job_from_response
from pennon.client.maintenance import TableMaintenance
from pennon.client.reports import ColumnState, Plan, errors_table
from pennon.client.transport import new_key, object_path, without_none

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import lancedb.table
    import pyarrow as pa
    from lancedb._lancedb import AddColumnsResult, AlterColumnsResult, DropColumnsResult

    from pennon.client.columns import ColumnNames, Definition
    from pennon.client.transport import JsonObject, Transport


class Table(TableMaintenance, Delegating):
    """A table of LanceDB's client, with feature columns that UDFs compute on the server."""

    _inner: lancedb.table.Table

    def __init__(self, inner: lancedb.table.Table, transport: Transport, namespace_path: Sequence[str] = ()) -> None:
        super().__init__(inner)
        self._transport = transport
        #: The names of the table's namespaces, and its own.
        self.path: tuple[str, ...] = (*namespace_path, inner.name)

    def __repr__(self) -> str:
        branch = self._inner.current_branch()
        return f"<Table {'$'.join(self.path)}{f' on branch {branch}' if branch else ''}>"

    def __len__(self) -> int:
        return int(self._inner.count_rows())

    @property
    def branches(self) -> Branches:
        """The branches of the table."""
        return Branches(self._inner.branches, self._transport, self.path[:-1])

    def add_columns(
        self, columns: Mapping[ColumnNames, Definition] | Any = None, **options: Any
    ) -> AlterTableAddColumnsResponse | AddColumnsResult:
        """Add columns: ``{"x": f}`` with a UDF, ``{("a", "b"): f}`` with a UDF of two outputs.

        A string is an SQL expression that is evaluated at once, ``computed("a + b")`` one that a backfill computes.
        Everything else that LanceDB's ``add_columns`` takes works, too. The column of a UDF is null until a backfill.
        """
        if not has_definitions(columns):
            added: AddColumnsResult = self._inner.add_columns(cast(Any, columns), **options)
            return added
        if options:
            raise TypeError(f"{next(iter(options))!r} cannot be combined with UDFs in one call; use two calls.")
        response = self._change("add_columns", {"new_columns": column_entries(columns)})
        return AlterTableAddColumnsResponse.model_validate(response)

    def alter_columns(
        self, *alterations: Mapping[str, object], cascade: bool = False
    ) -> AlterTableAlterColumnsResponse | AlterColumnsResult:
        """Alter columns as LanceDB's client does, or replace a UDF: ``{"path": "x", "function": f}``.

        With ``cascade``, a column that others are computed from can be altered; they are renamed along or become stale.
        """
        if not cascade and not any("function" in alteration for alteration in alterations):
            altered: AlterColumnsResult = self._inner.alter_columns(*cast("tuple[Any, ...]", alterations))
            return altered
        entries = [alteration_entry(alteration) for alteration in alterations]
        response = self._change("alter_columns", {"alterations": entries, **_cascade(cascade)})
        return AlterTableAlterColumnsResponse.model_validate(response)

    def drop_columns(
        self, columns: Iterable[str], *, cascade: bool = False
    ) -> AlterTableDropColumnsResponse | DropColumnsResult:
        """Drop columns; with ``cascade`` also the columns and materialized views that are computed from them."""
        if not cascade:
            return self._inner.drop_columns(columns)
        response = self._change("drop_columns", {"columns": list(columns), **_cascade(cascade)})
        return AlterTableDropColumnsResponse.model_validate(response)

    @overload
    def backfill(
        self,
        column: str,
        *,
        dry_run: Literal[False] = False,
        progress: bool = True,
        **options: Unpack[BackfillOptions],
    ) -> Job: ...

    @overload
    def backfill(self, column: str, *, dry_run: Literal[True], **options: Unpack[BackfillOptions]) -> Plan: ...

    def backfill(
        self, column: str, *, dry_run: bool = False, progress: bool = True, **options: Unpack[BackfillOptions]
    ) -> Job | Plan:
        """Backfill a feature column: compute its UDF for rows without an up-to-date value, wait, and return the job.

        Raises a ``JobError`` if the job fails, times out or is cancelled. What it has committed or checkpointed is not
        computed again.

        Args:
            column: The column; for a UDF with several outputs, any of its columns.
            dry_run: Return the plan without computing anything.
            progress: Whether to show a progress bar.
            options: ``where`` (an SQL filter) and ``mode`` ("default", "only_missing", "only_failed" or "all") select
                the rows; ``cascade`` first backfills the columns that this one is computed from; ``timeout`` limits the
                job, in seconds; ``BackfillOptions`` has the full list.
        """
        if dry_run:
            body = {**self._backfill_body(column, options), "dry_run": True}
            return Plan.of(self._transport.read(self._route("backfill_column"), body))
        job = self.backfill_async(column, **options).wait(progress=progress)
        self._reload()
        return job

    def backfill_async(self, column: str, **options: Unpack[BackfillOptions]) -> Job:
        """Submit a backfill, with the options of ``backfill``, and return its job without waiting."""
        body = self._backfill_body(column, options)
        response = self._transport.post(self._route("backfill_column"), body, idempotency_key=new_key())
        return job_from_response(
            self._transport, response, job_type="backfill", table="$".join(self.path), target=column
        )

    def column_state(self, column: str, branch: str | None = None) -> ColumnState:
        """Return the state of a feature column: how many rows are computed, failed, stale and missing."""
        body = without_none({"column": column, "branch": branch or self._inner.current_branch()})
        return ColumnState.of({"column": column, **self._transport.read(self._route("column_state"), body)})

    def errors(self, column: str | None = None, job: Job | str | None = None, limit: int | None = None) -> pa.Table:
        """Return the rows for which UDFs raised errors: of a column, of a job, or all."""
        branch, job_id = self._inner.current_branch(), job.id if isinstance(job, Job) else job
        body = without_none({"column": column, "job_id": job_id, "branch": branch})
        return errors_table(self._transport.read_all(self._route("errors"), body, "records", limit))

    def _backfill_body(self, column: str, options: BackfillOptions) -> JsonObject:
        return backfill_body(column, self._inner.current_branch(), options)

    def _change(self, verb: str, body: JsonObject) -> JsonObject:
        pinned = getattr(self._inner, "_checkout_version", None)
        if pinned is not None:
            raise ValueError(f"The table is checked out at version {pinned}; call checkout_latest() to write to it.")
        response = self._transport.post(
            self._route(verb),
            without_none({**body, "branch": self._inner.current_branch()}),
            idempotency_key=new_key(),
        )
        self._reload()
        return response

    def _reload(self) -> None:
        """Make LanceDB's client read the schema again, unless it is checked out at a version."""
        if getattr(self._inner, "_checkout_version", None) is None:
            self._inner.checkout_latest()  # type: ignore[no-untyped-call]  # without types in LanceDB

    def _route(self, verb: str) -> str:
        return object_path("table", self.path, verb)


class Branches(Delegating):
    """The branches of a table; the tables it returns have feature columns, too."""

    _inner: lancedb.table.Branches

    def __init__(self, inner: lancedb.table.Branches, transport: Transport, namespace_path: Sequence[str]) -> None:
        super().__init__(inner)
        self._transport = transport
        self._namespace_path = namespace_path

    def create(self, *arguments: Any, **options: Any) -> Table:
        """Create a branch and return the table on it; the arguments are those of LanceDB's client."""
        return Table(self._inner.create(*arguments, **options), self._transport, self._namespace_path)

    def checkout(self, *arguments: Any, **options: Any) -> Table:
        """Return the table on a branch; the arguments are those of LanceDB's client."""
        return Table(self._inner.checkout(*arguments, **options), self._transport, self._namespace_path)


def _cascade(wanted: bool) -> dict[str, bool]:
    return {"cascade": True} if wanted else {}
