"""Requests and answers about feature columns that go beyond the specification."""

from __future__ import annotations

from typing import Annotated, Any

from lance_namespace import AlterTableBackfillColumnsRequest
from lance_namespace.errors import InvalidInputError
from lance_namespace_urllib3_client.models import Identity
from pydantic import BaseModel, Field, StrictBool, StrictInt, StrictStr

_Positive = Annotated[StrictInt, Field(ge=1)]
#: How long a job may take: no longer than catalogs can count in milliseconds.
Seconds = Annotated[float, Field(gt=0, le=1e12)]
#: Rows that a table, a file or a checkpoint can have: Lance counts those of a fragment in 32 bits.
_MOST_ROWS = 2**31 - 1
#: A checkpoint is due at least once a day.
_LONGEST_INTERVAL = 86_400
#: Tasks that run at once: each costs the driver memory, and Spark a thread of its scheduler.
_MOST_TASKS = 4096
#: Threads in which one task calls its function.
_MOST_THREADS = 256
#: Fields of a backfill or refresh that count something, and the most that each may be; the least is one.
MOST = {
    "concurrency": _MOST_TASKS,
    "intra_applier_concurrency": _MOST_THREADS,
    "checkpoint_size": _MOST_ROWS,
    "min_checkpoint_size": _MOST_ROWS,
    "max_checkpoint_size": _MOST_ROWS,
    "task_size": _MOST_ROWS,
    "num_frags": _MOST_ROWS,
    "commit_granularity": _MOST_ROWS,
    "max_rows_per_fragment": _MOST_ROWS,
    "source_task_size": _MOST_ROWS,
    "output_limit": 2**63 - 1,
}


def check_counts(request: BaseModel) -> None:
    """Refuse numbers that are out of bounds, so that no request can have a worker plan without bound."""
    for name, most in MOST.items():
        value = getattr(request, name, None)
        if value is not None and not 1 <= value <= most:
            least = "at least 1" if value < 1 else f"at most {most}"
            raise InvalidInputError(f"{name} is {value}; it must be {least}.")
    seconds = getattr(request, "batch_checkpoint_flush_interval_seconds", None)
    if seconds is not None and not 0 <= seconds <= _LONGEST_INTERVAL:
        raise InvalidInputError(
            f"batch_checkpoint_flush_interval_seconds is {seconds}; it must be from 0 to {_LONGEST_INTERVAL}."
        )


class BackfillRequest(AlterTableBackfillColumnsRequest):
    """What to fill, and how: the specification's fields, and Pennon's own."""

    mode: StrictStr | None = None
    cascade: StrictBool = False
    priority: Annotated[StrictInt, Field(ge=-1000, le=1000)] = 0
    timeout_seconds: Seconds | None = None
    dry_run: StrictBool = False


class BackfillPlan(BaseModel):
    """What a backfill would do."""

    column: str
    version: int
    mode: str
    rows: int
    fragments: int
    bytes: int
    udf_calls: int
    granularity: str
    #: Columns that would be filled first.
    before: list[str]


class _ColumnRequest(BaseModel):
    identity: Identity | None = None
    context: dict[str, StrictStr] | None = None
    id: list[str] | None = None
    branch: StrictStr | None = None


class ColumnStateRequest(_ColumnRequest):
    """Which column to tell about."""

    column: StrictStr


class ColumnStateResponse(BaseModel):
    """How many rows of a column are in which state."""

    column: str
    version: int
    #: How exactly staleness is known: of each row, or of fragments as a whole.
    granularity: str
    rows: int
    computed: int
    failed: int
    stale: int
    missing: int
    function: str
    function_version: str
    active_job: str | None = None


class ColumnErrorsRequest(_ColumnRequest):
    """Whose errors to return: of a column or of all, of one job or of any."""

    column: StrictStr | None = None
    job_id: StrictStr | None = None
    limit: _Positive | None = None
    page_token: StrictStr | None = None


class ColumnErrorsResponse(BaseModel):
    """Rows that a function failed on, and why."""

    records: list[dict[str, Any]]
    truncated: bool
    page_token: str | None = None
