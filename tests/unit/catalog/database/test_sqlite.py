"""The embedded catalog: waiting writes share a transaction, and each gets its own outcome once it is durable."""

from __future__ import annotations

import sqlite3
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from lance_namespace.errors import ServiceUnavailableError

from pennon.catalog import ForeignKeyError, open_database
from pennon.catalog.database.sqlite import SqliteDatabase, _commit_together, _Write
from pennon.core.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pennon.catalog import Connection

SCHEMA = (
    "CREATE TABLE things (name TEXT PRIMARY KEY);"
    "CREATE TABLE parts (name TEXT PRIMARY KEY, thing TEXT NOT NULL REFERENCES things (name))"
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "catalog.db"


@pytest.fixture
def database(path: Path) -> Iterator[SqliteDatabase]:
    opened = SqliteDatabase(path)
    opened.write(lambda connection: connection.script(SCHEMA))
    yield opened
    opened.close()


def add(connection: Connection, name: str) -> str:
    connection.run("INSERT INTO things (name) VALUES (?)", name)
    return name


def names(path: Path) -> list[str]:
    """Return what a stranger finds in the file."""
    with closing(sqlite3.connect(path)) as connection:
        return [row[0] for row in connection.execute("SELECT name FROM things ORDER BY name")]


class TestGroups:
    def test_writes_that_wait_for_each_other_are_committed_together(self, database: SqliteDatabase, path: Path) -> None:
        statements: list[str] = []
        entered, released = threading.Event(), threading.Event()

        def hold(connection: Connection) -> None:
            connection._raw.set_trace_callback(statements.append)  # type: ignore[attr-defined]
            entered.set()
            assert released.wait(30)

        with ThreadPoolExecutor(9) as threads:
            waiting: list[Future[Any]] = [threads.submit(database.write, hold)]
            assert entered.wait(30)
            waiting += [threads.submit(database.write, partial(add, name=f"thing{n}")) for n in range(8)]
            while database._queue.qsize() < 8:
                threading.Event().wait(0.001)
            released.set()
            wait(waiting, timeout=30)
        assert [future.result() for future in waiting[1:]] == [f"thing{n}" for n in range(8)]
        assert (statements.count("BEGIN IMMEDIATE"), statements.count("COMMIT")) == (1, 2)
        assert names(path) == [f"thing{n}" for n in range(8)]

    def test_one_that_fails_fails_alone(self, database: SqliteDatabase, path: Path) -> None:
        def fail(connection: Connection) -> None:
            add(connection, "half done")
            raise LookupError("no")

        group = [
            _Write(lambda c: add(c, "a")),
            _Write(fail),
            _Write(lambda c: add(c, "a")),
            _Write(lambda c: add(c, "b")),
        ]
        database.write(lambda connection: None)
        with closing(database._connect()) as connection:
            _commit_together(connection, group)
        assert group[0].future.result() == "a"
        assert isinstance(group[1].future.exception(), LookupError)
        assert isinstance(group[2].future.exception(), sqlite3.IntegrityError)
        assert group[3].future.result() == "b"
        assert names(path) == ["a", "b"]

    def test_success_is_reported_only_after_the_commit_is_durable(self, database: SqliteDatabase, path: Path) -> None:
        found: list[list[str]] = []
        group = [_Write(partial(add, name=n)) for n in "abc"]
        for write in group:
            write.future.add_done_callback(lambda _: found.append(names(path)))
        with closing(database._connect()) as connection:
            _commit_together(connection, group)
        assert found == [["a", "b", "c"]] * 3

    def test_every_waiting_writer_gets_the_error_of_a_failed_commit(self, database: SqliteDatabase, path: Path) -> None:
        class Full:
            def __init__(self, inner: Any) -> None:
                self.inner = inner

            def run(self, sql: str, *parameters: object) -> int:
                if sql == "COMMIT":
                    raise sqlite3.OperationalError("database or disk is full")
                return int(self.inner.run(sql, *parameters))

        group = [_Write(partial(add, name=n)) for n in "ab"]
        with closing(database._connect()) as connection:
            _commit_together(Full(connection), group)  # type: ignore[arg-type]
        assert all(isinstance(write.future.exception(), sqlite3.OperationalError) for write in group)
        assert names(path) == []
        database.write(lambda c: add(c, "later"))
        assert names(path) == ["later"]

    def test_every_waiting_writer_gets_the_error_of_a_full_disk(self, database: SqliteDatabase, path: Path) -> None:
        group = [_Write(partial(add, name=n)) for n in ("a", "b" * 1_000_000, "c")]
        with closing(database._connect()) as connection:
            connection.run("PRAGMA max_page_count = 1")  # no more than there are
            _commit_together(connection, group)
        assert all(isinstance(write.future.exception(), ServiceUnavailableError) for write in group)
        assert names(path) == []

    def test_work_runs_in_the_context_of_who_handed_it_over(self, database: SqliteDatabase) -> None:
        who: ContextVar[str] = ContextVar("who", default="nobody")
        who.set("ada")
        assert database.write(lambda _: who.get()) == "ada"


class TestReading:
    def test_readers_do_not_keep_the_writer_waiting(self, database: SqliteDatabase, path: Path) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as reader:
            assert reader.execute("PRAGMA journal_mode").fetchone() == ("wal",)
            reader.execute("BEGIN")
            assert reader.execute("SELECT count(*) FROM things").fetchone() == (0,)
            database.write(lambda c: add(c, "a"))
            assert reader.execute("SELECT count(*) FROM things").fetchone() == (0,)
        assert names(path) == ["a"]

    def test_a_write_is_seen_by_every_thread_at_once(self, database: SqliteDatabase) -> None:
        def count(connection: Connection) -> int:
            row = connection.one("SELECT count(*) FROM things")
            return int(row[0]) if row else -1

        with ThreadPoolExecutor(4) as threads:
            for number in range(20):
                database.write(partial(add, name=str(number)))
                assert set(threads.map(lambda _: database.read(count), range(4))) == {number + 1}
                assert database.read(count) == number + 1

    def test_a_connection_for_each_thread_of_a_server_takes_little_memory(self, database: SqliteDatabase) -> None:
        (kibibytes,) = database.read(lambda connection: connection.one("PRAGMA cache_size")) or (0,)
        threads = load_settings().metadata_threads + 3 * load_settings().data_threads
        assert 0 < -kibibytes * threads <= 512 * 1024

    def test_rows_that_others_refer_to_are_an_error_of_their_own(self, database: SqliteDatabase) -> None:
        database.write(lambda c: add(c, "whole"))
        database.write(lambda c: c.run("INSERT INTO parts VALUES ('p', 'whole')"))
        with pytest.raises(ForeignKeyError):
            database.write(lambda c: c.run("DELETE FROM things"))
        with pytest.raises(ForeignKeyError):
            database.write(lambda c: c.run("INSERT INTO parts VALUES ('q', 'nothing')"))


class TestLife:
    def test_deferred_work_is_done_before_the_end(self, path: Path) -> None:
        database = SqliteDatabase(path)
        database.write(lambda connection: connection.script(SCHEMA))
        for number in range(50):
            database.defer(partial(add, name=str(number)))
        database.close()
        assert len(names(path)) == 50

    def test_deferred_work_that_fails_is_only_logged(
        self, database: SqliteDatabase, caplog: pytest.LogCaptureFixture
    ) -> None:
        def fail(_: Connection) -> None:
            raise LookupError("deferred and wrong")

        database.defer(fail)
        assert database.write(lambda c: add(c, "after")) == "after"
        database.write(lambda _: None)
        assert "deferred and wrong" in caplog.text

    def test_a_closed_database_answers_rather_than_keeps_its_callers_waiting(self, path: Path) -> None:
        database = SqliteDatabase(path)
        database.close()
        with ThreadPoolExecutor(1) as threads:
            late = threads.submit(database.write, lambda _: None)
            with pytest.raises(ServiceUnavailableError):
                late.result(timeout=60)
        database.defer(lambda _: None)
        database.close()

    def test_a_writer_that_cannot_have_its_lock_goes_on_once_it_can(
        self, database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(_: str) -> Any:
            raise OSError(24, "Too many open files")

        with monkeypatch.context() as patched, ThreadPoolExecutor(1) as threads:
            patched.setattr(database, "exclusive", refuse)
            with pytest.raises(OSError, match="Too many open files"):
                threads.submit(database.write, lambda c: add(c, "a")).result(timeout=30)
        assert database.write(lambda c: add(c, "b")) == "b"

    def test_processes_that_start_together_make_the_file_in_turn(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        alone: list[bool] = []
        connect = SqliteDatabase._connect

        def watch(database: SqliteDatabase) -> Any:
            alone.append(database.is_locked("catalog"))
            return connect(database)

        monkeypatch.setattr(SqliteDatabase, "_connect", watch)
        SqliteDatabase(path).close()
        assert alone[0]

    def test_a_file_that_cannot_be_opened_is_an_error_at_once(self, tmp_path: Path) -> None:
        (tmp_path / "folder").mkdir()
        with pytest.raises(sqlite3.OperationalError):
            SqliteDatabase(tmp_path / "folder")

    def test_writers_of_two_processes_take_turns(self, path: Path, database: SqliteDatabase) -> None:
        other = SqliteDatabase(path)
        with ThreadPoolExecutor(8) as threads:
            done = [
                threads.submit(one.write, partial(add, name=f"{m}-{n}"))
                for n in range(20)
                for m, one in enumerate((database, other))
            ]
            wait(done, timeout=60)
        other.close()
        assert len(names(path)) == 40


@pytest.mark.parametrize(
    "url",
    [
        *("mysql://h/db", "", "catalog.db", "/tmp/catalog.db", "http://x"),
        *("sqlite:catalog.db", "sqlite://catalog.db", "sqlite:///", "sqlite:///:memory:"),
    ],
)
def test_other_databases_are_refused(url: str) -> None:
    with pytest.raises(Exception, match="sqlite:///PATH or postgresql://"):
        open_database(url)


def test_only_the_owner_may_read_the_catalog(tmp_path: Path) -> None:
    own = tmp_path / ".pennon"
    own.mkdir(mode=0o755)
    path = own / "catalog.db"
    path.touch(mode=0o644)
    (own / "catalog.db-wal").touch(mode=0o644)
    with closing(SqliteDatabase(path)) as database:
        database.write(lambda connection: connection.script(SCHEMA))
        rights = {file.name: file.stat().st_mode & 0o777 for file in [own, *own.rglob("*")]}
    assert {name: oct(mode) for name, mode in rights.items() if mode & 0o077} == {}
    assert {"catalog.db", "catalog.db-wal", "catalog.db-shm", "locks"} <= rights.keys()


def test_a_folder_that_others_share_keeps_its_rights(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    with closing(SqliteDatabase(shared / "catalog.db")):
        assert shared.stat().st_mode & 0o777 == 0o755
        assert (shared / "catalog.db").stat().st_mode & 0o777 == 0o600
