"""Following the log of changes in PostgreSQL: requests that arrive together share one query."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import psycopg
from psycopg import pq

if TYPE_CHECKING:
    from pennon.catalog.database.protocol import Row
    from pennon.catalog.read_cache import ReadCache

logger = logging.getLogger("pennon.catalog")

#: A query takes less than a millisecond. After this time, requests go on without the cache.
_QUERY_SECONDS = 5.0
_RECONNECT_SECONDS = 0.5
#: The limit in the query: this number of changes empties the cache.
_MAX_CHANGES = 10_001

_STATEMENT = b"pennon_changes"
# What is visible now and was not in the last snapshot: transactions that were running then ($1) or began since ($2).
# Two queries, because each uses the index.
_QUERY = """
SELECT pg_current_snapshot()::text, (SELECT pruned::text FROM change_horizon WHERE singleton = 1), (
    SELECT json_agg(subject)::text FROM (
        (SELECT subject FROM changes WHERE transaction_id = ANY ($1::xid8[]))
        UNION ALL
        (SELECT subject FROM changes WHERE transaction_id >= $2::xid8 LIMIT 10001)
    ) AS added
)
"""


class ChangeFeed:
    """Keeps the read cache of a process exact. Its methods run on the event loop."""

    def __init__(self, connect: Callable[[], psycopg.Connection[Row]], cache: ReadCache) -> None:
        self._connect = connect
        self._cache = cache
        self._connection: psycopg.Connection[Row] | None = None
        #: The connection's socket under a number of its own: libpq closes its own when the connection is lost.
        self._socket = -1
        self._connecting: asyncio.Task[None] | None = None
        self._next_attempt = 0.0
        #: The requests that wait for the query under way, and for the next one.
        self._running: list[asyncio.Future[bool]] = []
        self._waiting: list[asyncio.Future[bool]] = []
        self._timer: asyncio.TimerHandle | None = None
        #: The last snapshot: transactions before xmin had ended, those from xmax on had not begun.
        self._xmin, self._xmax, self._in_progress = 0, "0", "{}"

    async def refresh(self) -> bool:
        """Bring the cache up to date; false if the log cannot be read, and the cache must not be used."""
        if self._connection is None:
            self._begin_to_connect()
            return False
        loop = asyncio.get_running_loop()
        done: asyncio.Future[bool] = loop.create_future()
        self._waiting.append(done)
        if len(self._waiting) == 1 and not self._running:
            loop.call_soon(self._send)  # at the end of this iteration, so that its other requests share the query
        return await done

    def close(self) -> None:
        """Close the connection; the event loop has ended."""
        if self._connection is not None:
            os.close(self._socket)
            self._connection.close()
            self._connection = None

    def _begin_to_connect(self) -> None:
        if self._connecting is None and time.monotonic() >= self._next_attempt:
            self._connecting = asyncio.create_task(self._open())

    async def _open(self) -> None:
        self._next_attempt = time.monotonic() + _RECONNECT_SECONDS
        loop = asyncio.get_running_loop()
        try:
            connection = await loop.run_in_executor(None, self._prepare)
        except psycopg.Error as error:
            logger.warning("cannot follow the changes of the catalog; reads are not cached: %s", error)
        else:
            self._connection = connection
            self._cache.activate()
            self._socket = os.dup(connection.pgconn.socket)
            loop.add_reader(self._socket, self._receive)
        finally:
            self._connecting = None

    def _prepare(self) -> psycopg.Connection[Row]:
        connection = self._connect()
        try:
            # The log is small or not analyzed yet: the planner would scan all of it, and plan and compile it each time.
            connection.execute("SET enable_seqscan = off")
            connection.execute("SET plan_cache_mode = force_generic_plan")
            connection.execute("SET jit = off")
            prepared = connection.pgconn.prepare(_STATEMENT, _QUERY.encode())
            row = connection.execute("SELECT pg_current_snapshot()::text, pg_is_in_recovery()").fetchone()
            if prepared.status != pq.ExecStatus.COMMAND_OK or row is None or row[1]:
                reason = prepared.get_error_message() or "the server is a standby, which may lag behind"
                raise psycopg.OperationalError(reason)  # noqa: TRY301 (the connection must be closed)
            self._read_snapshot(row[0])
        except BaseException:
            connection.close()
            raise
        return connection

    def _send(self) -> None:
        if self._connection is None or self._running or not self._waiting:
            return
        self._running, self._waiting = self._waiting, []
        try:
            parameters = [self._in_progress.encode(), self._xmax.encode()]
            self._connection.pgconn.send_query_prepared(_STATEMENT, parameters)
            self._connection.pgconn.flush()
        except psycopg.Error as error:
            self._fail(str(error))
            return
        self._timer = asyncio.get_running_loop().call_later(_QUERY_SECONDS, self._fail, "no response in time")

    def _receive(self) -> None:
        """Read what PostgreSQL sent: the result of the query, or the end of the connection."""
        assert self._connection is not None  # noqa: S101 (its socket is watched)
        pgconn = self._connection.pgconn
        try:
            pgconn.consume_input()
            if not self._running or pgconn.is_busy():
                return
            result = pgconn.get_result()
            while result is not None and pgconn.get_result() is not None:
                pass
        except psycopg.Error as error:
            self._fail(str(error))
            return
        if result is None or result.status != pq.ExecStatus.TUPLES_OK:
            self._fail(result.get_error_message() if result is not None else "no result")
            return
        self._apply(*(_text(result.get_value(0, column)) for column in range(3)))
        self._finish(is_fresh=True)
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._send)

    def _apply(self, snapshot: str, pruned: str, added: str) -> None:
        """Remove from the cache what has changed since the last snapshot."""
        subjects: list[str] = json.loads(added) if added else []
        if self._xmin < int(pruned or 0) or len(subjects) >= _MAX_CHANGES:
            self._cache.clear()
            self._cache.activate()
        elif subjects:
            self._cache.invalidate(subjects)
        self._read_snapshot(snapshot)

    def _read_snapshot(self, snapshot: str) -> None:
        xmin, self._xmax, in_progress = snapshot.split(":")
        self._xmin, self._in_progress = int(xmin), "{" + in_progress + "}"

    def _finish(self, *, is_fresh: bool) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        running, self._running = self._running, []
        for done in running:
            if not done.done():  # its request may have been cancelled
                done.set_result(is_fresh)

    def _fail(self, reason: str) -> None:
        """Close the connection, and go on without the cache until there is another one."""
        logger.warning("lost the connection that follows the changes of the catalog: %s", reason.strip())
        connection, self._connection = self._connection, None
        self._cache.clear()
        self._running += self._waiting
        self._waiting = []
        self._finish(is_fresh=False)
        if connection is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            os.close(self._socket)
            connection.close()


def _text(value: bytes | None) -> str:
    return value.decode() if value is not None else ""
