"""The shared catalog: PostgreSQL with psycopg 3 and a connection pool."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import LiteralString, TypeVar, cast

import psycopg
from lance_namespace.errors import InvalidInputError, ServiceUnavailableError
from psycopg import errors as pg
from psycopg_pool import ConnectionPool, PoolTimeout

from pennon.catalog.database.change_feed import ChangeFeed
from pennon.catalog.database.protocol import (
    CommitOutcomeUnknownError,
    Connection,
    ForeignKeyError,
    Row,
    log_failure,
)
from pennon.catalog.read_cache import ReadCache
from pennon.core.inline import NeedsThreadError, is_inline, require_thread

Result = TypeVar("Result")

_WAIT_SECONDS = 30.0
# The pool doubles its delay before each attempt to connect. It starts over after this time, so that it finds a server
# soon after a restart.
_RECONNECT_SECONDS = 2.0
# Conflicting work is retried with exponential backoff and jitter, so that writers do not conflict again and again.
_ATTEMPTS = 16
_FIRST_DELAY_SECONDS, _MAX_DELAY_SECONDS = 0.002, 0.5
# A unique violation means that another writer was faster; the retry sees what it wrote.
_TRANSIENT = (pg.SerializationFailure, pg.DeadlockDetected, pg.UniqueViolation)
_UNAVAILABLE = (PoolTimeout, psycopg.OperationalError, psycopg.InterfaceError, pg.ReadOnlySqlTransaction)


class _ConnectionLostError(Exception):
    """The server closed a connection during a statement or a commit."""


#: Longer statements, with lists of callers, are not cached.
_MAX_CACHED_LENGTH = 4096


@lru_cache(maxsize=1024)
def _translate(sql: str) -> LiteralString:
    """Replace the catalog's ``?`` by psycopg's ``%s``; the catalog's statements have neither otherwise."""
    return sql.replace("?", "%s")


class PostgresConnection:
    """A pooled connection, for the duration of one piece of work."""

    def __init__(self, raw: psycopg.Connection[Row], root: str = "") -> None:
        self._raw = raw
        self.root = root

    def one(self, sql: LiteralString, *parameters: object) -> Row | None:
        return self._execute(sql, parameters).fetchone()

    def all(self, sql: LiteralString, *parameters: object) -> list[Row]:
        return self._execute(sql, parameters).fetchall()

    def run(self, sql: LiteralString, *parameters: object) -> int:
        return self._execute(sql, parameters).rowcount

    def lock(self, name: str) -> None:
        self._raw.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (name,))

    def script(self, sql: str) -> None:
        self._raw.execute(sql)

    def _execute(self, sql: str, parameters: tuple[object, ...]) -> psycopg.Cursor[Row]:
        try:
            translate = _translate if len(sql) <= _MAX_CACHED_LENGTH else _translate.__wrapped__
            return self._raw.execute(translate(sql), parameters)
        except pg.ForeignKeyViolation as error:
            raise ForeignKeyError from error
        except (psycopg.DataError, UnicodeEncodeError) as error:
            raise InvalidInputError(
                "A text has characters that cannot be stored, or a number is out of range."
            ) from error


def _connect(url: str) -> psycopg.Connection[Row]:
    """Open a connection outside the pool, for locks, which would otherwise use up the pool."""
    return psycopg.connect(url, autocommit=True, application_name="pennon")


def _unavailable() -> ServiceUnavailableError:
    return ServiceUnavailableError("The catalog's PostgreSQL server is not available; try again later.")


