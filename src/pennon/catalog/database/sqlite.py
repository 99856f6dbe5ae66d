"""The embedded catalog: SQLite in WAL mode, with one writer thread that groups waiting writes into one commit."""

from __future__ import annotations

import contextlib
import fcntl
import os
import queue
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, LiteralString, TypeVar, cast

from lance_namespace.errors import ServiceUnavailableError

from pennon.catalog.database.protocol import Connection, ForeignKeyError, Row, log_failure
from pennon.catalog.read_cache import ReadCache
from pennon.core.inline import is_inline, require_thread
from pennon.core.private_files import make_private_file, make_private_folder, restrict_to_owner

if TYPE_CHECKING:
    from pathlib import Path

Result = TypeVar("Result")

_BUSY_SECONDS = 30.0
_MAX_GROUP_SIZE = 256
#: A deferred write waits this long for another write, whose transaction and flush it then shares: one client that
#: inserts row after row causes one transaction per insert instead of two.
_DEFER_SECONDS = 0.005
_PRAGMAS = (
    "journal_mode=WAL",
    "synchronous=FULL",
    # These two have an effect on macOS, where fsync() leaves data in the disk's cache.
    "fullfsync=ON",
    "checkpoint_fullfsync=ON",
    "foreign_keys=ON",
    "temp_store=MEMORY",
    # KiB per connection; each thread may have one. The rest is in the cache of the operating system.
    "cache_size=-4096",
)
_BUSY = "The catalog is busy; try again."
_UNWRITABLE = "The catalog cannot be written; check whether its disk is full or read-only."
#: The messages of SQLite errors that may go away.
_UNAVAILABLE = {
    sqlite3.SQLITE_BUSY: _BUSY,
    sqlite3.SQLITE_LOCKED: _BUSY,
    sqlite3.SQLITE_FULL: _UNWRITABLE,
    sqlite3.SQLITE_IOERR: _UNWRITABLE,
    sqlite3.SQLITE_READONLY: _UNWRITABLE,
    sqlite3.SQLITE_CANTOPEN: _UNWRITABLE,
}


class SqliteConnection:
    """One SQLite connection, used by one thread at a time."""

    def __init__(self, path: Path, root: str = "") -> None:
        self.root = root
        self._raw = sqlite3.connect(
            path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=512
        )
        try:
            for pragma in _PRAGMAS:
                self._raw.execute(f"PRAGMA {pragma}")
        except BaseException:  # for example, the file is not a database; Python 3.13 warns of open connections
            self._raw.close()
            raise

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self._raw.in_transaction

    def one(self, sql: LiteralString, *parameters: object) -> Row | None:
        row: Row | None = self._execute(sql, parameters).fetchone()
        return row

    def all(self, sql: LiteralString, *parameters: object) -> list[Row]:
        return self._execute(sql, parameters).fetchall()

    def run(self, sql: LiteralString, *parameters: object) -> int:
        return self._execute(sql, parameters).rowcount

    def lock(self, name: str) -> None:
        pass  # only one transaction writes at a time

    def script(self, sql: str) -> None:
        # executescript() would commit the transaction of the migration first.
        statement = ""
        for part in sql.rstrip().removesuffix(";").split(";"):
            statement += part + ";"
            if sqlite3.complete_statement(statement):  # not within a trigger or a comment
                self._raw.execute(statement)
                statement = ""
        if statement:
            self._raw.execute(statement)

    def close(self) -> None:
        self._raw.close()

    def _execute(self, sql: str, parameters: tuple[object, ...]) -> sqlite3.Cursor:
        try:
            return self._raw.execute(sql, parameters)
        except sqlite3.IntegrityError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY:
                raise ForeignKeyError from error
            raise
        except sqlite3.OperationalError as error:
            reason = _UNAVAILABLE.get(error.sqlite_errorcode & 0xFF)  # without the extended code
            if reason is not None:
                raise ServiceUnavailableError(reason) from error
            raise


