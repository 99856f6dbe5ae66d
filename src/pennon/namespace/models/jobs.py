"""Requests and answers of the operations on jobs, which the specification does not have."""

from __future__ import annotations

from typing import Annotated, Any

from lance_namespace_urllib3_client.models import Identity
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr


class _Request(BaseModel):
    """What every request may state: who asks, and in what context."""

    identity: Identity | None = None
    context: dict[str, StrictStr] | None = None


class ListJobsRequest(_Request):
    """Which jobs to list: those of a database, of a table, or in a state."""

    #: The database that the client works in; the binding puts it here.
    id: list[str] | None = None
    table: StrictStr | None = None
    state: StrictStr | None = None
    limit: StrictInt | None = None
    page_token: StrictStr | None = None


class JobRequest(_Request):
    """A request about one job."""

    job_id: StrictStr


class RetryJobRequest(JobRequest):
    """Which job to try again, and whether only the rows that failed in it."""

    only_failed: StrictBool = False


class QueryJobEventsRequest(_Request):
    """Whose events to return: of one job, of some, or of all; those that a filter admits."""

    #: The database that the client works in; the binding puts it here.
    id: list[str] | None = None
    job_id: StrictStr | None = None
    job_ids: list[StrictStr] | None = None
    filter: StrictStr | None = None
    after: Annotated[StrictInt, Field(ge=0, lt=2**63)] | None = None
    limit: StrictInt | None = None
    limit_per_job: StrictInt | None = None


class JobFailure(BaseModel):
    """Why a job failed: when, of what, and whether it is worth another try."""

    model_config = ConfigDict(extra="allow")

    phase: str | None = None
    type: str | None = None
    message: str | None = None
    retryable: bool | None = None


class JobSummary(BaseModel):
    """A job in a list."""

    job_id: str
    job_type: str
    table: str
    branch: str
    target: str
    state: str
    created_at_millis: int
    started_at_millis: int | None = None
    finished_at_millis: int | None = None
    submitted_by: str
    counters: dict[str, float]


class ListJobsResponse(BaseModel):
    """A page of jobs, newest first."""

    jobs: list[JobSummary]
    page_token: str | None = None


class DescribeJobResponse(BaseModel):
    """All that is known of a job."""

    job_id: str
    job_type: str
    #: As LanceDB's client knows it; ``state`` is finer.
    job_state: str
    state: str
    table: str
    branch: str
    target: str
    priority: int
    submitted_by: str
    creation_ms: int
    started_ms: int | None = None
    finished_ms: int | None = None
    spec: dict[str, Any]
    counters: dict[str, float]
    result: dict[str, Any] | None = None
    failure: JobFailure | None = None
    wish: str | None = None
    waiting_for: str | None = None
    worker: str | None = None
    attempt: int
    retry_of: str | None = None


class CancelJobResponse(BaseModel):
    """What became of a job that was to be cancelled."""

    job_id: str
    status: str
    transaction_id: str


class PauseJobResponse(CancelJobResponse):
    """What became of a job that was to be paused; LanceDB's client reads the two flags."""

    paused: bool
    committing: bool


class ResumeJobResponse(CancelJobResponse):
    """What became of a job that was to be resumed; LanceDB's client reads the two flags."""

    resumed: bool
    still_pausing: bool


class RetryJobResponse(BaseModel):
    """The job that tries again what another did not get done."""

    job_id: str
    retry_of: str
    transaction_id: str
