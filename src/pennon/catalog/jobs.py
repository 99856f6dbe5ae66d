"""Jobs: work that was asked for and is carried out by a worker. A job's row outlives its table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, LiteralString

from pennon.core.identifiers import Identifier, child_key_range, identifier_of, key_of

if TYPE_CHECKING:
    from pennon.catalog.database.protocol import Connection, Row

PENDING, RUNNING, COMMITTING, PAUSED = "pending", "running", "committing", "paused"
DONE, FAILED, CANCELLED, TIMED_OUT = "done", "failed", "cancelled", "timed_out"
#: States in which a worker holds a job.
HELD = frozenset({RUNNING, COMMITTING})
ACTIVE = frozenset({PENDING, RUNNING, COMMITTING, PAUSED})
ENDED = frozenset({DONE, FAILED, CANCELLED, TIMED_OUT})
STATES = (PENDING, RUNNING, COMMITTING, PAUSED, DONE, FAILED, CANCELLED, TIMED_OUT)

Counters = dict[str, float]


@dataclass(frozen=True)
class Job:
    """A job as the catalog knows it."""

    id: str
    kind: str
    table_id: str
    branch: str
    #: What of the table the job works on; of one target, one job runs at a time.
    target: str
    #: The table as it is called now, or was when it was dropped.
    object: Identifier
    state: str
    priority: int
    spec: dict[str, Any]
    submitted_by: str
    context: dict[str, str]
    created_at: int
    started_at: int | None = None
    finished_at: int | None = None
    worker: str | None = None
    lease_until: int | None = None
    #: Counts the claims: who holds a job is told by worker and attempt together.
    attempt: int = 0
    #: "cancel", "pause" or "timeout": what was asked of a job that a worker holds.
    wish: str | None = None
    counters: Counters = field(default_factory=dict)
    result: dict[str, Any] | None = None
    failure: dict[str, Any] | None = None
    #: When a job with a time limit has run for too long; known once it runs.
    deadline_at: int | None = None
    #: How often the job was taken over since it last committed something.
    takeovers: int = 0
    #: The job that this one repeats.
    retry_of: str | None = None

    @property
    def columns(self) -> frozenset[str]:
        """What of the table the job works on: beside its target, what is filled with it and before it."""
        return frozenset({self.target, *self.spec.get("columns", ())})

    @property
    def home(self) -> Identifier:
        """The namespace whose roles decide who sees the job."""
        return self.object[:-1]


_FROM: LiteralString = "FROM jobs j LEFT JOIN tables t ON t.id = j.table_id "
_NAMESPACE: LiteralString = "COALESCE(t.namespace, j.namespace)"
_SELECT: LiteralString = (
    "SELECT j.id, j.kind, j.table_id, j.branch, j.target, " + _NAMESPACE + ", COALESCE(t.name, j.name), j.state, "
    "j.priority, j.spec, j.submitted_by, j.context, j.created_at, j.started_at, j.finished_at, j.worker, "
    "j.lease_until, j.attempt, j.wish, j.counters, j.result, j.failure, j.deadline_at, j.takeovers, j.retry_of " + _FROM
)
_TARGET_IS_FREE: LiteralString = (
    "NOT EXISTS (SELECT 1 FROM jobs o WHERE o.table_id = j.table_id AND o.branch = j.branch AND o.target = j.target "
    "AND o.state IN ('running', 'committing'))"
)
_COLUMNS = (
    *("id", "kind", "table_id", "branch", "target", "namespace", "name", "state", "priority", "spec", "submitted_by"),
    *("context", "created_at", "started_at", "finished_at", "worker", "lease_until", "attempt", "wish", "counters"),
    *("result", "failure", "deadline_at", "takeovers", "retry_of"),
)


def _job(row: Row) -> Job:
    named = dict(zip(_COLUMNS, row, strict=True))
    named["object"] = (*identifier_of(named.pop("namespace")), named.pop("name"))
    for name in ("spec", "context", "counters", "result", "failure"):
        named[name] = None if named[name] is None else json.loads(named[name])
    return Job(**named)


def _dumped(value: Mapping[str, Any] | None) -> str | None:
    return None if value is None else json.dumps(value)


def insert(connection: Connection, job: Job) -> None:
    """Add a job."""
    connection.run(
        "INSERT INTO jobs (id, kind, table_id, branch, target, namespace, name, state, priority, spec, submitted_by, "
        "context, retry_of, created_at, attempt, takeovers, counters, events) "
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
        return None  # no id of ours, and perhaps nothing a database can compare
    row = connection.one(_SELECT + "WHERE j.id = ?", job_id)
    return _job(row) if row else None


def lock(connection: Connection, job_id: str) -> Job | None:
    """Return a job, as nobody else will change it before this transaction ends."""
    if not job_id.isalnum() or connection.run("UPDATE jobs SET events = events WHERE id = ?", job_id) == 0:
        return None
    return find(connection, job_id)


def page(
    connection: Connection,
    scope: Sequence[str],
    *,
    before: str | None,
    limit: int,
    states: Sequence[str] = STATES,
    table: Sequence[str] | None = None,
) -> list[Job]:
    """Return jobs on the tables in a namespace and below it, newest first, made before a job."""
    key = key_of(scope)
    low, high = child_key_range(key)
    padded = [*states, *[""] * (len(STATES) - len(states))]
    rows = connection.all(
        _SELECT + "WHERE j.id < ? AND (" + _NAMESPACE + " = ? OR (" + _NAMESPACE + " > ? AND " + _NAMESPACE + " < ?)) "
        "AND j.state IN (?, ?, ?, ?, ?, ?, ?, ?) "
        "AND (? = 0 OR (" + _NAMESPACE + " = ? AND COALESCE(t.name, j.name) = ?)) ORDER BY j.id DESC LIMIT ?",
        before or "z",
        key,
        low,
        high,
        *padded,
        int(table is not None),
        key_of(table[:-1]) if table else "",
        table[-1] if table else "",
        limit,
    )
    return [_job(row) for row in rows]


def claimable(connection: Connection, now: int, limit: int) -> list[Job]:
    """Return jobs that wait for a worker or lost theirs, in the order in which they are due.

    Not those whose target another job works on.
    """
    rows = connection.all(
        # The first condition follows from the second, and leads to the index that has no jobs that ended.
        _SELECT + "WHERE j.state IN ('pending', 'running', 'committing', 'paused') "
        "AND ((j.state = 'pending' AND " + _TARGET_IS_FREE + ") "
        "OR (j.state IN ('running', 'committing') AND j.lease_until < ?)) "
        "ORDER BY j.priority DESC, j.created_at, j.id LIMIT ?",
        now,
        limit,
    )
    return [_job(row) for row in rows]


def take(connection: Connection, job: Job, worker: str, now: int, lease_until: int, deadline_at: int | None) -> bool:
    """Give a job to a worker; false when another one was faster."""
    taken = connection.run(
        "UPDATE jobs SET state = 'running', worker = ?, lease_until = ?, attempt = attempt + 1, takeovers = ?, "
        "started_at = COALESCE(started_at, ?), deadline_at = COALESCE(deadline_at, ?) "
        "WHERE id = ? AND state = ? AND attempt = ? AND (lease_until IS NULL OR lease_until < ?)",
        worker,
        lease_until,
        job.takeovers + (job.state in HELD),
        now,
        deadline_at,
        job.id,
        job.state,
        job.attempt,
        now,
    )
    return taken == 1


def prolong(connection: Connection, job: Job, lease_until: int, counters: Mapping[str, float]) -> bool:
    """Prolong the lease of a worker and keep what it counted; false when the job is not its own any more."""
    return _held(
        connection,
        job,
        "UPDATE jobs SET state = 'running', lease_until = ?, counters = ? ",
        lease_until,
        _dumped(counters),
    )


def begin_commit(connection: Connection, job: Job) -> bool:
    """Record that a job commits; false when the job is not its worker's any more."""
    return _held(connection, job, "UPDATE jobs SET state = 'committing', takeovers = 0 ")