@dataclass
class _Write:
    """Work that waits for the writer thread, and the future of its result."""

    work: Callable[[Connection], object]
    #: Nobody waits for it.
    is_deferred: bool = False
    future: Future[object] = field(default_factory=Future)
    #: The context of the caller, in which the writer thread runs the work.
    context: Context = field(default_factory=copy_context)


class SqliteDatabase:
    """A SQLite file: any thread reads, one thread writes.

    Writes that arrive during a commit wait in a queue and share the next transaction, each in its own savepoint: each
    can fail alone, and one ``fsync`` makes all of them durable.
    """

    dialect = "sqlite"
    embedded = True

    def __init__(self, path: Path, *, root: str = "") -> None:
        make_private_folder(path.parent)
        make_private_file(path)  # SQLite creates its other files with the same rights
        for suffix in ("-wal", "-shm"):
            restrict_to_owner(path.with_name(path.name + suffix))
        self._path = path
        self._root = root
        self.file: Path | None = path
        self._locks = path.parent / "locks"
        #: Connections that are not in use. They are not per thread: Lance calls back on threads that are new to Python
        #: each time, and would leave a connection open with every commit.
        self._idle: deque[SqliteConnection] = deque()
        self._open: list[SqliteConnection] = []
        self._opening = threading.Lock()
        self.cache = ReadCache()
        self._change_token: Hashable = None
        #: The last entry of the log of changes that was read.
        self._position = 0
        self._queue: queue.SimpleQueue[_Write | None] = queue.SimpleQueue()
        self._closing = threading.Lock()
        self._closed = False
        # One process at a time: SQLite does not wait for another that switches a new file to WAL, and fails.
        with self.exclusive("catalog"):
            self._own = self._connect()  # an invalid file fails here, not in the writer thread
        self._writer = threading.Thread(target=self._write_forever, name="pennon-catalog-writer", daemon=True)
        self._writer.start()

    def instance(self) -> str:
        # A copy has another inode than its original while both exist; a moved file keeps it.
        return f"sqlite:{self._path.stat().st_ino}"

    def read(self, work: Callable[[Connection], Result]) -> Result:
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._connect()
        try:
            return work(connection)
        finally:
            self._idle.append(connection)

    def change_token(self) -> Hashable:
        # SQLite counts the commits of other connections, and this one only reads. The pragma is cheaper than any query.
        row = self._own.one("PRAGMA data_version")
        return int(row[0]) if row else None

    def refresh(self) -> bool:
        token = self.change_token()
        if token != self._change_token:
            # In this order, so that entries that are pruned meanwhile are either read or known to be missing.
            entries = self._own.all("SELECT position, subject FROM changes WHERE position > ?", self._position)
            (pruned,) = self._own.one("SELECT pruned FROM change_horizon") or (0,)
            if self._change_token is None or self._position + 1 < pruned:
                self.cache.clear()
                self.cache.activate()
            self.cache.invalidate(subject for _, subject in entries)
            self._position = max([self._position, *(position for position, _ in entries)])
            self._change_token = token
        return True

    def cached_read(self, subject: str, find: Callable[..., Result], *key: Hashable) -> Result:
        if is_inline():
            found = self.cache.find(subject, (find, key))
            if found is None:
                found = self.cache.fill(subject, (find, key), lambda: find(self._own, *key))
            return cast("Result", self.cache.use(found))
        return self.read(lambda connection: find(connection, *key))

    def write(self, work: Callable[[Connection], Result]) -> Result:
        require_thread()
        waiting = _Write(work)
        if not self._enqueue(waiting):
            raise ServiceUnavailableError("The catalog is closed.")
        return cast("Result", waiting.future.result())

    def defer(self, work: Callable[[Connection], object]) -> None:
        waiting = _Write(work, is_deferred=True)
        waiting.future.add_done_callback(log_failure)
        self._enqueue(waiting)

    @contextlib.contextmanager
    def exclusive(self, *names: str) -> Iterator[None]:
        require_thread()
        # Lock files beside the database work because all its processes are on one machine.
        locks: list[int] = []
        try:
            for name in names:
                locks.append(self._open_lock(name))
                fcntl.flock(locks[-1], fcntl.LOCK_EX)
            yield
        finally:
            for lock in locks:
                os.close(lock)

    def lock_shared(self, name: str) -> Callable[[], None]:
        lock = self._open_lock(name)
        fcntl.flock(lock, fcntl.LOCK_SH)
        return partial(os.close, lock)

    def is_locked(self, name: str) -> bool:
        lock = self._open_lock(name)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False

    def delete_locks(self, *names: str) -> None:
        for name in names:
            (self._locks / name).unlink(missing_ok=True)

    def close(self) -> None:
        with self._closing:
            if self._closed:
                return
            self._closed = True
            self._queue.put(None)
        self._writer.join()
        for connection in self._open:
            connection.close()
        self._open.clear()
        self._idle.clear()

    def _enqueue(self, waiting: _Write) -> bool:
        """Put work into the queue of the writer thread; false if the database is closed."""
        with self._closing:
            if not self._closed:
                self._queue.put(waiting)
            return not self._closed

    def _open_lock(self, name: str) -> int:
        # Plain system calls, without a check for the folder, because every write passes here.
        path = f"{self._locks}/{name}"
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            self._locks.mkdir(mode=0o700, exist_ok=True)
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _connect(self) -> SqliteConnection:
        connection = SqliteConnection(self._path, self._root)
        with self._opening:
            self._open.append(connection)
        return connection

    def _write_forever(self) -> None:
        connection, closing = self._connect(), False
        while not closing:
            group, closing = self._next_group()
            if not group:
                continue
            try:
                with self.exclusive("catalog"):  # a file lock wakes waiting processes at once; SQLite would poll
                    _commit_together(connection, group)
            except OSError as error:  # no lock; the writer thread must survive it
                _resolve([(write, None, error) for write in group])

    def _next_group(self) -> tuple[list[_Write], bool]:
        """Wait for writes, and return them; true if the database is being closed after them."""
        group: list[_Write] = []
        deadline: float | None = None
        with contextlib.suppress(queue.Empty):
            while len(group) < _MAX_GROUP_SIZE:
                following = self._queue.get(timeout=None if deadline is None else max(deadline - time.monotonic(), 0))
                if following is None:
                    return group, True
                group.append(following)
                if not following.is_deferred:
                    deadline = 0.0  # take only what waits already
                elif deadline is None:
                    deadline = time.monotonic() + _DEFER_SECONDS
        return group, False


