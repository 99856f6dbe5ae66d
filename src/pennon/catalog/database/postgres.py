"""The shared catalog: PostgreSQL through psycopg 3 and a pool."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, LiteralString, TypeVar

import psycopg
from lance_namespace.errors import InvalidInputError, ServiceUnavailableError
from psycopg import errors as pg
from psycopg_pool import ConnectionPool, PoolTimeout

from pennon.catalog.database.protocol import (
    CommitOutcomeUnknownError,
    Connection,
    Row,
    StillReferencedError,
    log_failure,
)

Result = TypeVar("Result")

_WAIT_SECONDS = 30.0
# A pool waits twice as long before each attempt to connect; begun anew this often, it finds a server soon after it is
# back.
_PATIENCE_SECONDS = 2.0
# Work that met others is run again, after pauses that grow and differ: writers that met do not meet again and again.
_ATTEMPTS = 16
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.002, 0.5
# A unique key is violated where work looked first and another was faster: run again, it sees what that one wrote.
_TRANSIENT = (pg.SerializationFailure, pg.DeadlockDetected, pg.UniqueViolation)
_UNABLE = (PoolTimeout, psycopg.OperationalError, psycopg.InterfaceError, pg.ReadOnlySqlTransaction)


class _ConnectionLostError(Exception):
    """The server ended a connection in the middle of what was asked of it."""


#: Longer statements, of lists that callers made, are not remembered.
_LONGEST_CACHED = 4096


@lru_cache(maxsize=1024)
def _translate(sql: str) -> LiteralString:
    """Turn the catalog's ``?`` into psycopg's ``%s``; no statement of the catalog holds either otherwise."""
    return sql.replace("?", "%s")


class PostgresConnection:
    """A pooled connection for the time of one piece of work."""

    def __init__(self, raw: psycopg.Connection[Row], root: str = "") -> None:
        self._raw = raw
        self.root = root

    def one(self, sql: LiteralString, *parameters: object) -> Row | None:
        return self._execute(sql, parameters).fetchone()

    def all(self, sql: LiteralString, *parameters: object) -> list[Row]:
        return self._execute(sql, parameters).fetchall()

    def run(self, sql: LiteralString, *parameters: object) -> int:
        return self._execute(sql, parameters).rowcount

    def take_turn(self, name: str) -> None:
        self._raw.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (name,))

    def script(self, sql: str) -> None:
        self._raw.execute(sql)

    def _execute(self, sql: str, parameters: tuple[Any, ...]) -> psycopg.Cursor[Row]:
        try:
            known = _translate if len(sql) <= _LONGEST_CACHED else _translate.__wrapped__
            return self._raw.execute(known(sql), parameters)
        except pg.ForeignKeyViolation as error:
            raise StillReferencedError from error
        except (psycopg.DataError, UnicodeEncodeError) as error:
            raise InvalidInputError(
                "A text holds characters, or a number has a size, that cannot be stored."
            ) from error


def _connect(url: str) -> psycopg.Connection[Row]:
    """Open a connection apart from the pool, for locks: a pooled one held for long would starve the others."""
    return psycopg.connect(url, autocommit=True, application_name="pennon")


def _no_answer() -> ServiceUnavailableError:
    return ServiceUnavailableError("The catalog's PostgreSQL server does not answer.")


class _SharedLocks:
    """Locks that several processes have at once: one connection holds those of this process, and they go with it."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._turn = threading.Lock()
        self._connection: psycopg.Connection[Row] | None = None
        self._held: Counter[str] = Counter()
        self._unwanted: deque[str] = deque()

    def take(self, name: str) -> None:
        """Take a lock; those that a lost connection had are taken again with it."""
        with self._turn:
            wanted = [name]
            try:
                if self._connection is None or self._connection.closed:
                    self._connection = _connect(self._url)
                    wanted += self._held.elements()
                for each in wanted:
                    self._connection.execute("SELECT pg_advisory_lock_shared(hashtextextended(%s, 0))", (each,))
            except _UNABLE as error:
                raise _no_answer() from error
            self._held[name] += 1
        self._give_back()

    def let_go(self, name: str) -> None:
        """Let go of a lock; also when the garbage collector says so, in the middle of any of these methods."""
        self._unwanted.append(name)
        self._give_back()

    def _give_back(self) -> None:
        """Give back what is not wanted, or leave that to whoever has the turn."""
        while self._unwanted and self._turn.acquire(blocking=False):
            try:
                while self._unwanted:
                    self._unlock(self._unwanted.popleft())
            finally:
                self._turn.release()

    def _unlock(self, name: str) -> None:
        self._held -= Counter([name])
        with suppress(*_UNABLE):  # a connection that is lost has let go of all
            if self._connection is not None:
                self._connection.execute("SELECT pg_advisory_unlock_shared(hashtextextended(%s, 0))", (name,))

    def close(self) -> None:
        """Let go of all."""
        if self._connection is not None:
            self._connection.close()


