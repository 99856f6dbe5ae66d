"""Requests and responses about jobs, which the specification does not have."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr

from pennon.namespace.models.requests import ObjectRequest, Request


class ListJobsRequest(ObjectRequest):
    """A request for the jobs of a database, of a table, or in a state. The server adds the database as the id."""

    table: StrictStr | None = None
    state: StrictStr | None = None
    kind: StrictStr | None = Field(default=None, description="A kind of job, or maintenance for all kinds of it.")
    include_maintenance: StrictBool = Field(
        default=False, description="Whether to list automatic maintenance, too; a kind includes it."
    )
    limit: StrictInt | None = None
    page_token: StrictStr | None = None


class JobRequest(Request):
    """A request about one job."""

    job_id: StrictStr


class RetryJobRequest(JobRequest):
    """A request to retry a job, or only the rows that failed in it."""

    only_failed: StrictBool = False


class QueryJobEventsRequest(ObjectRequest):
    """A request for the events of one job, some jobs or all jobs that match a filter.

    The server adds the database that the client works in as the id.
    """

    job_id: StrictStr | None = None
    job_ids: list[StrictStr] | None = None
    filter: StrictStr | None = None
    include_maintenance: StrictBool = Field(
        default=False, description="Whether to return events of automatic maintenance, too, if no job is named."
    )
    after: Annotated[StrictInt, Field(ge=0, lt=2**63)] | None = None
    limit: StrictInt | None = None
    limit_per_job: StrictInt | None = None


class JobFailure(BaseModel):
    """Why a job failed: in which phase, with which error, and whether a retry may succeed."""

    model_config = ConfigDict(extra="allow")

    phase: str | None = None
    type: str | None = None
    message: str | None = None
    retryable: bool | None = None


class JobSummary(BaseModel):
    """A job in a listing."""

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
    """The description of a job."""

    job_id: str
    job_type: str
    #: The state by the name that LanceDB's client reads; ``state`` is more precise.
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
    spec: dict[str, object]
    counters: dict[str, float]
    result: dict[str, object] | None = None
    failure: JobFailure | None = None
    stop_request: str | None = None
    waiting_for: str | None = None
    worker: str | None = None
    attempt: int
    retry_of: str | None = None


class CancelJobResponse(BaseModel):
    """The effect of a request to cancel a job."""

    job_id: str
    status: str
    transaction_id: str


class PauseJobResponse(CancelJobResponse):
    """The effect of a request to pause a job; LanceDB's client reads the two flags."""

    paused: bool
    committing: bool


class ResumeJobResponse(CancelJobResponse):
    """The effect of a request to resume a job; LanceDB's client reads the two flags."""

    resumed: bool
    still_pausing: bool


class RetryJobResponse(BaseModel):
    """The new job that retries another one."""

    job_id: str
    retry_of: str
    transaction_id: str
