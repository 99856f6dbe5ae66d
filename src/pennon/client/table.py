"""A table of a server: LanceDB's, and columns that functions fill."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Unpack, overload
from urllib.parse import quote

from lance_namespace import (
    AlterTableAddColumnsResponse,
    AlterTableAlterColumnsResponse,
    AlterTableDropColumnsResponse,
)

from pennon.client.backfill import BackfillOptions, backfill_body
from pennon.client.columns import alteration_entry, column_entries, names_function, needs_server
from pennon.client.delegation import Delegating
from pennon.client.job import Job, submitted
from pennon.client.reports import ColumnState, Plan, errors_table
from pennon.client.transport import new_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa

    from pennon.client.columns import ColumnNames, Definition
    from pennon.client.transport import Transport


class Table(Delegating):
    """All that a table of LanceDB's client can do, and columns that functions fill on the server."""

    def __init__(self, inner: Any, transport: Transport, namespace_path: Sequence[str] = ()) -> None:
        super().__init__(inner)
        self._transport = transport
        #: The names that lead to the table: those of its namespaces, and its own.
        self.path: tuple[str, ...] = (*namespace_path, inner.name)

    def __repr__(self) -> str:
        branch = self._inner.current_branch()
        return f"<Table {'$'.join(self.path)}{f' on branch {branch}' if branch else ''}>"

    def __len__(self) -> int:
        return int(self._inner.count_rows())

    @property
    def branches(self) -> Branches:
        """The table's branches."""
        return Branches(self._inner.branches, self._transport, self.path[:-1])

    def add_columns(
        self, columns: Mapping[ColumnNames, Definition] | Any = None, **options: Any
    ) -> AlterTableAddColumnsResponse | Any:
        """Add columns: ``{"x": f}`` with a function, ``{("a", "b"): f}`` with one that has two outputs.

        A string is an SQL expression that is evaluated at once, ``computed("a + b")`` one that backfills evaluate, and
        all else that LanceDB's ``add_columns`` takes is taken, too. Columns of functions are empty until a backfill.
        """
        if not needs_server(columns):
            return self._inner.add_columns(columns, **options)
        if options:
            raise TypeError(f"{next(iter(options))!r} cannot be given together with functions; make it two calls.")
        answer = self._change("add_columns", {"new_columns": column_entries(columns)})
        return AlterTableAddColumnsResponse.model_validate(answer)

    def alter_columns(
        self, *alterations: Mapping[str, Any], cascade: bool = False
    ) -> AlterTableAlterColumnsResponse | Any:
        """Alter columns as LanceDB's client does, or give one another function: ``{"path": "x", "function": f}``.

        With ``cascade`` also columns that others are computed from, which then follow or are out of date.
        """
        if not cascade and not any(names_function(alteration) for alteration in alterations):
            return self._inner.alter_columns(*alterations)
        entries = [alteration_entry(given) for given in alterations]
        answer = self._change("alter_columns", {"alterations": entries, **_cascade(cascade)})
        return AlterTableAlterColumnsResponse.model_validate(answer)

    def drop_columns(self, columns: Iterable[str], *, cascade: bool = False) -> AlterTableDropColumnsResponse | Any:
        """Drop columns as LanceDB's client does; with ``cascade`` also the columns and views computed from them."""
        if not cascade:
            return self._inner.drop_columns(columns)
        answer = self._change("drop_columns", {"columns": list(columns), **_cascade(cascade)})
        return AlterTableDropColumnsResponse.model_validate(answer)

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
        """Fill a column with its function, wait with a progress bar, and return the job; it raises what went wrong.

        Args:
            column: The column; of a function with several outputs, any of them.
            dry_run: Only return the plan.
            progress: Whether to show the bar.
            options: ``where`` and ``mode`` ("default", "only_missing", "only_failed" or "all") choose the rows, by
                default those without an up-to-date value; ``cascade`` fills the columns first that this one is
                computed from; after ``timeout`` seconds the server ends the job; ``BackfillOptions`` has them all.
        """
        if dry_run:
            body = {**self._backfill_body(column, options), "dry_run": True}
            return Plan.of(self._transport.ask(self._route("backfill_column"), body))
        job = self.backfill_async(column, **options).wait(progress=progress)
        self._look_again()
        return job

    def backfill_async(self, column: str, **options: Unpack[BackfillOptions]) -> Job:
        """Ask for a column to be filled, as ``backfill`` does, and return the job at once."""
        body = self._backfill_body(column, options)
        answer = self._transport.post(self._route("backfill_column"), body, idempotency_key=new_key())
        return submitted(self._transport, answer, job_type="backfill", table="$".join(self.path), target=column)

    def column_state(self, column: str, branch: str | None = None) -> ColumnState:
        """Return how far a column is computed."""
        body = {"column": column, "branch": branch or self._inner.current_branch()}
        return ColumnState.of({"column": column, **self._transport.ask(self._route("column_state"), _said(body))})

    def errors(self, column: str | None = None, job: Job | str | None = None, limit: int | None = None) -> pa.Table:
        """Return the rows for which functions raised errors: of a column, of a job, or all."""
        branch, job_id = self._inner.current_branch(), job.id if isinstance(job, Job) else job
        body = _said({"column": column, "job_id": job_id, "branch": branch})
        return errors_table(self._transport.ask_all(self._route("errors"), body, "records", limit))

    def _backfill_body(self, column: str, options: BackfillOptions) -> dict[str, Any]:
        return backfill_body(column, self._inner.current_branch(), options)

    def _change(self, verb: str, body: dict[str, Any]) -> dict[str, Any]:
        pinned = getattr(self._inner, "_checkout_version", None)
        if pinned is not None:
            raise ValueError(f"The table is checked out at version {pinned}; checkout_latest() makes it writable.")
        answer = self._transport.post(
            self._route(verb),
            _said({**body, "branch": self._inner.current_branch()}),
            idempotency_key=new_key(),
        )
        self._look_again()
        return answer

    def _look_again(self) -> None:
        """Make LanceDB's client forget the schema that it knew, unless it was told to stay at a version."""
        if getattr(self._inner, "_checkout_version", None) is None:
            self._inner.checkout_latest()

    def _route(self, verb: str) -> str:
        return f"/v1/table/{quote('$'.join(self.path), safe='$')}/{verb}"


class Branches(Delegating):
    """The branches of a table; the tables they give can be filled by functions, too."""

    def __init__(self, inner: Any, transport: Transport, namespace_path: Sequence[str]) -> None:
        super().__init__(inner)
        self._transport = transport
        self._namespace_path = namespace_path

    def create(self, *arguments: Any, **options: Any) -> Table:
        """Create a branch, as LanceDB's client does, and return the table on it."""
        return Table(self._inner.create(*arguments, **options), self._transport, self._namespace_path)

    def checkout(self, *arguments: Any, **options: Any) -> Table:
        """Return the table on a branch, as LanceDB's client does."""
        return Table(self._inner.checkout(*arguments, **options), self._transport, self._namespace_path)


def _cascade(wanted: bool) -> dict[str, bool]:
    return {"cascade": True} if wanted else {}


def _said(body: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if value is not None}
