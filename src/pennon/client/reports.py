"""What a server tells about a column: how far it is computed, and what computing it would take."""

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


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def errors_table(records: list[dict[str, Any]]) -> pa.Table:
    """Return records of errors as an Arrow table."""
    rows = [{**record, "created_at": record.get("created_at_millis")} for record in records]
    return pa.Table.from_pylist(rows, ERRORS)
