"""A running server together with the queue in its catalog, in which the test is the worker."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from pennon.catalog import keys, open_database, tables
from pennon.core.caller import Role
from pennon.core.identifiers import parse_identifier
from pennon.core.job_model import JobKind
from pennon.jobs.queue import Queue
from tests.support.jobs import change_job
from tests.support.rest import RestClient

if TYPE_CHECKING:
    from pennon.catalog import Connection
    from pennon.catalog.jobs import Job
    from tests.support.server import PennonProcess

LEASE = 600.0
#: The arguments of a server without workers: the test is the only one.
ALONE = ("--workers", "0")


class JobServer:
    """A server, and the queue that it shares with its workers."""

    def __init__(self, process: PennonProcess, database: str | None = None) -> None:
        self.url = process.url
        self.process = process
        self.database = open_database(database or f"sqlite:///{process.directory / '.pennon' / 'catalog.db'}")
        self.queue = Queue(self.database)
        self.http = RestClient(process.url)
        self._clients = [self.http]

    def close(self) -> None:
        for client in self._clients:
            client.close()
        self.database.close()

    def key(self, role: Role, *scope: str) -> str:
        """Make a key and return its secret."""
        name = f"key-{secrets.token_hex(4)}"
        secret = self.database.write(lambda connection: keys.create(connection, name, role, scope, None))
        assert secret is not None
        return secret

    def client(self, key: str) -> RestClient:
        """Return a client that calls with a key."""
        self._clients.append(RestClient(self.url, {"x-api-key": key}))
        return self._clients[-1]

    def new_table(self, *names: str) -> str:
        """Declare a table in a namespace of its own, and return its identifier."""
        return self.declare("$".join((f"n{secrets.token_hex(5)}", *names, "t")))

    def declare(self, identifier: str, client: RestClient | None = None) -> str:
        """Declare a table, with the namespaces it is in, and return its identifier."""
        client = client or self.http
        parts = identifier.split("$")
        for depth in range(1, len(parts)):
            client.post(f"/v1/namespace/{'$'.join(parts[:depth])}/create", {"mode": "exist_ok"})
        client.post(f"/v1/table/{identifier}/declare")
        return identifier

    def submit(self, identifier: str, target: str = "column", **more: Any) -> Job:
        """Submit a job on a table."""
        found = parse_identifier(identifier)

        def work(connection: Connection) -> Job:
            table = tables.find(connection, found)
            assert table is not None
            return self.queue.submit(
                connection,
                table=table,
                target=target,
                **{"kind": JobKind.BACKFILL, "submitted_by": "ada", "spec": {}, **more},
            )

        return self.database.write(work)

    def submit_paused(self, identifier: str, target: str = "column", **more: Any) -> Job:
        """Submit a job that no worker takes until it is resumed."""
        job = self.submit(identifier, target, **more)
        change_job(self.queue, "pause", job.id)
        return job

    def hold(self, job: Job, worker: str = "test") -> Job:
        """Claim a job, and with it whatever is due before it."""
        while (claimed := self.queue.claim(worker, LEASE)) is not None:
            if claimed.id == job.id:
                return claimed
        raise AssertionError(f"job {job.id} is not due")
