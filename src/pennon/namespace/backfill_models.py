"""Requests and answers about feature columns that go beyond the specification."""

from __future__ import annotations

from typing import Annotated, Any

from lance_namespace import AlterTableBackfillColumnsRequest
from lance_namespace_urllib3_client.models import Identity
from pydantic import BaseModel, Field, StrictBool, StrictInt, StrictStr

_Positive = Annotated[StrictInt, Field(ge=1)]
#: How long a job may take: no longer than catalogs can count in milliseconds.
Seconds = Annotated[float, Field(gt=0, le=1e12)]
_NAMES = "concurrency intra_applier_concurrency min_checkpoint_size max_checkpoint_size task_size num_frags"
#: Fields of a backfill that count something, and so are at least one.
COUNTS = (*_NAMES.split(), "checkpoint_size", "commit_granularity")


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
