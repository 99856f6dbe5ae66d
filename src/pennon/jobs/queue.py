"""The queue between those who submit jobs and the workers who carry them out.

A worker holds a job under a lease, which it prolongs by heartbeats. When the lease has run out, the job is given to
another worker; from then on, whatever the first one still does to the job raises ``LeaseLostError``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from lance_namespace.errors import TransactionNotFoundError

from pennon.catalog import job_events, jobs, tables
from pennon.catalog.jobs import CANCELLED, FAILED, HELD, PAUSED, PENDING, TIMED_OUT, Job
from pennon.core.clock import now_millis
from pennon.core.identifiers import Identifier, format_identifier, new_id
from pennon.jobs import control
from pennon.jobs.control import CANCEL, PAUSE, TIMEOUT

if TYPE_CHECKING:
    from pennon.catalog import Connection, Database
    from pennon.catalog.job_events import JobEvent

_CANDIDATES = 16

Json = dict[str, Any]


class LeaseLostError(Exception):
    """Another worker has the job, or it ended."""


class StopRequestedError(Exception):
    """The job is to stop, and may commit nothing more."""

    def __init__(self, wish: str) -> None:
        super().__init__(f"the job is to stop: {wish}")
        #: "cancel", "pause" or "timeout".
        self.wish = wish


class Queue:
    """The jobs of a catalog."""

    def __init__(self, database: Database, *, attempts: int = 5, clock: Callable[[], int] = now_millis) -> None:
        self._database = database
        self._attempts = attempts
        self._now = clock

    def submit(
        self,
        connection: Connection,
        *,
        kind: str,
        table_id: str,
        branch: str,
        target: str,
        object: Identifier,  # noqa: A002 (the field it becomes)
        spec: Json,
        priority: int = 0,
        submitted_by: str,
        context: dict[str, str],
    ) -> Job:
        """Put a job into the queue, in the caller's transaction."""
        job = Job(
            id=new_id(),
            kind=kind,
            table_id=table_id,
            branch=branch,
            target=target,
            object=object,
            state=PENDING,
            priority=priority,
            spec=spec,
            submitted_by=submitted_by,
            context=context,
            created_at=self._now(),
        )
        control.add(connection, job)
        return job

    def find(self, job_id: str) -> Job | None:
        """Return a job."""
        return self._database.read(lambda connection: jobs.find(connection, job_id))

    def has_work(self) -> bool:
        """Tell whether a claim may find a job; asking costs no write."""
        return bool(self._database.read(lambda connection: jobs.claimable(connection, self._now(), 1)))

    def claim(self, worker: str, lease_seconds: float) -> Job | None:
        """Give a worker the job that is due: by priority, then by age, never two of one target at once.

        A job whose worker was not heard of during its lease is taken over, or fails when that happened too often.
        """
        # Idle workers ask often, and must not keep others from writing.
        if not self.has_work():
            return None
        return self._database.write(lambda connection: self._claim(connection, worker, lease_seconds))

    def heartbeat(self, job: Job, lease_seconds: float, counters: Mapping[str, float]) -> str | None:
        """Prolong a lease and return what the job's worker is asked for: to cancel, pause or, timed out, to end."""
        return self._database.write(lambda connection: self._heartbeat(connection, job, lease_seconds, counters))

    def guard(self, connection: Connection, job: Job) -> None:
        """Let a commit happen only if the job may make it; part of the commit's own transaction.

        Nobody changes the job between this and the end of the transaction: whoever asks it to stop is told that it
        had committed, or the commit does not happen.
        """
        if not jobs.begin_commit(connection, job):
            raise lost(job)
        current = jobs.find(connection, job.id)
        if current is not None and current.wish is not None:
            raise StopRequestedError(current.wish)

    def check_held(self, job: Job) -> None:
        """Raise when a job is not its worker's any more."""
        current = self.find(job.id)
        if current is None or not is_holder(current, job):
            raise lost(job)

    def resume_running(self, job: Job) -> None:
        """Say that a commit is over and the job goes on."""
        if not self._database.write(lambda connection: jobs.end_commit(connection, job)):
            raise lost(job)

    def note(self, job: Job, kind: str, unit: str = "", data: Json | None = None) -> None:
        """Add an event to a job."""
        now = self._now()
        self._database.write(
            lambda connection: job_events.append(connection, job.id, kind, now, unit=unit, data=data),
        )

    def noted(self, job: Job, kind: str) -> list[JobEvent]:
        """Return the events of a job that are of a kind, in order."""
        return self._database.read(lambda connection: job_events.of_kind(connection, job.id, kind))

    def finish(
        self,
        job: Job,
        state: str,
        *,
        counters: Mapping[str, float],
        result: Json | None = None,
        failure: Json | None = None,
    ) -> None:
        """End a job that its worker holds."""
        if state not in jobs.ENDED:
            raise ValueError(f"a job cannot end as {state!r}")

        def work(connection: Connection) -> None:
            now = self._now()
            if not jobs.end(connection, job, state, now, counters=counters, result=result, failure=failure):
                raise lost(job)
            data = {"counters": dict(counters), "result": result, "failure": failure}
            job_events.append(
                connection, job.id, state, now, data={name: value for name, value in data.items() if value}
            )

        self._database.write(work)

    def release(self, job: Job, state: Literal["pending", "paused"], counters: Mapping[str, float]) -> None:
        """Give a job back, to be carried on later; a wish that was still open is granted now."""

        def work(connection: Connection) -> None:
            current = held(connection, job, counters)
            if not self._grant(connection, current):
                self._put_back(connection, current, state)

        self._database.write(work)

    def hand_over(self, job: Job, failure: Json, counters: Mapping[str, float]) -> None:
        """Give back a job that lost what it ran on, as one that lost its worker; it fails when that is too often."""

        def work(connection: Connection) -> None:
            current = held(connection, job, counters)
            if self._grant(connection, current):
                return
            if current.takeovers < self._attempts:
                self._put_back(connection, replace(current, takeovers=current.takeovers + 1), PENDING, failure)
            else:
                self._end(connection, current, FAILED, failure)

        self._database.write(work)

    def cancel(self, job_id: str, by: str = "") -> str:
        """Cancel a job and tell how far that is: cancelled, cancelling, committing or already_…."""
        return self._control(job_id, lambda connection, job: control.cancel(connection, job, self._now(), by))

    def pause(self, job_id: str, by: str = "") -> str:
        """Let a job rest and tell how far that is: paused, pausing, committing or already_paused."""
        return self._control(job_id, lambda connection, job: control.pause(connection, job, self._now(), by))

    def resume(self, job_id: str, by: str = "") -> str:
        """Let a job that rests go on and tell whether it does: resumed, still_pausing or not_paused."""
        return self._control(job_id, lambda connection, job: control.resume(connection, job, self._now(), by))

    def retry(self, job_id: str, *, only_failed: bool = False, by: str = "") -> Job:
        """Submit again what a job was to do that did not get it done."""

        def work(connection: Connection) -> Job:
            job = locked(connection, job_id)
            return control.retry(connection, job, self._now(), only_failed=only_failed, by=by)

        return self._database.write(work)

    def sweep(self, oldest: int) -> None:
        """End jobs whose table is gone, and forget those that ended before a time."""

        def work(connection: Connection) -> None:
            for job in jobs.orphans(connection):
                self._end_orphan(connection, job)
            jobs.forget_before(connection, oldest)

        self._database.write(work)

    def _control(self, job_id: str, change: Callable[[Connection, Job], str]) -> str:
        return self._database.write(lambda connection: change(connection, locked(connection, job_id)))

    def _claim(self, connection: Connection, worker: str, lease_seconds: float) -> Job | None:
        # Two that claim at once would choose jobs of one target, and one of them in vain.
        connection.take_turn("claim")
        now = self._now()
        hindered: set[str] = set()
        while candidates := [
            job for job in jobs.claimable(connection, now, _CANDIDATES + len(hindered)) if job.id not in hindered
        ]:
            for candidate in candidates:
                if candidate.state in HELD and self._settle(connection, candidate, now):
                    continue
                if tables.find_by_id(connection, candidate.table_id) is None:
                    self._end_orphan(connection, candidate)
                elif jobs.is_busy(connection, candidate):
                    hindered.add(candidate.id)
                elif self._take(connection, candidate, worker, now, lease_seconds):
                    return jobs.find(connection, candidate.id)
        return None

    def _take(self, connection: Connection, job: Job, worker: str, now: int, lease_seconds: float) -> bool:
        seconds = job.spec.get("timeout_seconds")
        deadline_at = None if seconds is None else now + int(seconds * 1000)
        if not jobs.take(connection, job, worker, now, now + int(lease_seconds * 1000), deadline_at):
            return False
        lost_by = {"from": job.worker} if job.state in HELD else {}
        kind = "taken_over" if lost_by else "claimed"
        data = {"worker": worker, "attempt": job.attempt + 1, **lost_by}
        job_events.append(connection, job.id, kind, now, data=data)
        return True

    def _settle(self, connection: Connection, job: Job, now: int) -> bool:
        """See to a job whose lease ran out; false when it is to be taken over."""
        current = jobs.lock(connection, job.id)
        if current is None or not is_holder(current, job) or (current.lease_until or 0) >= now:
            return True  # its worker was heard of meanwhile, or somebody else saw to it
        if self._grant(connection, current):
            return True
        if current.takeovers < self._attempts:
            return False
        failure = {
            "phase": "worker",
            "type": "WorkerLost",
            "message": f"{current.takeovers + 1} workers in a row were lost while they carried the job out; "
            "see their logs, and the memory of their hosts.",
            "retryable": True,
        }
        self._end(connection, current, FAILED, failure)
        return True

    def _grant(self, connection: Connection, job: Job) -> bool:
        """Do what was asked of a job whose worker does not do it any more; false when nothing was."""
        if job.wish == CANCEL:
            self._end(connection, job, CANCELLED)
        elif job.wish == TIMEOUT:
            self._end(connection, job, TIMED_OUT, timed_out(job))
        elif job.wish == PAUSE:
            self._put_back(connection, job, PAUSED)
        return job.wish is not None

    def _put_back(self, connection: Connection, job: Job, state: str, failure: Json | None = None) -> None:
        now = self._now()
        jobs.put_back(connection, job, state, now, job.counters)
        kind = PAUSED if state == PAUSED else "released"
        data = {"worker": job.worker, "counters": job.counters, **({"failure": failure} if failure else {})}
        job_events.append(connection, job.id, kind, now, data=data)

    def _end(self, connection: Connection, job: Job, state: str, failure: Json | None = None) -> None:
        now = self._now()
        if jobs.end(connection, job, state, now, counters=job.counters, failure=failure):
            job_events.append(connection, job.id, state, now, data={"failure": failure} if failure else {})

    def _end_orphan(self, connection: Connection, job: Job) -> None:
        failure = {
            "phase": "plan",
            "type": "TableNotFound",
            "message": f"The table {format_identifier(job.object)!r} was dropped.",
            "retryable": False,
        }
        self._end(connection, job, FAILED, failure)

    def _heartbeat(
        self, connection: Connection, job: Job, lease_seconds: float, counters: Mapping[str, float]
    ) -> str | None:
        now = self._now()
        if not jobs.prolong(connection, job, now + int(lease_seconds * 1000), counters):
            raise lost(job)
        current = locked(connection, job.id)
        if current.deadline_at is not None and now > current.deadline_at and current.wish in (None, PAUSE):
            jobs.wish(connection, job.id, TIMEOUT)
            job_events.append(connection, job.id, "timeout_reached", now)
            return TIMEOUT
        return current.wish


