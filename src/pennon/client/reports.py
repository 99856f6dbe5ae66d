"""Reports of the server: column state, backfill and refresh plans, and freshness of views."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Self, TypedDict

import pyarrow as pa

if TYPE_CHECKING:
    from pennon.client.transport import JsonObject

_ERROR_TYPES: dict[str, pa.DataType] = {
    "job_id": pa.string(),
    "fragment_id": pa.int64(),
    "row_offset": pa.int64(),
    "row_id": pa.int64(),
    # Views only: the row of the source, or the partition, and the source's version.
    "source_row_id": pa.int64(),
    "partition": pa.string(),
    "source_version": pa.int64(),
    "column": pa.string(),
    "function": pa.string(),
    "function_version": pa.string(),
    "table_version": pa.int64(),
    "error_type": pa.string(),
    "error_message": pa.string(),
    "attempt": pa.int64(),
    "created_at": pa.timestamp("ms", "UTC"),
}
#: The columns of a table of errors.
ERRORS = pa.schema(_ERROR_TYPES)


class ViewSource(TypedDict, total=False):
    """A source table of a view."""

    table: str
    columns: list[str]
    version: int | None
    newest_version: int | None


@dataclass(frozen=True, kw_only=True)
class Report:
    """A report of the server, with the fields that the client knows and all others."""

    #: Further fields of the server's response.
    more: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, response: JsonObject) -> Self:
        """Return the report in a response; absent fields keep their defaults."""
        known = {item.name for item in fields(cls)} - {"more"}
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in response.items()
            if name in known and value is not None
        }
        return cls(**values, more={name: value for name, value in response.items() if name not in known})


@dataclass(frozen=True, kw_only=True, repr=False)
class ColumnState(Report):
    """The state of a feature column: how many rows are computed, failed, stale and missing."""

    column: str
    #: Whether the state is tracked per row, or only per fragment.
    granularity: str = "row"
    rows: int = 0
    #: Rows with an up-to-date value, which may be null.
    computed: int = 0
    #: Rows for which the UDF raised an error.
    failed: int = 0
    #: Rows whose inputs or UDF have changed since they were computed.
    stale: int = 0
    #: Rows that were never computed.
    missing: int = 0
    #: The version of the table that the state describes.
    version: int = 0
    #: The current UDF of the column.
    function: str = ""
    function_version: str = ""
    #: The id of the running backfill of the column.
    active_job: str | None = None

    @property
    def complete(self) -> bool:
        """Whether every row is computed."""
        return self.computed == self.rows

    def __repr__(self) -> str:
        parts = {"failed": self.failed, "stale": self.stale, "missing": self.missing}
        others = "".join(f", {count:,} {name}" for name, count in parts.items() if count)
        return f"<{self.column}: {self.computed:,} of {self.rows:,} rows computed{others} (per {self.granularity})>"


@dataclass(frozen=True, kw_only=True, repr=False)
class Plan(Report):
    """The plan of a backfill: the rows it would compute, and the cost."""

    column: str = ""
    version: int = 0
    mode: str = "default"
    rows: int = 0
    fragments: int = 0
    bytes: int = 0
    udf_calls: int = 0
    granularity: str = "row"
    #: Columns that would be computed first.
    before: tuple[str, ...] = ()

    def __repr__(self) -> str:
        first = f", after {', '.join(self.before)}" if self.before else ""
        return (
            f"<{self.column}: {self.rows:,} rows in {self.fragments:,} fragments, {self.bytes:,} bytes to read, "
            f"{self.udf_calls:,} calls (per {self.granularity}){first}>"
        )


@dataclass(frozen=True, kw_only=True, repr=False)
class RefreshPlan(Report):
    """The plan of a refresh: incremental or not, why, and the rows it would change."""

    #: no_op, incremental or rebuild.
    mode: str
    reason: str = ""
    #: Rows of the source that were added, changed and removed; None where only computing the view can tell.
    rows_to_add: int | None = None
    rows_to_update: int | None = None
    rows_to_remove: int | None = None
    udf_calls: int | None = None
    source_version: int = 0
    source_versions: dict[str, int] = field(default_factory=dict)
    #: Views that would be refreshed first.
    before: tuple[str, ...] = ()

    def __repr__(self) -> str:
        counts = {"add": self.rows_to_add, "update": self.rows_to_update, "remove": self.rows_to_remove}
        rows = ", ".join(f"{count:,} to {what}" for what, count in counts.items() if count is not None)
        first = f", after {', '.join(self.before)}" if self.before else ""
        return f"<{self.mode}: {self.reason}{f' Rows: {rows}' if rows else ''}{first}>"


@dataclass(frozen=True, kw_only=True, repr=False)
class Freshness(Report):
    """The freshness of a materialized view."""

    name: str
    #: empty, fresh, stale or failed.
    state: str
    reason: str | None = None
    #: Whether a refresh is incremental, and if not, why.
    incremental: bool = True
    rebuild_reason: str | None = None
    #: The source tables, each with the version the view holds and the newest version.
    sources: tuple[ViewSource, ...] = ()
    refreshed_at_millis: int | None = None
    #: The id of the running refresh, and of the last one if it failed.
    active_job: str | None = None
    failed_job: str | None = None

    @property
    def fresh(self) -> bool:
        """Whether the view holds the newest versions of its sources."""
        return self.state == "fresh"

    def __repr__(self) -> str:
        return f"<{self.name}: {self.state}{f', {self.reason}' if self.reason else ''}>"


def errors_table(records: list[JsonObject]) -> pa.Table:
    """Return error records as an Arrow table."""
    rows: list[JsonObject] = [{**record, "created_at": record.get("created_at_millis")} for record in records]
    return pa.Table.from_pylist(rows, ERRORS)
