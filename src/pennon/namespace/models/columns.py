"""Requests and responses about feature columns that the specification does not have."""

from __future__ import annotations

from typing import Annotated

from lance_namespace import AlterTableBackfillColumnsRequest
from lance_namespace.errors import InvalidInputError
from pydantic import BaseModel, Field, StrictBool, StrictInt, StrictStr

from pennon.namespace.models.requests import BranchRequest

_Positive = Annotated[StrictInt, Field(ge=1)]
#: The timeout of a job, at most what catalogs can store in milliseconds.
Seconds = Annotated[float, Field(gt=0, le=1e12)]
#: Rows of a table, a file or a checkpoint: Lance counts the rows of a fragment in 32 bits.
_MAX_ROWS = 2**31 - 1
#: Checkpoints must be written at least once a day.
_MAX_INTERVAL_SECONDS = 86_400
#: Concurrent tasks: each costs the driver memory, and Spark a thread of its scheduler.
_MAX_TASKS = 4096
#: Threads of one task that call its function.
_MAX_THREADS = 256
#: Counts in the requests of backfills and refreshes, and their maximum; the minimum is 1.
MAX_COUNTS = {
    "concurrency": _MAX_TASKS,
    "intra_applier_concurrency": _MAX_THREADS,
    "checkpoint_size": _MAX_ROWS,
    "min_checkpoint_size": _MAX_ROWS,
    "max_checkpoint_size": _MAX_ROWS,
    "task_size": _MAX_ROWS,
    "num_frags": _MAX_ROWS,
    "commit_granularity": _MAX_ROWS,
    "max_rows_per_fragment": _MAX_ROWS,
    "source_task_size": _MAX_ROWS,
    "output_limit": 2**63 - 1,
}


def check_counts(request: BaseModel) -> None:
    """Refuse counts that are out of range, so that no request makes a worker plan without bound."""
    for name, maximum in MAX_COUNTS.items():
        value = getattr(request, name, None)
        if value is not None and not 1 <= value <= maximum:
            bound = "at least 1" if value < 1 else f"at most {maximum}"
            raise InvalidInputError(f"{name} is {value}; it must be {bound}.")
    seconds = getattr(request, "batch_checkpoint_flush_interval_seconds", None)
    if seconds is not None and not 0 <= seconds <= _MAX_INTERVAL_SECONDS:
        raise InvalidInputError(
            f"batch_checkpoint_flush_interval_seconds is {seconds}; it must be from 0 to {_MAX_INTERVAL_SECONDS}."
        )


class BackfillRequest(AlterTableBackfillColumnsRequest):
    """A backfill of a column, with the fields of the specification and further ones."""

    mode: StrictStr | None = None
    cascade: StrictBool = False
    priority: Annotated[StrictInt, Field(ge=-1000, le=1000)] = 0
    timeout_seconds: Seconds | None = None
    dry_run: StrictBool = False


class BackfillPlan(BaseModel):
    """The plan of a backfill, which a dry run returns."""

    column: str
    version: int
    mode: str
    rows: int
    fragments: int
    bytes: int
    udf_calls: int
    granularity: str
    #: Columns that would be backfilled first.
    before: list[str]


class ColumnStateRequest(BranchRequest):
    """A request for the state of a feature column."""

    column: StrictStr


class ColumnStateResponse(BaseModel):
    """The number of rows of a feature column by state."""

    column: str
    version: int
    #: Whether staleness is known for each row, or only for each fragment.
    granularity: str
    rows: int
    computed: int
    failed: int
    stale: int
    missing: int
    function: str
    function_version: str
    active_job: str | None = None


class ColumnErrorsRequest(BranchRequest):
    """A request for the errors of one column or all, and of one job or all."""

    column: StrictStr | None = None
    job_id: StrictStr | None = None
    limit: _Positive | None = None
    page_token: StrictStr | None = None


class ColumnErrorsResponse(BaseModel):
    """The rows that functions failed on, each with its error."""

    records: list[dict[str, object]]
    truncated: bool
    page_token: str | None = None
