"""What a server tells about columns and views: how far they are computed, and what computing them would take."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Self

import pyarrow as pa

#: The columns of a table of errors.
ERRORS = pa.schema(
    [
        ("job_id", pa.string()),
        ("fragment_id", pa.int64()),
        ("row_offset", pa.int64()),
        ("row_id", pa.int64()),
        # Of a view: the row of its source, or the partition, and the source's version.
        ("source_row_id", pa.int64()),
        ("partition", pa.string()),
        ("source_version", pa.int64()),
        ("column", pa.string()),
        ("function", pa.string()),
        ("function_version", pa.string()),
        ("table_version", pa.int64()),
        ("error_type", pa.string()),
        ("error_message", pa.string()),
        ("attempt", pa.int64()),
        ("created_at", pa.timestamp("ms", "UTC")),
    ]
)


@dataclass(frozen=True, kw_only=True)
class _Report:
    #: Whatever else the server told.
    more: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, answer: dict[str, Any]) -> Self:
        """Return the report that an answer holds; what it does not tell keeps its default."""
        known = {item.name for item in fields(cls)} - {"more"}
        told = {name: _frozen(value) for name, value in answer.items() if name in known and value is not None}
        return cls(**told, more={name: value for name, value in answer.items() if name not in known})


@dataclass(frozen=True, kw_only=True, repr=False)
class ColumnState(_Report):
    """How far a column is computed."""

    column: str
    #: Whether the state is known of each row, or only of whole fragments.
    granularity: str = "row"
    rows: int = 0
    #: Rows with a value of the function as it is now, which may be null.
    computed: int = 0
    #: Rows for which the function raised an error.
    failed: int = 0
    #: Rows whose inputs or function changed since.
    stale: int = 0
    #: Rows that were never computed.
    missing: int = 0
    #: The table's version that was looked at.
    version: int = 0
    #: The function as it is now.
    function: str = ""
    function_version: str = ""
    #: The id of the job that is filling the column.
    active_job: str | None = None

    @property
    def complete(self) -> bool:
        """Whether every row has its value."""
        return self.computed == self.rows

    def __repr__(self) -> str:
        parts = {"failed": self.failed, "stale": self.stale, "missing": self.missing}
        others = "".join(f", {count:,} {name}" for name, count in parts.items() if count)
        return f"<{self.column}: {self.computed:,} of {self.rows:,} rows computed{others} (per {self.granularity})>"


@dataclass(frozen=True, kw_only=True, repr=False)
class Plan(_Report):
    """What a backfill would do, without doing it."""

    column: str = ""
    version: int = 0
    mode: str = "default"
    rows: int = 0
    fragments: int = 0
    bytes: int = 0
    udf_calls: int = 0
    granularity: str = "row"
    #: Columns that would be filled first.
    before: tuple[str, ...] = ()

    def __repr__(self) -> str:
        first = f", after {', '.join(self.before)}" if self.before else ""
        return (
            f"<{self.column}: {self.rows:,} rows in {self.fragments:,} fragments, {self.bytes:,} bytes to read, "
            f"{self.udf_calls:,} calls (per {self.granularity}){first}>"
        )


@dataclass(frozen=True, kw_only=True, repr=False)
class RefreshPlan(_Report):
    """What a refresh would do, without doing it."""

    #: no_op, incremental or rebuild.
    mode: str
    reason: str = ""
    #: Rows of the source that came, changed and went; none where only computing the view would tell.
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
class Freshness(_Report):
    """How fresh a view is."""

    name: str
    #: empty, fresh, stale or failed.
    state: str
    reason: str | None = None
    #: Whether a refresh follows the changes, and if not, why.
    incremental: bool = True
    rebuild_reason: str | None = None
    #: The tables it reads, each with the version it holds and the newest there is.
    sources: tuple[dict[str, Any], ...] = ()
    refreshed_at_millis: int | None = None
    #: The id of the job that is refreshing it, or that failed to.
    active_job: str | None = None
    failed_job: str | None = None

    @property
    def fresh(self) -> bool:
        """Whether the view holds the newest versions of its sources."""
        return self.state == "fresh"

    def __repr__(self) -> str:
        return f"<{self.name}: {self.state}{f', {self.reason}' if self.reason else ''}>"


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def errors_table(records: list[dict[str, Any]]) -> pa.Table:
    """Return records of errors as an Arrow table."""
    rows = [{**record, "created_at": record.get("created_at_millis")} for record in records]
    return pa.Table.from_pylist(rows, ERRORS)
