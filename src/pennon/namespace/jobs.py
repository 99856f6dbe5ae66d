"""Operations on jobs: readers of a job's table may see the job, writers may change it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from lance_namespace.errors import InvalidInputError, PermissionDeniedError

from pennon.catalog import job_events, jobs
from pennon.core.caller import Role, current_caller
from pennon.core.identifiers import ROOT, Identifier, format_identifier, is_within, parse_identifier
from pennon.core.job_model import ACTIVE, MAINTENANCE, TERMINAL, JobKind, JobState
from pennon.core.paging import cut_page, decode_token, page_size
from pennon.jobs.errors import missing_job
from pennon.jobs.queue import lock_job
from pennon.namespace.job_privacy import event_without_hidden_names, reads_hidden, without_hidden_names
from pennon.namespace.models.jobs import (
    CancelJobResponse,
    DescribeJobResponse,
    JobFailure,
    JobRequest,
    JobSummary,
    ListJobsRequest,
    ListJobsResponse,
    PauseJobResponse,
    ResumeJobResponse,
    RetryJobRequest,
    RetryJobResponse,
)
from pennon.namespace.requests import namespace_id, request_as
from pennon.namespace.resolver import readable_scopes
from pennon.namespace.transaction_records import record_transaction
from pennon.services import Services

if TYPE_CHECKING:
    from pennon.catalog import Connection
    from pennon.catalog.job_events import JobEvent
    from pennon.catalog.jobs import Job

_LISTING = "jobs"
_DEFAULT_PAGE = 1000
#: The filter for all kinds of maintenance.
_ALL_MAINTENANCE = "maintenance"
#: The names of states in LanceDB's client.
_LANCEDB_STATES = {**dict.fromkeys(ACTIVE, "IN_PROGRESS"), **{state: state.upper() for state in TERMINAL}}

Change = Callable[["Connection", "Job", str], str]


@dataclass(frozen=True)
class JobOperations:
    """List, describe, cancel, pause, resume and retry jobs, and read their events."""

    services: Services

    def list_jobs(self, request: ListJobsRequest) -> ListJobsResponse:
        """List the jobs that the caller may see, newest first."""
        request = request_as(ListJobsRequest, request)
        database = namespace_id(request)
        size = page_size(_DEFAULT_PAGE if request.limit is None else request.limit, self.services.settings.page_limit)
        key = decode_token(_LISTING, request.page_token, (str,))
        found = self.visible_jobs(
            database,
            size + 1,
            before=str(key[0]) if key else None,
            states=_parse_states(request.state),
            table=(*database, *parse_identifier(request.table)) if request.table else None,
            kinds=_parse_kinds(request.kind),
            include_maintenance=request.include_maintenance,
        )
        page = cut_page(_LISTING, found, size, lambda job: (job.id,))
        return ListJobsResponse(jobs=[_summary(job, database) for job in page.items], page_token=page.token)

    def describe_job(self, request: JobRequest) -> DescribeJobResponse:
        """Describe a job."""
        request = request_as(JobRequest, request)
        job = self.visible_job(request.job_id)
        return _description(job, self._waiting_for(job) if job.state == JobState.PENDING else None)

    def cancel_job(self, request: JobRequest) -> CancelJobResponse:
        """Cancel a job, or request it if a worker is running the job."""
        status, transaction_id = self._change_job("CancelJob", request, self.services.queue.cancel)
        return CancelJobResponse(job_id=request.job_id, status=status, transaction_id=transaction_id)

    def pause_job(self, request: JobRequest) -> PauseJobResponse:
        """Pause a job, or request it if a worker is running the job."""
        status, transaction_id = self._change_job("PauseJob", request, self.services.queue.pause)
        return PauseJobResponse(
            job_id=request.job_id,
            status=status,
            transaction_id=transaction_id,
            paused=status in {"pausing", JobState.PAUSED},
            committing=status == JobState.COMMITTING,
        )

    def resume_job(self, request: JobRequest) -> ResumeJobResponse:
        """Resume a paused job."""
        status, transaction_id = self._change_job("ResumeJob", request, self.services.queue.resume)
        return ResumeJobResponse(
            job_id=request.job_id,
            status=status,
            transaction_id=transaction_id,
            resumed=status == "resumed",
            still_pausing=status == "still_pausing",
        )

    def retry_job(self, request: RetryJobRequest) -> RetryJobResponse:
        """Submit the unfinished work of an ended job as a new job."""
        request = request_as(RetryJobRequest, request)

        def retry(connection: Connection, job: Job, by: str) -> str:
            return self.services.queue.retry(connection, job, by, only_failed=request.only_failed).id

        new_id, transaction_id = self._change_job("RetryJob", request, retry)
        return RetryJobResponse(job_id=new_id, retry_of=request.job_id, transaction_id=transaction_id)

    def visible_job(self, job_id: str) -> Job:
        """Return a job if the caller may see it."""
        job = self.services.queue.find(job_id)
        if job is None or current_caller().principal.role_on(job.home) is None:
            raise missing_job(job_id)
        if (job.result or job.failure) and self._reads_hidden(job):
            return without_hidden_names(job, current_caller().principal)
        return job

    def visible_jobs(
        self,
        database: Identifier,
        limit: int,
        *,
        before: str | None = None,
        states: Sequence[JobState] = tuple(JobState),
        table: Identifier | None = None,
        kinds: Sequence[JobKind] = (),
        include_maintenance: bool = False,
    ) -> list[Job]:
        """Return the newest jobs of a database or a table that the caller may see, optionally before a job id.

        Automatic maintenance is left out, unless it is included or kinds are named.
        """
        read = partial(
            jobs.page,
            before=before,
            limit=limit,
            states=states,
            table=table or None,
            kinds=kinds or tuple(JobKind),
            exclude_automatic=not kinds and not include_maintenance,
        )
        found = [
            job
            for scope in readable_scopes(database)
            for job in self.services.database.read(partial(read, scope=scope))
        ]
        return sorted(found, key=lambda job: job.id, reverse=True)[:limit]

    def list_events(self, job: Job, after: int, limit: int) -> list[JobEvent]:
        """Return the events of a job after an event's number."""
        found = self.services.database.read(lambda connection: job_events.after(connection, job.id, after, limit))
        if not found or not self._reads_hidden(job):
            return found
        return [event_without_hidden_names(event, job, current_caller().principal) for event in found]

    def _reads_hidden(self, job: Job) -> bool:
        """Return whether a job refreshes a view over a table that the caller may not see."""
        principal = current_caller().principal
        if job.kind != JobKind.REFRESH or principal.role_on(ROOT) is not None:
            return False
        return self.services.database.read(lambda connection: reads_hidden(connection, job.table_id, principal))

    def _change_job(self, operation: str, request: JobRequest, change: Change) -> tuple[str, str]:
        """Change a job if the caller may, and record it in the same transaction."""
        request = request_as(JobRequest, request)
        principal = current_caller().principal

        def work(connection: Connection) -> tuple[str, str]:
            job = lock_job(connection, request.job_id)
            role = principal.role_on(job.home)
            if role is None:
                raise missing_job(request.job_id)
            if role < Role.WRITER:
                raise PermissionDeniedError(
                    f"{operation} requires the role writer; the key {principal.name!r} is a reader of the job's table."
                )
            outcome = change(connection, job, principal.name)
            return outcome, record_transaction(connection, operation, job.object)

        return self.services.database.write(work)

    def _waiting_for(self, job: Job) -> str:
        """Return what a pending job waits for."""
        alive = self.services.worker_registry.alive()
        if not alive:
            return "no worker is running; start one with `pennon worker`"
        if self.services.database.read(lambda connection: jobs.is_blocked(connection, job)):
            return "another job of this column" if job.target else "another job of this view"
        return "a free worker"


