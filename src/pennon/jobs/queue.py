"""The job queue between the processes that submit jobs and the workers that run them.

A worker holds a job under a lease, which it extends by heartbeats. When a lease expires, another worker takes the job
over; from then on every call of the first worker about the job raises ``LeaseLostError``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from lance_namespace.errors import InvalidInputError, InvalidTableStateError

from pennon.catalog import claim_rules, job_events, jobs, tables, versions
from pennon.catalog.jobs import Job
from pennon.core.clock import now_millis
from pennon.core.identifiers import format_identifier, new_id
from pennon.core.job_model import LEASED, MAINTENANCE, TERMINAL, Failure, JobKind, JobState, StopRequest
from pennon.jobs.errors import LeaseLostError, StopRequestedError, missing_job

if TYPE_CHECKING:
    from pennon.catalog import Connection, Database
    from pennon.catalog.job_events import JobEvent
    from pennon.catalog.tables import Table
    from pennon.core.job_model import JobResult, JobSpec

#: The number of jobs that a claim reads at a time.
_CANDIDATES = 16
#: The number of waiting maintenance jobs among which one of another namespace is looked for.
_WAITING_JOBS = 50


class Queue:
    """The jobs of a catalog.

    Methods that take a connection are part of the caller's transaction.
    """

    def __init__(self, database: Database, *, attempts: int = 5, clock: Callable[[], int] = now_millis) -> None:
        self._database = database
        self._attempts = attempts
        self._now = clock

    # --- For the processes that submit jobs ---

    def submit(
        self,
        connection: Connection,
        kind: JobKind,
        table: Table,
        spec: JobSpec,
        *,
        branch: str = "",
        target: str = "",
        priority: int = 0,
        submitted_by: str,
        context: Mapping[str, str] | None = None,
        retry_of: str | None = None,
    ) -> Job:
        """Add a job to the queue."""
        job = Job(
            id=new_id(),
            kind=kind,
            table_id=table.id,
            branch=branch,
            target=target,
            object=table.identifier,
            state=JobState.PENDING,
            priority=priority,
            spec=spec,
            submitted_by=submitted_by,
            context=dict(context or {}),
            created_at=self._now(),
            retry_of=retry_of,
        )
        jobs.insert(connection, job)
        data = {"by": submitted_by, **({"retry_of": retry_of} if retry_of else {})}
        job_events.append(connection, job.id, "submitted", job.created_at, data=data)
        return job

    def find(self, job_id: str) -> Job | None:
        """Return a job."""
        return self._database.read(lambda connection: jobs.find(connection, job_id))

    def cancel(self, connection: Connection, job: Job, by: str) -> str:
        """Cancel a locked job, and return how far that is: cancelled, cancelling, committing or already_….

        After "cancelling" the job commits nothing more. "committing" means that it is making a commit and stops
        afterwards.
        """
        if job.state in TERMINAL:
            return f"already_{job.state}"
        now = self._now()
        if job.state not in LEASED:
            jobs.finish(connection, job, JobState.CANCELLED, now)
            job_events.append(connection, job.id, JobState.CANCELLED, now, data={"by": by})
            return JobState.CANCELLED
        if job.stop_request != StopRequest.CANCEL:
            jobs.request_stop(connection, job.id, StopRequest.CANCEL)
            job_events.append(connection, job.id, "cancel_requested", now, data={"by": by})
        return JobState.COMMITTING if job.state == JobState.COMMITTING else "cancelling"

    def pause(self, connection: Connection, job: Job, by: str) -> str:
        """Pause a locked job, and return how far that is: paused, pausing, committing or already_paused."""
        if job.state in TERMINAL:
            raise InvalidTableStateError(f"Job {job.id!r} cannot be paused: it has ended and is {job.state}.")
        if job.state == JobState.PAUSED:
            return "already_paused"
        now = self._now()
        if job.state == JobState.PENDING:
            jobs.pause(connection, job.id, now)
            job_events.append(connection, job.id, JobState.PAUSED, now, data={"by": by})
            return JobState.PAUSED
        if job.stop_request in (StopRequest.CANCEL, StopRequest.TIMEOUT):
            raise InvalidTableStateError(f"Job {job.id!r} cannot be paused: it is about to end ({job.stop_request}).")
        if job.stop_request is None:
            jobs.request_stop(connection, job.id, StopRequest.PAUSE)
            job_events.append(connection, job.id, "pause_requested", now, data={"by": by})
        return JobState.COMMITTING if job.state == JobState.COMMITTING else "pausing"

    def resume(self, connection: Connection, job: Job, by: str) -> str:
        """Resume a locked job, and return what happened: resumed, still_pausing or not_paused."""
        if job.state == JobState.PAUSED:
            now = self._now()
            jobs.resume(connection, job.id, now)
            job_events.append(connection, job.id, "resumed", now, data={"by": by})
            return "resumed"
        is_pausing = job.state in LEASED and job.stop_request == StopRequest.PAUSE
        return "still_pausing" if is_pausing else "not_paused"

    def retry(self, connection: Connection, job: Job, by: str, *, only_failed: bool = False) -> Job:
        """Submit a locked job again, for all of its work or only for the rows that failed."""
        if job.state not in TERMINAL:
            raise InvalidTableStateError(f"Job {job.id!r} has not ended: it is {job.state}. Cancel it first.")
        if job.state == JobState.DONE and not only_failed:
            advice = " Set only_failed to retry its failed rows." if job.kind == JobKind.BACKFILL else ""
            raise InvalidTableStateError(f"Job {job.id!r} is done.{advice}")
        if only_failed and job.kind != JobKind.BACKFILL:
            raise InvalidInputError(f"Job {job.id!r} is a {job.kind}: only_failed is for backfills.")
        table = tables.find_by_id(connection, job.table_id)
        if table is None:
            raise InvalidTableStateError(f"The table {format_identifier(job.object)!r} of job {job.id!r} was dropped.")
        again = self.submit(
            connection,
            job.kind,
            table,
            _only_failed(connection, job) if only_failed else job.spec,
            branch=job.branch,
            target=job.target,
            priority=job.priority,
            submitted_by=by or job.submitted_by,
            context=job.context,
            retry_of=job.id,
        )
        job_events.append(connection, job.id, "retried", again.created_at, data={"job_id": again.id, "by": by})
        return again

    def sweep(self, oldest: int) -> None:
        """Fail the jobs whose table was dropped, and delete those that finished before a time."""

        def work(connection: Connection) -> None:
            for job in jobs.orphans(connection):
                self._fail_orphan(connection, job)
            jobs.delete_finished_before(connection, oldest)

        self._database.write(work)

    # --- For workers ---

    def has_work(self, *, users: bool = True, maintenance: bool = True) -> bool:
        """Return whether a claim may find a job. This only reads."""
        found = self._database.read(
            lambda connection: jobs.claimable(connection, self._now(), 1, users=users, maintenance=maintenance)
        )
        return bool(found)

    def claim(self, worker: str, lease_seconds: float, *, users: bool = True, maintenance: bool = True) -> Job | None:
        """Give a worker the next job of a user, of maintenance, or of both.

        By priority, then by age, and only one job per target at a time. Maintenance does not run beside users' jobs on
        the same branch, and namespaces take turns. A job whose lease has expired is taken over, or fails if it was
        taken over too often.
        """
        # Idle workers poll often, and a write transaction would block other writers.
        if not self.has_work(users=users, maintenance=maintenance):
            return None
        choose = partial(jobs.claimable, users=users, maintenance=maintenance)
        return self._database.write(
            lambda connection: self._claim(connection, worker, lease_seconds, choose, maintenance=maintenance)
        )

    def heartbeat(self, job: Job, lease_seconds: float, counters: Mapping[str, float]) -> StopRequest | None:
        """Extend the lease on a job, store its counters, and return the pending stop request."""

        def work(connection: Connection) -> StopRequest | None:
            now = self._now()
            if not jobs.extend_lease(connection, job, now + int(lease_seconds * 1000), counters):
                raise LeaseLostError(job)
            current = lock_job(connection, job.id)
            is_late = current.deadline_at is not None and now > current.deadline_at
            if is_late and current.stop_request in (None, StopRequest.PAUSE):
                jobs.request_stop(connection, job.id, StopRequest.TIMEOUT)
                job_events.append(connection, job.id, "timeout_reached", now)
                return StopRequest.TIMEOUT
            return current.stop_request

        return self._database.write(work)

    def begin_commit(self, connection: Connection, job: Job) -> None:
        """Check that a job may commit; part of the transaction of the commit.

        The row of the job stays locked until the transaction ends. A concurrent stop request therefore either
        prevents the commit or is answered with "committing".
        """
        if not jobs.begin_commit(connection, job):
            raise LeaseLostError(job)
        current = jobs.find(connection, job.id)
        if current is not None and current.stop_request is not None:
            raise StopRequestedError(current.stop_request)

    def end_commit(self, job: Job) -> None:
        """Record that a job has made its commit and continues."""
        if not self._database.write(lambda connection: jobs.end_commit(connection, job)):
            raise LeaseLostError(job)

    def check_lease(self, job: Job) -> None:
        """Raise LeaseLostError if the worker that claimed a job no longer holds its lease."""
        current = self.find(job.id)
        if current is None or not _is_same_lease(current, job):
            raise LeaseLostError(job)

    def should_yield(self, job: Job) -> bool:
        """Return whether a maintenance job must release its table: a user's job or an index build waits for it."""
        return self._database.read(lambda connection: claim_rules.is_in_the_way(connection, job.id, self._now()))

    def is_waited_for(self, job: Job) -> bool:
        """Return whether maintenance of another namespace could run in the place of a maintenance job."""
        waiting = self._database.read(
            lambda connection: jobs.claimable(connection, self._now(), _WAITING_JOBS, users=False)
        )
        return any(each.object[:-1] != job.object[:-1] for each in waiting)

    def may_compact(self, job: Job) -> bool:
        """Return whether a maintenance job may rewrite fragments: a paused job has checkpoints that refer to them."""
        return self._database.read(lambda connection: not claim_rules.has_paused(connection, job.table_id, job.branch))

    def add_event(self, job: Job, kind: str, unit: str = "", data: Mapping[str, object] | None = None) -> None:
        """Add an event to a job."""
        now = self._now()
        self._database.write(
            lambda connection: job_events.append(connection, job.id, kind, now, unit=unit, data=data),
        )

    def events_of_kind(self, job: Job, kind: str) -> list[JobEvent]:
        """Return the events of a job of one kind, in order."""
        return self._database.read(lambda connection: job_events.of_kind(connection, job.id, kind))

    def finish(
        self,
        job: Job,
        state: JobState,
        *,
        counters: Mapping[str, float],
        result: JobResult | None = None,
        failure: Failure | None = None,
    ) -> None:
        """Put a leased job into a terminal state."""
        if state not in TERMINAL:
            raise ValueError(f"a job cannot end in state {state!s}")

        def work(connection: Connection) -> None:
            now = self._now()
            if not jobs.finish(connection, job, state, now, counters=counters, result=result, failure=failure):
                raise LeaseLostError(job)
            data = {"counters": dict(counters), "result": result, "failure": failure}
            job_events.append(
                connection, job.id, state, now, data={name: value for name, value in data.items() if value}
            )

        self._database.write(work)

    def release(self, job: Job, counters: Mapping[str, float], *, paused: bool = False) -> None:
        """Give up the lease on a job, which becomes pending or paused. A pending stop request is applied instead."""

        def work(connection: Connection) -> None:
            current = _lock_leased(connection, job, counters)
            if not self._apply_stop_request(connection, current):
                self._release(connection, current, JobState.PAUSED if paused else JobState.PENDING)

        self._database.write(work)

    def requeue(self, job: Job, failure: Failure, counters: Mapping[str, float]) -> None:
        """Give up the lease on a job that lost its Spark session. It counts as a takeover, so too many fail the job."""

        def work(connection: Connection) -> None:
            current = _lock_leased(connection, job, counters)
            if self._apply_stop_request(connection, current):
                return
            if current.takeovers < self._attempts:
                current = replace(current, takeovers=current.takeovers + 1)
                self._release(connection, current, JobState.PENDING, failure)
            else:
                self._finish(connection, current, JobState.FAILED, failure)

        self._database.write(work)

    def _claim(
        self,
        connection: Connection,
        worker: str,
        lease_seconds: float,
        choose: Callable[..., list[Job]],
        *,
        maintenance: bool,
    ) -> Job | None:
        # Concurrent claims could choose jobs with the same target, and one of them would be refused.
        connection.lock("claim")
        now = self._now()
        blocked: set[str] = set()
        while candidates := [
            job for job in choose(connection, now, _CANDIDATES + len(blocked)) if job.id not in blocked
        ]:
            for candidate in candidates:
                is_wanted = maintenance or candidate.kind not in MAINTENANCE
                if candidate.state in LEASED and self._resolve_expired(connection, candidate, now, is_wanted):
                    continue
                if tables.find_by_id(connection, candidate.table_id) is None:
                    self._fail_orphan(connection, candidate)
                elif jobs.is_blocked(connection, candidate):
                    blocked.add(candidate.id)
                elif self._start(connection, candidate, worker, now, lease_seconds):
                    return jobs.find(connection, candidate.id)
        return None

    def _start(self, connection: Connection, job: Job, worker: str, now: int, lease_seconds: float) -> bool:
        seconds = job.spec.get("timeout_seconds")
        deadline_at = None if seconds is None else now + int(seconds * 1000)
        if not jobs.claim(connection, job, worker, now, now + int(lease_seconds * 1000), deadline_at):
            return False
        if job.kind in MAINTENANCE:
            claim_rules.take_turn(connection, job.home, now)
        is_takeover = job.state in LEASED
        data = {"worker": worker, "attempt": job.attempt + 1, **({"from": job.worker} if is_takeover else {})}
        job_events.append(connection, job.id, "taken_over" if is_takeover else "claimed", now, data=data)
        return True

    def _resolve_expired(self, connection: Connection, job: Job, now: int, is_wanted: bool) -> bool:
        """Handle a job whose lease has expired; false if it should be taken over."""
        current = jobs.lock(connection, job.id)
        if current is None or not _is_same_lease(current, job) or (current.lease_until or 0) >= now:
            return True  # its worker has sent a heartbeat since, or another worker has handled it
        if self._apply_stop_request(connection, current):
            return True
        if current.takeovers < self._attempts:
            if not is_wanted:  # it waits for a worker that runs maintenance, and no longer keeps users' jobs waiting
                self._release(connection, replace(current, takeovers=current.takeovers + 1), JobState.PENDING)
            return not is_wanted
        message = (
            f"{current.takeovers + 1} workers in a row were lost while they ran the job; "
            "see their logs, and the memory of their hosts."
        )
        failure = Failure(phase="worker", type="WorkerLost", message=message, retryable=True)
        self._finish(connection, current, JobState.FAILED, failure)
        return True

    def _apply_stop_request(self, connection: Connection, job: Job) -> bool:
        """Stop a job as requested, on behalf of its worker; false if there is no stop request."""
        if job.stop_request == StopRequest.CANCEL:
            self._finish(connection, job, JobState.CANCELLED)
        elif job.stop_request == StopRequest.TIMEOUT:
            self._finish(connection, job, JobState.TIMED_OUT, timeout_failure(job))
        elif job.stop_request == StopRequest.PAUSE:
            self._release(connection, job, JobState.PAUSED)
        return job.stop_request is not None

    def _release(self, connection: Connection, job: Job, state: JobState, failure: Failure | None = None) -> None:
        now = self._now()
        jobs.release(connection, job, state, now, job.counters)
        kind = JobState.PAUSED if state == JobState.PAUSED else "released"
        data = {"worker": job.worker, "counters": job.counters, **({"failure": failure} if failure else {})}
        job_events.append(connection, job.id, kind, now, data=data)

    def _finish(self, connection: Connection, job: Job, state: JobState, failure: Failure | None = None) -> None:
        now = self._now()
        if jobs.finish(connection, job, state, now, counters=job.counters, failure=failure):
            job_events.append(connection, job.id, state, now, data={"failure": failure} if failure else {})

    def _fail_orphan(self, connection: Connection, job: Job) -> None:
        message = f"The table {format_identifier(job.object)!r} was dropped."
        failure = Failure(phase="plan", type="TableNotFound", message=message, retryable=False)
        self._finish(connection, job, JobState.FAILED, failure)


