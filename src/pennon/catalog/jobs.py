"""Jobs: work that is submitted once and run by a worker. The row of a job outlives its table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, LiteralString, cast

from pennon.catalog import maintenance_totals
from pennon.catalog.claim_rules import IS_MAINTENANCE, MAY_START, oldest_heartbeat
from pennon.core.identifiers import Identifier, child_key_range, identifier_of, key_of
from pennon.core.job_model import AUTOMATIC_MAINTENANCE, LEASED, MAINTENANCE, Counters, JobKind, JobState, StopRequest

if TYPE_CHECKING:
    from pennon.catalog.database.protocol import Connection, Row
    from pennon.core.job_model import (
        BackfillSpec,
        Failure,
        JobResult,
        JobSpec,
        MaintenanceResult,
        MaintenanceSpec,
        RefreshSpec,
    )


@dataclass(frozen=True)
class Job:
    """A job as the catalog stores it."""

    id: str
    kind: JobKind
    table_id: str
    branch: str
    #: The part of the table that the job writes; only one job runs per target.
    target: str
    #: The identifier of the table now, or when it was dropped.
    object: Identifier
    state: JobState
    priority: int
    spec: JobSpec
    submitted_by: str
    context: dict[str, str]
    created_at: int
    started_at: int | None = None
    finished_at: int | None = None
    worker: str | None = None
    lease_until: int | None = None
    #: The number of claims; worker and attempt together identify the holder of the lease.
    attempt: int = 0
    #: Set while a worker holds a job that it must stop.
    stop_request: StopRequest | None = None
    counters: Counters = field(default_factory=dict)
    result: JobResult | None = None
    failure: Failure | None = None
    #: When the time limit of the job expires; set when the job starts.
    deadline_at: int | None = None
    #: The number of takeovers since the last commit of the job.
    takeovers: int = 0
    #: The job that this one repeats.
    retry_of: str | None = None

    @property
    def backfill_spec(self) -> BackfillSpec:
        """The spec of a backfill."""
        return cast("BackfillSpec", self.spec)

    @property
    def refresh_spec(self) -> RefreshSpec:
        """The spec of a refresh."""
        return cast("RefreshSpec", self.spec)

    @property
    def maintenance_spec(self) -> MaintenanceSpec:
        """The spec of a maintenance job."""
        return cast("MaintenanceSpec", self.spec)

    @property
    def columns(self) -> frozenset[str]:
        """The columns that the job writes: its target, and the columns it fills with or before it."""
        return frozenset({self.target, *self.backfill_spec.get("columns", ())})

    @property
    def home(self) -> Identifier:
        """The namespace whose roles decide who can see the job."""
        return self.object[:-1]


_FROM: LiteralString = "FROM jobs j LEFT JOIN tables t ON t.id = j.table_id "
_NAMESPACE: LiteralString = "COALESCE(t.namespace, j.namespace)"
_SELECT: LiteralString = (
    "SELECT j.id, j.kind, j.table_id, j.branch, j.target, " + _NAMESPACE + ", COALESCE(t.name, j.name), j.state, "
    "j.priority, j.spec, j.submitted_by, j.context, j.created_at, j.started_at, j.finished_at, j.worker, "
    "j.lease_until, j.attempt, j.stop_request, j.counters, j.result, j.failure, j.deadline_at, j.takeovers, j.retry_of "
    + _FROM
)
_TARGET_IS_FREE: LiteralString = (
    "NOT EXISTS (SELECT 1 FROM jobs o WHERE o.table_id = j.table_id AND o.branch = j.branch AND o.target = j.target "
    "AND o.state IN ('running', 'committing'))"
)
_COLUMNS = (
    *("id", "kind", "table_id", "branch", "target", "namespace", "name", "state", "priority", "spec", "submitted_by"),
    *("context", "created_at", "started_at", "finished_at", "worker", "lease_until", "attempt", "stop_request"),
    *("counters", "result", "failure", "deadline_at", "takeovers", "retry_of"),
)


def _job(row: Row) -> Job:
    named = dict(zip(_COLUMNS, row, strict=True))
    named["object"] = (*identifier_of(named.pop("namespace")), named.pop("name"))
    for name in ("spec", "context", "counters", "result", "failure"):
        named[name] = None if named[name] is None else json.loads(named[name])
    for name, vocabulary in (("kind", JobKind), ("state", JobState), ("stop_request", StopRequest)):
        named[name] = None if named[name] is None else vocabulary(named[name])
    return Job(**named)


def _dumped(value: Mapping[str, object] | None) -> str | None:
    return None if value is None else json.dumps(value)


def insert(connection: Connection, job: Job) -> None:
    """Add a job."""
    connection.run(
        "INSERT INTO jobs (id, kind, table_id, branch, target, namespace, name, state, priority, spec, submitted_by, "
        "context, retry_of, created_at, attempt, takeovers, counters, event_count) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, ?, 0)",
        job.id,
        job.kind,
        job.table_id,
        job.branch,
        job.target,
        key_of(job.object[:-1]),
        job.object[-1],
        job.state,
        job.priority,
        _dumped(job.spec),
        job.submitted_by,
        _dumped(job.context),
        job.retry_of,
        job.created_at,
        _dumped(job.counters),
    )


def find(connection: Connection, job_id: str) -> Job | None:
    """Return a job."""
    if not job_id.isalnum():
        return None  # not an id that Pennon makes, and possibly a string that a database cannot compare
    row = connection.one(_SELECT + "WHERE j.id = ?", job_id)
    return _job(row) if row else None


def lock(connection: Connection, job_id: str) -> Job | None:
    """Return a job, and lock its row until the transaction ends."""
    if not job_id.isalnum() or connection.run("UPDATE jobs SET event_count = event_count WHERE id = ?", job_id) == 0:
        return None
    return find(connection, job_id)


def page(
    connection: Connection,
    scope: Sequence[str],
    *,
    before: str | None,
    limit: int,
    states: Sequence[JobState] = tuple(JobState),
    table: Sequence[str] | None = None,
    kinds: Sequence[JobKind] = tuple(JobKind),
    exclude_automatic: bool = False,
) -> list[Job]:
    """Return the jobs on tables in a namespace and below it, newest first, starting after the job ``before``.

    Args:
        connection: The connection.
        scope: The namespace.
        before: The job that the page starts after.
        limit: The maximum number of jobs.
        states: The states to return.
        table: The table to return jobs of.
        kinds: The kinds to return.
        exclude_automatic: Whether to leave out automatic maintenance: a busy catalog has thousands of such jobs.
    """
    key = key_of(scope)
    low, high = child_key_range(key)
    padded = [*states, *[""] * (len(JobState) - len(states))]
    rows = connection.all(
        _SELECT + "WHERE j.id < ? AND (" + _NAMESPACE + " = ? OR (" + _NAMESPACE + " > ? AND " + _NAMESPACE + " < ?)) "
        "AND j.state IN (?, ?, ?, ?, ?, ?, ?, ?) AND j.kind IN (?, ?, ?, ?, ?, ?) "
        "AND (? = 0 OR j.submitted_by <> ? OR j.kind NOT IN ('compact', 'optimize_indices', 'cleanup', 'maintain')) "
        "AND (? = 0 OR (" + _NAMESPACE + " = ? AND COALESCE(t.name, j.name) = ?)) ORDER BY j.id DESC LIMIT ?",
        before or "z",
        key,
        low,
        high,
        *padded,
        *kinds,
        *[""] * (len(JobKind) - len(kinds)),
        int(exclude_automatic),
        AUTOMATIC_MAINTENANCE,
        int(table is not None),
        key_of(table[:-1]) if table else "",
        table[-1] if table else "",
        limit,
    )
    return [_job(row) for row in rows]


def claimable(
    connection: Connection, now: int, limit: int, *, users: bool = True, maintenance: bool = True
) -> list[Job]:
    """Return the pending jobs that may start and the jobs whose lease has expired, in the order to run them.

    Jobs are those of users, maintenance, or both. Maintenance waits for the jobs of users and for index builds, and
    the namespace whose maintenance ran least recently comes first. Maintenance whose lease has expired is always
    among them: jobs of users wait until a worker has taken it over or released it.
    """
    rows = connection.all(
        # The first condition is implied by the others; it selects the partial index on active jobs.
        _SELECT + "LEFT JOIN maintenance_turns n ON n.namespace = " + _NAMESPACE + " AND " + IS_MAINTENANCE + " "
        "WHERE j.state IN ('pending', 'running', 'committing', 'paused') "
        "AND ((j.state = 'pending' AND CASE WHEN " + IS_MAINTENANCE + " THEN ? ELSE ? END = 1 "
        "AND " + _TARGET_IS_FREE + " AND " + MAY_START + ") "
        "OR (j.state IN ('running', 'committing') AND j.lease_until < ? AND (" + IS_MAINTENANCE + " OR ? = 1))) "
        "ORDER BY j.priority DESC, COALESCE(n.claimed_at, 0), j.created_at, j.id LIMIT ?",
        int(maintenance),
        int(users),
        oldest_heartbeat(now),
        now,
        int(users),
        limit,
    )
    return [_job(row) for row in rows]


def claim(connection: Connection, job: Job, worker: str, now: int, lease_until: int, deadline_at: int | None) -> bool:
    """Give a worker the lease on a job; false if another worker was faster."""
    claimed = connection.run(
        "UPDATE jobs SET state = 'running', worker = ?, lease_until = ?, attempt = attempt + 1, takeovers = ?, "
        "started_at = COALESCE(started_at, ?), deadline_at = COALESCE(deadline_at, ?) "
        "WHERE id = ? AND state = ? AND attempt = ? AND (lease_until IS NULL OR lease_until < ?)",
        worker,
        lease_until,
        job.takeovers + (job.state in LEASED),
        now,
        deadline_at,
        job.id,
        job.state,
        job.attempt,
        now,
    )
    return claimed == 1


def extend_lease(connection: Connection, job: Job, lease_until: int, counters: Mapping[str, float]) -> bool:
    """Extend the lease on a job and store its counters; false if the worker has lost the lease."""
    return _update_leased(
        connection,
        job,
        "UPDATE jobs SET state = 'running', lease_until = ?, counters = ? ",
        lease_until,
        _dumped(counters),
    )


def begin_commit(connection: Connection, job: Job) -> bool:
    """Record that a job commits; false if the worker has lost the lease."""
    return _update_leased(connection, job, "UPDATE jobs SET state = 'committing', takeovers = 0 ")


def end_commit(connection: Connection, job: Job) -> bool:
    """Record that a job continues after a commit; false if the worker has lost the lease."""
    return _update_leased(connection, job, "UPDATE jobs SET state = 'running' ")


def release(connection: Connection, job: Job, state: JobState, now: int, counters: Mapping[str, float]) -> bool:
    """Give up the lease on a job, which becomes pending or paused; false if the worker has lost the lease."""
    return _update_leased(
        connection,
        job,
        "UPDATE jobs SET state = ?, worker = NULL, lease_until = NULL, stop_request = NULL, paused_at = ?, "
        "takeovers = ?, counters = ? ",
        state,
        now if state == JobState.PAUSED else None,
        job.takeovers,
        _dumped(counters),
    )


def _update_leased(connection: Connection, job: Job, change: LiteralString, *values: object) -> bool:
    """Update a job if the worker that claimed it still holds the lease."""
    where: LiteralString = "WHERE id = ? AND worker = ? AND attempt = ? AND state IN ('running', 'committing')"
    return connection.run(change + where, *values, job.id, job.worker, job.attempt) == 1


def finish(
    connection: Connection,
    job: Job,
    state: JobState,
    now: int,
    *,
    counters: Mapping[str, float] | None = None,
    result: JobResult | None = None,
    failure: Failure | None = None,
) -> bool:
    """Put a job into a terminal state; false if it was claimed or has ended since it was read."""
    finished = connection.run(
        "UPDATE jobs SET state = ?, finished_at = ?, worker = NULL, lease_until = NULL, stop_request = NULL, "
        "counters = COALESCE(?, counters), result = ?, failure = ? WHERE id = ? AND attempt = ? "
        "AND state IN ('pending', 'running', 'committing', 'paused') AND COALESCE(worker, '') = ?",
        state,
        now,
        _dumped(counters),
        _dumped(result),
        _dumped(failure),
        job.id,
        job.attempt,
        job.worker or "",
    )
    if finished == 1 and job.kind in MAINTENANCE:
        millis = 0 if job.started_at is None else max(0, now - job.started_at)
        maintenance_totals.add(connection, job.kind, state, millis, cast("MaintenanceResult | None", result))
    return finished == 1


def request_stop(connection: Connection, job_id: str, request: StopRequest) -> None:
    """Ask the worker that holds a job to stop it."""
    connection.run("UPDATE jobs SET stop_request = ? WHERE id = ?", request, job_id)


def pause(connection: Connection, job_id: str, now: int) -> None:
    """Pause a job on which no worker holds a lease."""
    connection.run("UPDATE jobs SET state = 'paused', paused_at = ? WHERE id = ?", now, job_id)


def resume(connection: Connection, job_id: str, now: int) -> None:
    """Make a paused job pending again, and move its deadline by the duration of the pause."""
    connection.run(
        "UPDATE jobs SET state = 'pending', deadline_at = deadline_at + (? - paused_at), paused_at = NULL WHERE id = ?",
        now,
        job_id,
    )


def is_blocked(connection: Connection, job: Job) -> bool:
    """Return whether a worker holds another job that writes a column of this one."""
    others = [other for other in active_on(connection, job.table_id) if other.id != job.id and other.state in LEASED]
    return any(other.branch == job.branch and other.columns & job.columns for other in others)


def orphans(connection: Connection, limit: int = 100) -> list[Job]:
    """Return jobs without a lease whose table was dropped."""
    rows = connection.all(
        _SELECT + "WHERE j.state IN ('pending', 'running', 'committing', 'paused') "
        "AND j.state IN ('pending', 'paused') AND t.id IS NULL LIMIT ?",
        limit,
    )
    return [_job(row) for row in rows]


def finished_since(connection: Connection, millis: int, limit: int = 1000) -> list[Job]:
    """Return the jobs that finished at or after a time, oldest first."""
    rows = connection.all(
        _SELECT + "WHERE j.finished_at IS NOT NULL AND j.finished_at >= ? ORDER BY j.finished_at LIMIT ?",
        millis,
        limit,
    )
    return [_job(row) for row in rows]


def active_of_kind(connection: Connection, kind: JobKind) -> list[Job]:
    """Return the active jobs of a kind, oldest first."""
    rows = connection.all(
        _SELECT + "WHERE j.kind = ? AND j.state IN ('pending', 'running', 'committing', 'paused') ORDER BY j.id",
        kind,
    )
    return [_job(row) for row in rows]


def active_on(connection: Connection, table_id: str) -> list[Job]:
    """Return the active jobs on a table, oldest first."""
    rows = connection.all(
        _SELECT + "WHERE j.table_id = ? AND j.state IN ('pending', 'running', 'committing', 'paused') ORDER BY j.id",
        table_id,
    )
    return [_job(row) for row in rows]


def newest(connection: Connection, table_id: str, branch: str, target: str) -> Job | None:
    """Return the job on a target that was submitted last."""
    row = connection.one(
        _SELECT + "WHERE j.table_id = ? AND j.branch = ? AND j.target = ? ORDER BY j.id DESC LIMIT 1",
        table_id,
        branch,
        target,
    )
    return _job(row) if row else None


def newest_ended(connection: Connection, table_id: str, branch: str, target: str) -> Job | None:
    """Return the job on a target that was submitted last, of those that have ended."""
    row = connection.one(
        _SELECT + "WHERE j.table_id = ? AND j.branch = ? AND j.target = ? AND j.finished_at IS NOT NULL "
        "ORDER BY j.id DESC LIMIT 1",
        table_id,
        branch,
        target,
    )
    return _job(row) if row else None


def count_by_state(connection: Connection) -> dict[str, int]:
    """Count the jobs in each state."""
    found = {row[0]: int(row[1]) for row in connection.all("SELECT state, COUNT(*) FROM jobs GROUP BY state")}
    return {state: found.get(state, 0) for state in JobState}


def delete_finished_before(connection: Connection, millis: int) -> int:
    """Delete the jobs that finished before a time, with their events, and return their number."""
    return connection.run("DELETE FROM jobs WHERE finished_at < ?", millis)