def _commit_together(connection: SqliteConnection, group: list[_Write]) -> None:
    """Run a group of writes in one transaction, and resolve their futures once it is durable."""
    outcomes: list[tuple[_Write, object, BaseException | None]] = []
    try:
        connection.run("BEGIN IMMEDIATE")
        outcomes = [(write, *_attempt(connection, write)) for write in group]
        connection.run("COMMIT")
    except BaseException as error:  # noqa: BLE001 (every waiting caller must get it)
        with contextlib.suppress(sqlite3.Error):
            connection.run("ROLLBACK")
        outcomes = [(write, None, error) for write in group]
    _resolve(outcomes)


def _resolve(outcomes: list[tuple[_Write, object, BaseException | None]]) -> None:
    for write, result, failure in outcomes:
        if failure is None:
            write.future.set_result(result)
        else:
            write.future.set_exception(failure)


def _attempt(connection: SqliteConnection, write: _Write) -> tuple[object, BaseException | None]:
    connection.run("SAVEPOINT attempt")
    try:
        result = write.context.run(write.work, connection)
    except BaseException as error:
        if not connection.in_transaction:
            raise  # SQLite has rolled back the whole group, for example because the disk is full
        connection.run("ROLLBACK TO attempt")
        connection.run("RELEASE attempt")
        return None, error
    connection.run("RELEASE attempt")
    return result, None