class _SharedLocks:
    """Shared locks: one connection holds those of this process, and its end releases them."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._mutex = threading.Lock()
        self._connection: psycopg.Connection[Row] | None = None
        self._held: Counter[str] = Counter()
        self._released: deque[str] = deque()

    def acquire(self, name: str) -> None:
        """Acquire a lock; after a lost connection, acquire all held locks again."""
        with self._mutex:
            wanted = [name]
            try:
                if self._connection is None or self._connection.closed:
                    self._connection = _connect(self._url)
                    wanted += self._held.elements()
                for each in wanted:
                    self._connection.execute("SELECT pg_advisory_lock_shared(hashtextextended(%s, 0))", (each,))
            except _UNAVAILABLE as error:
                raise _unavailable() from error
            self._held[name] += 1
        self._release_pending()

    def release(self, name: str) -> None:
        """Release a lock; the garbage collector may call this during any of these methods."""
        self._released.append(name)
        self._release_pending()

    def _release_pending(self) -> None:
        """Unlock released locks, or leave that to the thread that has the mutex."""
        while self._released and self._mutex.acquire(blocking=False):
            try:
                while self._released:
                    self._unlock(self._released.popleft())
            finally:
                self._mutex.release()

    def _unlock(self, name: str) -> None:
        self._held -= Counter([name])
        with suppress(*_UNAVAILABLE):  # a lost connection has released all locks
            if self._connection is not None:
                self._connection.execute("SELECT pg_advisory_unlock_shared(hashtextextended(%s, 0))", (name,))

    def close(self) -> None:
        """Release all locks."""
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
            reconnect_timeout=_RECONNECT_SECONDS,
            reconnect_failed=ConnectionPool.check,
            open=False,
        )
        self._deferred = ThreadPoolExecutor(1, thread_name_prefix="pennon-catalog-deferred")
        self._shared_locks = _SharedLocks(url)
        self.cache = ReadCache()
        self._feed = ChangeFeed(partial(_connect, url), self.cache)
        try:
            self._pool.open(wait=True, timeout=_WAIT_SECONDS)
        except PoolTimeout as error:
            self._pool.close()
            raise _unavailable() from error

    def instance(self) -> str:
        # A restored dump is another database; a standby that takes over is the same.
        row = self.read(
            lambda connection: connection.one(
                "SELECT system_identifier, (SELECT oid FROM pg_database WHERE datname = current_database()) "
                "FROM pg_control_system()"
            )
        )
        return "postgresql:" + "/".join(map(str, row or ()))

    def read(self, work: Callable[[Connection], Result]) -> Result:
        require_thread()
        for attempt in range(_ATTEMPTS):
            try:
                with self._connection() as connection:
                    return work(PostgresConnection(connection, self._root))
            except _ConnectionLostError as error:
                _wait_before_retry(attempt, error)
        raise AssertionError("unreachable")

    def change_token(self) -> Hashable:
        return None

    def refresh(self) -> Awaitable[bool]:
        return self._feed.refresh()

    def cached_read(self, subject: str, find: Callable[..., Result], *key: Hashable) -> Result:
        if is_inline():
            found = self.cache.find(subject, (find, key))
            if found is None:
                raise NeedsThreadError
            return cast("Result", self.cache.use(found))
        read = partial(self.read, lambda connection: find(connection, *key))
        return self.cache.fill(subject, (find, key), read).value

    def write(self, work: Callable[[Connection], Result]) -> Result:
        require_thread()
        for attempt in range(_ATTEMPTS):
            is_done = False
            try:
                with self._connection() as connection, connection.transaction():
                    result = work(PostgresConnection(connection, self._root))
                    is_done = True
            except _ConnectionLostError as error:
                if is_done:
                    raise CommitOutcomeUnknownError(
                        "Lost the catalog connection during commit; the change may or may not have been applied."
                    ) from error
                _wait_before_retry(attempt, error)
            except _TRANSIENT as error:
                _wait_before_retry(attempt, error)
            else:
                return result
        raise AssertionError("unreachable")

    def defer(self, work: Callable[[Connection], object]) -> None:
        self._deferred.submit(self.write, work).add_done_callback(log_failure)

    @contextmanager
    def exclusive(self, *names: str) -> Iterator[None]:
        require_thread()
        with closing(self._lock(names)):
            yield

    def lock_shared(self, name: str) -> Callable[[], None]:
        self._shared_locks.acquire(name)
        return lambda: self._shared_locks.release(name)

    def is_locked(self, name: str) -> bool:
        # Acquired for the duration of the statement, if it is free.
        free = "SELECT pg_try_advisory_xact_lock(hashtextextended(?, 0))"
        return self.read(lambda connection: connection.one(free, name)) == (False,)

    def delete_locks(self, *names: str) -> None:
        pass  # the server stores nothing for free locks

    def close(self) -> None:
        self._feed.close()
        self._deferred.shutdown()
        self._shared_locks.close()
        self._pool.close()

    def _lock(self, names: tuple[str, ...]) -> psycopg.Connection[Row]:
        """Return a connection that holds locks until it is closed."""
        for attempt in range(_ATTEMPTS):
            with ExitStack() as failed:
                try:
                    connection = _connect(self._url)
                    failed.enter_context(closing(connection))
                    for name in names:
                        connection.execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", (name,))
                except _UNAVAILABLE as error:
                    _wait_before_retry(attempt, error)
                    self.read(lambda _: None)  # waits for a server that restarts
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
        except _UNAVAILABLE as error:
            if isinstance(error, _TRANSIENT):
                raise
            if connection is not None and connection.closed:
                self._pool.check()  # others were probably lost too
                raise _ConnectionLostError from error
            raise _unavailable() from error


def _wait_before_retry(attempt: int, error: Exception) -> None:
    """Wait before the next attempt; raises an error after the last one."""
    if attempt == _ATTEMPTS - 1:
        raise ServiceUnavailableError("The catalog is busy; try again.") from error
    delay = min(_FIRST_DELAY_SECONDS * 2**attempt, _MAX_DELAY_SECONDS)
    time.sleep(random.uniform(0, delay))  # noqa: S311 (not a secret)