def timeout_failure(job: Job) -> Failure:
    """Return the failure of a job that exceeded its time limit."""
    message = f"The job ran for longer than its timeout_seconds, {job.spec.get('timeout_seconds')}."
    return Failure(phase="compute", type="TimedOut", message=message, retryable=True)


def lock_job(connection: Connection, job_id: str) -> Job:
    """Lock the row of a job until the transaction ends, and return the job."""
    job = jobs.lock(connection, job_id)
    if job is None:
        raise missing_job(job_id)
    return job


def _lock_leased(connection: Connection, job: Job, counters: Mapping[str, float]) -> Job:
    """Lock the row of a job whose lease its worker must still hold, and return the job with new counters."""
    current = jobs.lock(connection, job.id)
    if current is None or not _is_same_lease(current, job):
        raise LeaseLostError(job)
    return replace(current, counters=dict(counters))


def _is_same_lease(current: Job, job: Job) -> bool:
    return current.state in LEASED and (current.worker, current.attempt) == (job.worker, job.attempt)


def _only_failed(connection: Connection, job: Job) -> JobSpec:
    """Return the spec of a backfill of the rows that failed in a job."""
    spec = job.backfill_spec.copy()
    spec["mode"] = "only_failed"
    newest = versions.latest(connection, job.table_id, job.branch)
    if newest is not None:
        spec["since"] = newest.version
    return spec