def is_holder(current: Job, job: Job) -> bool:
    """Tell whether a job is still held by whom it was claimed by."""
    return current.state in HELD and (current.worker, current.attempt) == (job.worker, job.attempt)


def held(connection: Connection, job: Job, counters: Mapping[str, float]) -> Job:
    """Return a job that its worker holds, with what it counted, and that nobody else changes in this transaction."""
    current = jobs.lock(connection, job.id)
    if current is None or not is_holder(current, job):
        raise lost(job)
    return replace(current, counters=dict(counters))


def lost(job: Job) -> LeaseLostError:
    """Return the error for a job that its worker does not hold any more."""
    return LeaseLostError(f"job {job.id} is not held by {job.worker} any more (attempt {job.attempt})")


def timed_out(job: Job) -> Json:
    """Return the failure of a job that ran for too long."""
    seconds = job.spec.get("timeout_seconds")
    return {
        "phase": "compute",
        "type": "TimedOut",
        "message": f"The job ran for longer than its timeout_seconds, {seconds}.",
        "retryable": True,
    }


def locked(connection: Connection, job_id: str) -> Job:
    """Return a job that nobody else changes before this transaction ends, or raise that there is none."""
    job = jobs.lock(connection, job_id)
    if job is None:
        raise missing_job(job_id)
    return job


def missing_job(job_id: str) -> TransactionNotFoundError:
    """Return the error for a job that does not exist, or not for who asks."""
    return TransactionNotFoundError(f"Job {job_id[:64]!r} does not exist.")