def _parse_states(name: str | None) -> tuple[JobState, ...]:
    """Return the states that a filter names: one of Pennon's, or one of LanceDB's client."""
    if name is None:
        return tuple(JobState)
    plain = name.lower()
    named = tuple(state for state in JobState if plain in (state, _LANCEDB_STATES[state].lower()))
    if not named:
        raise InvalidInputError(f"state is {name[:64]!r}; it must be one of {', '.join(JobState)} or in_progress.")
    return named


def _parse_kinds(name: str | None) -> tuple[JobKind, ...]:
    """Return the kinds that a filter names: one, or all of maintenance; none without a filter."""
    if name is None:
        return ()
    plain = name.lower()
    named = tuple(MAINTENANCE) if plain == _ALL_MAINTENANCE else tuple(kind for kind in JobKind if kind == plain)
    if not named:
        raise InvalidInputError(f"kind is {name[:64]!r}; it must be one of {', '.join(JobKind)} or {_ALL_MAINTENANCE}.")
    return named


def _name(job: Job, database: Identifier) -> str:
    inside = is_within(job.object, database)
    return format_identifier(job.object[len(database) :] if inside else job.object)


def _summary(job: Job, database: Identifier) -> JobSummary:
    return JobSummary(
        job_id=job.id,
        job_type=job.kind,
        table=_name(job, database),
        branch=job.branch,
        target=job.target,
        state=job.state,
        created_at_millis=job.created_at,
        started_at_millis=job.started_at,
        finished_at_millis=job.finished_at,
        submitted_by=job.submitted_by,
        counters=job.counters,
    )


def _description(job: Job, waiting_for: str | None) -> DescribeJobResponse:
    return DescribeJobResponse(
        job_id=job.id,
        job_type=job.kind,
        job_state=_LANCEDB_STATES[job.state],
        state=job.state,
        table=format_identifier(job.object),
        branch=job.branch,
        target=job.target,
        priority=job.priority,
        submitted_by=job.submitted_by,
        creation_ms=job.created_at,
        started_ms=job.started_at,
        finished_ms=job.finished_at,
        spec=dict(job.spec),
        counters=job.counters,
        result=None if job.result is None else dict(job.result),
        failure=None if job.failure is None else JobFailure(**job.failure),
        stop_request=job.stop_request,
        waiting_for=waiting_for,
        worker=job.worker,
        attempt=job.attempt,
        retry_of=job.retry_of,
    )