class PostgresDatabase:
    """A PostgreSQL database that any number of Pennon processes share."""

    dialect = "postgresql"
    embedded = False
    file: Path | None = None

    def __init__(self, url: str, *, pool_size: int, root: str = "") -> None:
        self._url = url
        self._root = root
        self._pool: ConnectionPool[psycopg.Connection[Row]] = ConnectionPool(
            url,
            min_size=1,
            max_size=pool_size,
            timeout=_WAIT_SECONDS,
            kwargs={"autocommit": True, "application_name": "pennon"},
            reconnect_timeout=_PATIENCE_SECONDS,
            reconnect_failed=ConnectionPool.check,
            open=False,
        )
        self._later = ThreadPoolExecutor(1, thread_name_prefix="pennon-catalog-later")
        self._sharing = _SharedLocks(url)
        try:
            self._pool.open(wait=True, timeout=_WAIT_SECONDS)
        except PoolTimeout as error:
            self._pool.close()
            raise _no_answer() from error

    def instance(self) -> str:
        # A dump that is restored gets another database; a standby that takes over is the same one.
        row = self.read(
            lambda connection: connection.one(
                "SELECT system_identifier, (SELECT oid FROM pg_database WHERE datname = current_database()) "
                "FROM pg_control_system()"
            )
        )
        return "postgresql:" + "/".join(map(str, row or ()))

    def read(self, work: Callable[[Connection], Result]) -> Result:
        for attempt in range(_ATTEMPTS):
            try:
                with self._connection() as connection:
                    return work(PostgresConnection(connection, self._root))
            except _ConnectionLostError as error:
                _pause(attempt, error)
        raise AssertionError("unreachable")

    def change_token(self) -> Hashable:
        return None

    def cached_read(self, find: Callable[..., Result], *key: Hashable) -> Result:
        return self.read(lambda connection: find(connection, *key))

    def invalidate(self) -> None:
        pass  # every look-up asks the server

    def write(self, work: Callable[[Connection], Result]) -> Result:
        for attempt in range(_ATTEMPTS):
            worked = False
            try:
                with self._connection() as connection, connection.transaction():
                    result = work(PostgresConnection(connection, self._root))
                    worked = True
            except _ConnectionLostError as error:
                if worked:
                    raise CommitOutcomeUnknownError(
                        "The catalog went away; what was asked for may have happened."
                    ) from error
                _pause(attempt, error)
            except _TRANSIENT as error:
                _pause(attempt, error)
            else:
                return result
        raise AssertionError("unreachable")

    def defer(self, work: Callable[[Connection], object]) -> None:
        self._later.submit(self.write, work).add_done_callback(log_failure)

    @contextmanager
    def exclusive(self, *names: str) -> Iterator[None]:
        with closing(self._lock(names)):
            yield

    def share(self, name: str) -> Callable[[], None]:
        self._sharing.take(name)
        return lambda: self._sharing.let_go(name)

    def is_shared(self, name: str) -> bool:
        # Taken for as long as the statement runs, if it can be taken at all.
        free = "SELECT pg_try_advisory_xact_lock(hashtextextended(?, 0))"
        return self.read(lambda connection: connection.one(free, name)) == (False,)

    def forget_locks(self, *names: str) -> None:
        pass  # the server keeps nothing of locks that nobody holds

    def close(self) -> None:
        self._later.shutdown()
        self._sharing.close()
        self._pool.close()

    def _lock(self, names: tuple[str, ...]) -> psycopg.Connection[Row]:
        """Return a connection that holds locks for as long as it is open."""
        for attempt in range(_ATTEMPTS):
            with ExitStack() as failed:
                try:
                    connection = _connect(self._url)
                    failed.enter_context(closing(connection))
                    for name in names:
                        connection.execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", (name,))
                except _UNABLE as error:
                    _pause(attempt, error)
                    self.read(lambda _: None)  # waits for a server that was restarted
                else:
                    failed.pop_all()
                    return connection
        raise AssertionError("unreachable")

    @contextmanager
    def _connection(self) -> Iterator[psycopg.Connection[Row]]:
        connection = None
        try:
            with self._pool.connection() as connection:
                yield connection
        except _UNABLE as error:
            if isinstance(error, _TRANSIENT):
                raise
            if connection is not None and connection.closed:
                self._pool.check()  # where one was lost, others were, too
                raise _ConnectionLostError from error
            raise _no_answer() from error


def _pause(attempt: int, error: Exception) -> None:
    """Wait before another attempt; raises when there have been enough."""
    if attempt == _ATTEMPTS - 1:
        raise ServiceUnavailableError("The catalog is busy; try again.") from error
    pause = min(_FIRST_PAUSE_SECONDS * 2**attempt, _LONGEST_PAUSE_SECONDS)
    time.sleep(random.uniform(0, pause))  # noqa: S311 - nothing secret