def end_commit(connection: Connection, job: Job) -> bool:
    """Record that a job goes on after a commit; false when the job is not its worker's any more."""
    return _held(connection, job, "UPDATE jobs SET state = 'running' ")


def put_back(connection: Connection, job: Job, state: str, now: int, counters: Mapping[str, float]) -> bool:
    """Take a job from its worker, to wait again or to rest; false when it is not its worker's any more."""
    return _held(
        connection,
        job,
        "UPDATE jobs SET state = ?, worker = NULL, lease_until = NULL, wish = NULL, paused_at = ?, takeovers = ?, "
        "counters = ? ",
        state,
        now if state == PAUSED else None,
        job.takeovers,
        _dumped(counters),
    )


def _held(connection: Connection, job: Job, change: LiteralString, *values: object) -> bool:
    """Change a job that is held by whom this one was claimed by."""
    where: LiteralString = "WHERE id = ? AND worker = ? AND attempt = ? AND state IN ('running', 'committing')"
    return connection.run(change + where, *values, job.id, job.worker, job.attempt) == 1


def end(
    connection: Connection,
    job: Job,
    state: str,
    now: int,
    *,
    counters: Mapping[str, float] | None = None,
    result: Mapping[str, Any] | None = None,
    failure: Mapping[str, Any] | None = None,
) -> bool:
    """End a job that is as this one was read; false when it has changed hands or ended since."""
    ended = connection.run(
        "UPDATE jobs SET state = ?, finished_at = ?, worker = NULL, lease_until = NULL, wish = NULL, "
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
    return ended == 1


def wish(connection: Connection, job_id: str, wanted: str) -> None:
    """Ask something of whoever holds a job."""
    connection.run("UPDATE jobs SET wish = ? WHERE id = ?", wanted, job_id)


def rest(connection: Connection, job_id: str, now: int) -> None:
    """Let a job that nobody holds rest until it is resumed."""
    connection.run("UPDATE jobs SET state = 'paused', paused_at = ? WHERE id = ?", now, job_id)


def wake(connection: Connection, job_id: str, now: int) -> None:
    """Let a job that rests wait for a worker again; the time it rested does not count."""
    connection.run(
        "UPDATE jobs SET state = 'pending', deadline_at = deadline_at + (? - paused_at), paused_at = NULL WHERE id = ?",
        now,
        job_id,
    )


def is_busy(connection: Connection, job: Job) -> bool:
    """Tell whether another job works on something that this one is to work on."""
    others = [other for other in active_on(connection, job.table_id) if other.id != job.id and other.state in HELD]
    return any(other.branch == job.branch and other.columns & job.columns for other in others)


def orphans(connection: Connection, limit: int = 100) -> list[Job]:
    """Return jobs that nobody holds and whose table is gone."""
    rows = connection.all(
        _SELECT + "WHERE j.state IN ('pending', 'running', 'committing', 'paused') "
        "AND j.state IN ('pending', 'paused') AND t.id IS NULL LIMIT ?",
        limit,
    )
    return [_job(row) for row in rows]


def ended_since(connection: Connection, millis: int, limit: int = 1000) -> list[Job]:
    """Return the jobs that ended since a time, oldest first."""
    rows = connection.all(
        _SELECT + "WHERE j.finished_at IS NOT NULL AND j.finished_at >= ? ORDER BY j.finished_at LIMIT ?",
        millis,
        limit,
    )
    return [_job(row) for row in rows]


def active_of_kind(connection: Connection, kind: str) -> list[Job]:
    """Return the jobs of a kind that have not ended, oldest first."""
    rows = connection.all(
        _SELECT + "WHERE j.kind = ? AND j.state IN ('pending', 'running', 'committing', 'paused') ORDER BY j.id",
        kind,
    )
    return [_job(row) for row in rows]


def active_on(connection: Connection, table_id: str) -> list[Job]:
    """Return the jobs on a table that have not ended, oldest first."""
    rows = connection.all(
        _SELECT + "WHERE j.table_id = ? AND j.state IN ('pending', 'running', 'committing', 'paused') ORDER BY j.id",
        table_id,
    )
    return [_job(row) for row in rows]


def newest(connection: Connection, table_id: str, branch: str, target: str) -> Job | None:
    """Return the job of a target that was submitted last."""
    row = connection.one(
        _SELECT + "WHERE j.table_id = ? AND j.branch = ? AND j.target = ? ORDER BY j.id DESC LIMIT 1",
        table_id,
        branch,
        target,
    )
    return _job(row) if row else None


def counts(connection: Connection) -> dict[str, int]:
    """Return how many jobs are in each state."""
    found = {row[0]: int(row[1]) for row in connection.all("SELECT state, COUNT(*) FROM jobs GROUP BY state")}
    return {state: found.get(state, 0) for state in STATES}


def forget_before(connection: Connection, millis: int) -> int:
    """Remove jobs that ended before a time, with their events, and return how many there were."""
    return connection.run("DELETE FROM jobs WHERE finished_at < ?", millis)
