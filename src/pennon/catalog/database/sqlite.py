"""The embedded catalog: SQLite in WAL mode with one writer that commits waiting work together."""

from __future__ import annotations

import contextlib
import fcntl
import os
import queue
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, LiteralString, TypeVar

from lance_namespace.errors import ServiceUnavailableError

from pennon.catalog.database.protocol import Connection, Row, StillReferencedError, log_failure
from pennon.core.private_files import close_to_others, make_private_file, make_private_folder

if TYPE_CHECKING:
    from pathlib import Path

Result = TypeVar("Result")

_BUSY_SECONDS = 30.0
_LARGEST_GROUP = 256
#: Answers that are kept while nothing is written.
_MOST_SEEN = 50_000
_UNSEEN = object()
_PRAGMAS = (
    "journal_mode=WAL",
    "synchronous=FULL",
    # On macOS alone these two differ from the default: fsync() leaves what it wrote in the cache of the disk there.
    "fullfsync=ON",
    "checkpoint_fullfsync=ON",
    "foreign_keys=ON",
    "temp_store=MEMORY",
    # KiB of each connection, of which there may be one a thread; what more there is, the system has in its own cache.
    "cache_size=-4096",
)
_BUSY = "The catalog is busy; try again."
_UNWRITABLE = "The catalog cannot be written; see whether its disk is full or read-only."
#: What keeps SQLite from working, and what to tell about it.
_UNABLE = {
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
        except BaseException:  # a file that is no database, for example; Python 3.13 warns of what stays open
            self._raw.close()
            raise

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction was begun and has not ended."""
        return self._raw.in_transaction

    def one(self, sql: LiteralString, *parameters: object) -> Row | None:
        row: Row | None = self._execute(sql, parameters).fetchone()
        return row

    def all(self, sql: LiteralString, *parameters: object) -> list[Row]:
        return self._execute(sql, parameters).fetchall()

    def run(self, sql: LiteralString, *parameters: object) -> int:
        return self._execute(sql, parameters).rowcount

    def take_turn(self, name: str) -> None:
        pass  # one transaction writes at a time anyway

    def script(self, sql: str) -> None:
        # executescript() would commit first and so break the transaction a migration runs in.
        for statement in filter(str.strip, sql.split(";")):
            self._raw.execute(statement)

    def close(self) -> None:
        self._raw.close()

    def _execute(self, sql: str, parameters: tuple[Any, ...]) -> sqlite3.Cursor:
        try:
            return self._raw.execute(sql, parameters)
        except sqlite3.IntegrityError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY:
                raise StillReferencedError from error
            raise
        except sqlite3.OperationalError as error:
            reason = _UNABLE.get(error.sqlite_errorcode & 0xFF)  # the rest tells more than anyone needs
            if reason is not None:
                raise ServiceUnavailableError(reason) from error
            raise


@dataclass
class _Write:
    """Work that waits for the writer, and where its outcome goes."""

    work: Callable[[Connection], Any]
    outcome: Future[Any] = field(default_factory=Future)
    #: The work runs on the writer's thread, but for the caller who handed it over.
    context: Context = field(default_factory=copy_context)


class SqliteDatabase:
    """A SQLite file: any thread reads, one thread writes.

    Writes that arrive while another is being made durable wait in a queue and share the next transaction, each in a
    savepoint of its own: one fails alone, and one ``fsync`` serves them all.
    """

    dialect = "sqlite"
    embedded = True

    def __init__(self, path: Path, *, root: str = "") -> None:
        make_private_folder(path.parent)
        make_private_file(path)  # SQLite gives the files beside it the same rights
        for beside in ("-wal", "-shm"):
            close_to_others(path.with_name(path.name + beside))
        self._path = path
        self._root = root
        self.file: Path | None = path
        self._locks = path.parent / "locks"
        #: Connections that nobody reads through at the moment. Not one a thread: Lance calls back on threads that are
        #: new to Python each time, and would leave a connection behind with every commit.
        self._idle: deque[SqliteConnection] = deque()
        self._open: list[SqliteConnection] = []
        self._opening = threading.Lock()
        # Only the thread that opened the database, which runs the event loop of a server, remembers what it has seen.
        self._home = threading.get_ident()
        self._seen: dict[Any, Any] = {}
        self._seen_at: Hashable = None
        self._version: Hashable = None
        self._looks_again = False
        self._looked = False
        self._queue: queue.SimpleQueue[_Write | None] = queue.SimpleQueue()
        self._closing = threading.Lock()
        self._closed = False
        # One after the other, or SQLite, which does not wait when it makes a new file a WAL, would refuse the second.
        with self.exclusive("catalog"):
            self._own = self._connect()  # fails here, not in the writer, when the file cannot be opened
        self._writer = threading.Thread(target=self._write_forever, name="pennon-catalog-writer", daemon=True)
        self._writer.start()

    def instance(self) -> str:
        # A copy never has the inode of its original while both are there; a file that is moved keeps it.
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
        if threading.get_ident() != self._home:
            return None
        # SQLite counts what other connections committed, and a reader commits nothing: an unchanged count means that
        # whatever this reader has seen is still so. Asking for it is cheaper than any query.
        if not self._looked:
            (self._version,) = self._own.one("PRAGMA data_version") or (None,)
            self._looked = self._looks_again
        return self._version

    def cached_read(self, find: Callable[..., Result], *key: Hashable) -> Result:
        version = self.change_token()
        if version is None:
            return self.read(lambda connection: find(connection, *key))
        if version != self._seen_at or len(self._seen) >= _MOST_SEEN:
            self._seen.clear()
            self._seen_at = version
        known = self._seen.get((find, key), _UNSEEN)
        if known is _UNSEEN:
            known = self._seen[find, key] = find(self._own, *key)
        return known  # type: ignore[no-any-return]

    def invalidate(self) -> None:
        self._looks_again = True
        self._looked = False

    def write(self, work: Callable[[Connection], Result]) -> Result:
        waiting = _Write(work)
        if not self._hand_over(waiting):
            raise ServiceUnavailableError("The catalog is closed.")
        result: Result = waiting.outcome.result()
        return result

    def defer(self, work: Callable[[Connection], object]) -> None:
        waiting = _Write(work)
        waiting.outcome.add_done_callback(log_failure)
        self._hand_over(waiting)

    @contextlib.contextmanager
    def exclusive(self, *names: str) -> Iterator[None]:
        # Files beside the database: the processes that share it are on one machine.
        locks: list[int] = []
        try:
            for name in names:
                locks.append(self._open_lock(name))
                fcntl.flock(locks[-1], fcntl.LOCK_EX)
            yield
        finally:
            for lock in locks:
                os.close(lock)

    def share(self, name: str) -> Callable[[], None]:
        lock = self._open_lock(name)
        fcntl.flock(lock, fcntl.LOCK_SH)
        return partial(os.close, lock)

    def is_shared(self, name: str) -> bool:
        lock = self._open_lock(name)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False

    def forget_locks(self, *names: str) -> None:
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

    def _hand_over(self, waiting: _Write) -> bool:
        """Put work into the writer's queue; false when nobody will look there any more."""
        with self._closing:
            if not self._closed:
                self._queue.put(waiting)
            return not self._closed

    def _open_lock(self, name: str) -> int:
        # Plain system calls, and no look whether the folder is there: every write comes by here.
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
        connection = self._connect()
        while (first := self._queue.get()) is not None:
            group = [first]
            stopping = False
            with contextlib.suppress(queue.Empty):
                while len(group) < _LARGEST_GROUP and not stopping:
                    following = self._queue.get_nowait()
                    if following is None:
                        stopping = True
                    else:
                        group.append(following)
            try:
                with self.exclusive("catalog"):  # the file lock wakes who waits at once; SQLite's own would poll
                    _commit_together(connection, group)
            except OSError as error:  # no lock to be had: the writer must outlive it
                _tell([(write, None, error) for write in group])
            if stopping:
                return


def _commit_together(connection: SqliteConnection, group: list[_Write]) -> None:
    """Run a group of writes in one transaction and tell each its outcome once it is durable."""
    outcomes: list[tuple[_Write, Any, BaseException | None]] = []
    try:
        connection.run("BEGIN IMMEDIATE")
        outcomes = [(write, *_attempt(connection, write)) for write in group]
        connection.run("COMMIT")
    except BaseException as error:  # noqa: BLE001 (every waiting caller must hear of it)
        with contextlib.suppress(sqlite3.Error):
            connection.run("ROLLBACK")
        outcomes = [(write, None, error) for write in group]
    _tell(outcomes)


def _tell(outcomes: list[tuple[_Write, Any, BaseException | None]]) -> None:
    for write, result, failure in outcomes:
        if failure is None:
            write.outcome.set_result(result)
        else:
            write.outcome.set_exception(failure)


def _attempt(connection: SqliteConnection, write: _Write) -> tuple[Any, BaseException | None]:
    connection.run("SAVEPOINT attempt")
    try:
        result = write.context.run(write.work, connection)
    except BaseException as error:
        if not connection.in_transaction:
            raise  # SQLite has undone all of the group, as it does when its disk is full
        connection.run("ROLLBACK TO attempt")
        connection.run("RELEASE attempt")
        return None, error
    connection.run("RELEASE attempt")
    return result, None
