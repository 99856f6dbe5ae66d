"""A queue with tables and a clock that only the test moves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pennon.catalog import job_events, jobs, open_database, tables
from pennon.catalog.schema import migrate
from pennon.catalog.tables import Table
from pennon.core.identifiers import new_id
from pennon.core.job_model import LEASED, JobKind
from pennon.jobs.queue import Queue

if TYPE_CHECKING:
    from pennon.catalog import Connection
    from pennon.catalog.job_events import JobEvent
    from pennon.catalog.jobs import Job

LEASE = 30.0


class Clock:
    """A time that stands still unless it is moved."""

    def __init__(self) -> None:
        self.millis = 1_700_000_000_000

    def __call__(self) -> int:
        return self.millis

    def advance(self, seconds: float) -> None:
        self.millis += int(seconds * 1000)


class QueueFixture:
    """A catalog with tables, and its queue."""

    def __init__(self, url: str, *, attempts: int = 5, pool_size: int = 4) -> None:
        self.database = open_database(url, pool_size=pool_size)
        migrate(self.database)
        self.clock = Clock()
        self.queue = Queue(self.database, attempts=attempts, clock=self.clock)
        self._tables: dict[str, Table] = {}

    def close(self) -> None:
        self.database.close()

    def table(self, name: str = "t") -> Table:
        """Return a table, made when it is asked for first."""
        if name not in self._tables:
            table = Table(new_id(), (), name, f"file:///{name}")
            assert self.database.write(lambda connection: tables.insert(connection, table))
            self._tables[name] = table
        return self._tables[name]

    def drop(self, name: str = "t") -> None:
        """Drop a table."""
        table = self._tables.pop(name)
        assert self.database.write(lambda connection: tables.delete(connection, table.id))

    def submit(self, target: str = "column", *, table: str = "t", branch: str = "", **more: Any) -> Job:
        """Submit a job."""
        found = self.table(table)
        given = {"kind": JobKind.BACKFILL, "spec": {}, **more}

        def work(connection: Connection) -> Job:
            return self.queue.submit(
                connection,
                table=found,
                branch=branch,
                target=target,
                submitted_by="ada",
                context={"purpose": "test"},
                **given,
            )

        return self.database.write(work)

    def claim(self, worker: str = "w1") -> Job:
        """Claim the job that is due."""
        job = self.queue.claim(worker, LEASE)
        assert job is not None
        return job

    def commit(self, job: Job) -> None:
        """Make a commit for a job."""
        self.database.write(lambda connection: self.queue.begin_commit(connection, job))

    def find(self, job: Job) -> Job:
        """Return a job as it is now."""
        found = self.queue.find(job.id)
        assert found is not None
        return found

    def state(self, job: Job) -> str:
        """Return a job's state."""
        return self.find(job).state

    def events(self, job: Job) -> list[JobEvent]:
        """Return what happened to a job."""
        return self.database.read(lambda connection: job_events.after(connection, job.id, 0, 1000))

    def kinds(self, job: Job) -> list[str]:
        """Return the kinds of what happened to a job."""
        return [event.kind for event in self.events(job)]

    def held(self) -> list[Job]:
        """Return the jobs that a worker holds."""
        found = self.database.read(lambda connection: jobs.page(connection, (), before=None, limit=10_000))
        return [job for job in found if job.state in LEASED]
