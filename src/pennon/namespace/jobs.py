"""Operations on jobs: whoever may read a job's table sees it, whoever may write there may change it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from lance_namespace.errors import InvalidInputError, PermissionDeniedError

from pennon.catalog import job_events, jobs
from pennon.catalog.jobs import ACTIVE, COMMITTING, ENDED, PAUSED, PENDING, STATES
from pennon.core.caller import Role, current_caller
from pennon.core.clock import now_millis
from pennon.core.identifiers import ROOT, Identifier, format_identifier, is_within, parse_identifier
from pennon.core.paging import cut_page, decode_token, page_size
from pennon.jobs import control
from pennon.jobs.auto_refresh import KIND as REFRESH
from pennon.jobs.queue import locked, missing_job
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
from pennon.namespace.operations import Operations, namespace_id, record_transaction, request_as

if TYPE_CHECKING:
    from pennon.catalog import Connection
    from pennon.catalog.job_events import JobEvent
    from pennon.catalog.jobs import Job

_LISTING = "jobs"
_PAGE = 1000
#: States as LanceDB's client knows them.
_WIRE_STATES = {**dict.fromkeys(ACTIVE, "IN_PROGRESS"), **{state: state.upper() for state in ENDED}}

Change = Callable[["Connection", "Job", int, str], str]


class JobOperations(Operations):
    """List, describe, cancel, pause, resume and repeat jobs, and read what happened to them."""

    def list_jobs(self, request: ListJobsRequest) -> ListJobsResponse:
        """List the jobs that the caller may see, newest first."""
        request = request_as(ListJobsRequest, request)
        database = namespace_id(request)
        size = page_size(_PAGE if request.limit is None else request.limit, self.services.settings.page_limit)
        key = decode_token(_LISTING, request.page_token, (str,))
        found = self.visible_jobs(
            database,
            size + 1,
            before=str(key[0]) if key else None,
            states=_states(request.state),
            table=(*database, *parse_identifier(request.table)) if request.table else None,
        )
        page = cut_page(_LISTING, found, size, lambda job: (job.id,))
        return ListJobsResponse(jobs=[_summary(job, database) for job in page.items], page_token=page.token)

    def describe_job(self, request: JobRequest) -> DescribeJobResponse:
        """Return all that is known of a job."""
        request = request_as(JobRequest, request)
        job = self.visible_job(request.job_id)
        return _description(job, self._awaited(job) if job.state == PENDING else None)

    def cancel_job(self, request: JobRequest) -> CancelJobResponse:
        """Cancel a job, and tell how far that is."""
        status, transaction_id = self._change_job("CancelJob", request, control.cancel)
        return CancelJobResponse(job_id=request.job_id, status=status, transaction_id=transaction_id)

    def pause_job(self, request: JobRequest) -> PauseJobResponse:
        """Let a job rest, and tell how far that is."""
        status, transaction_id = self._change_job("PauseJob", request, control.pause)
        return PauseJobResponse(
            job_id=request.job_id,
            status=status,
            transaction_id=transaction_id,
            paused=status in {"pausing", PAUSED},
            committing=status == COMMITTING,
        )

    def resume_job(self, request: JobRequest) -> ResumeJobResponse:
        """Let a job that rests go on, and tell whether it does."""
        status, transaction_id = self._change_job("ResumeJob", request, control.resume)
        return ResumeJobResponse(
            job_id=request.job_id,
            status=status,
            transaction_id=transaction_id,
            resumed=status == "resumed",
            still_pausing=status == "still_pausing",
        )

    def retry_job(self, request: RetryJobRequest) -> RetryJobResponse:
        """Submit again what a job was to do that did not get it done."""
        request = request_as(RetryJobRequest, request)

        def repeat(connection: Connection, job: Job, now: int, by: str) -> str:
            return control.retry(connection, job, now, only_failed=request.only_failed, by=by).id

        again, transaction_id = self._change_job("RetryJob", request, repeat)
        return RetryJobResponse(job_id=again, retry_of=request.job_id, transaction_id=transaction_id)

    def visible_job(self, job_id: str) -> Job:
        """Return a job, if the caller may see it."""
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
        states: Sequence[str] = STATES,
        table: Identifier | None = None,
    ) -> list[Job]:
        """Return the newest jobs of a database, or of a table, that the caller may see; those made before one."""
        read = partial(jobs.page, before=before, limit=limit, states=states, table=table or None)
        found = [job for scope in _scopes_in(database) for job in self._read(partial(read, scope=scope))]
        return sorted(found, key=lambda job: job.id, reverse=True)[:limit]

    def events_of(self, job: Job, after: int, limit: int) -> list[JobEvent]:
        """Return what happened to a job after an event."""
        found = self._read(lambda connection: job_events.after(connection, job.id, after, limit))
        if not found or not self._reads_hidden(job):
            return found
        return [event_without_hidden_names(event, job, current_caller().principal) for event in found]

    def _reads_hidden(self, job: Job) -> bool:
        """Return whether a job is of a view that reads what the caller may not see."""
        principal = current_caller().principal
        if job.kind != REFRESH or principal.role_on(ROOT) is not None:
            return False
        return self._read(lambda connection: reads_hidden(connection, job.table_id, principal))

    def _change_job(self, operation: str, request: JobRequest, change: Change) -> tuple[str, str]:
        """Change a job, if the caller may, and record that it did; both or neither."""
        request = request_as(JobRequest, request)
        principal = current_caller().principal

        def work(connection: Connection) -> tuple[str, str]:
            job = locked(connection, request.job_id)
            role = principal.role_on(job.home)
            if role is None:
                raise missing_job(request.job_id)
            if role < Role.WRITER:
                raise PermissionDeniedError(
                    f"The key {principal.name!r} is a reader there; {operation} needs a writer."
                )
            outcome = change(connection, job, now_millis(), principal.name)
            return outcome, record_transaction(connection, operation, job.object)

        return self._write(work)

    def _awaited(self, job: Job) -> str:
        """Say what a job waits for."""
        alive = self.services.worker_registry.alive()
        if not alive:
            return "no worker is running; start one with `pennon worker`"
        if self._read(lambda connection: jobs.is_busy(connection, job)):
            return "another job of this column" if job.target else "another job of this view"
        return "a free worker"


def _scopes_in(database: Identifier) -> list[Identifier]:
    """Return the outermost namespaces of a database that the caller may look into."""
    inside = {database if is_within(database, scope) else scope for scope in current_caller().principal.scopes()}
    visible = [scope for scope in inside if is_within(scope, database)]
    return [scope for scope in visible if not any(scope != other and is_within(scope, other) for other in visible)]


def _states(wanted: str | None) -> tuple[str, ...]:
    """Return the states that a filter names: one of Pennon's, or one as LanceDB's client knows them."""
    if wanted is None:
        return STATES
    plain = wanted.lower()
    if plain in STATES:
        return (plain,)
    named = tuple(state for state in STATES if _WIRE_STATES[state].lower() == plain)
    if not named:
        raise InvalidInputError(f"state is {wanted[:64]!r}; it must be one of {', '.join(STATES)} or in_progress.")
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
        job_state=_WIRE_STATES[job.state],
        state=job.state,
        table=format_identifier(job.object),
        branch=job.branch,
        target=job.target,
        priority=job.priority,
        submitted_by=job.submitted_by,
        creation_ms=job.created_at,
        started_ms=job.started_at,
        finished_ms=job.finished_at,
        spec=job.spec,
        counters=job.counters,
        result=job.result,
        failure=None if job.failure is None else JobFailure(**job.failure),
        wish=job.wish,
        waiting_for=waiting_for,
        worker=job.worker,
        attempt=job.attempt,
        retry_of=job.retry_of,
    )
