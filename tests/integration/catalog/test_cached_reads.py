"""Reads that a process keeps: after any acknowledged write, by whichever process, they are as a new read would be."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from pennon.catalog import Connection, Database, changes, keys, namespaces, open_database, tables, versions
from pennon.catalog.changes import KEYS, key_subject, namespace_subject, table_subject, versions_subject
from pennon.catalog.schema import migrate
from pennon.catalog.tables import Table
from pennon.catalog.versions import Version
from pennon.core.caller import Role
from pennon.core.inline import NeedsThreadError, run_inline

if TYPE_CHECKING:
    from tests.support.postgres import PostgresServer

SHOP = ("shop",)
TEAS = ("shop", "teas")


@pytest.fixture
def writer(catalog_url: str) -> Iterator[Database]:
    """The catalog as one process has opened it."""
    with closing(open_database(catalog_url)) as database:
        migrate(database)
        database.write(lambda c: namespaces.insert(c, SHOP, None))
        yield database


@pytest.fixture
def reader(writer: Database, catalog_url: str) -> Iterator[Database]:
    """The same catalog as another process has opened it."""
    with closing(open_database(catalog_url)) as database:
        yield database


async def refresh(database: Database) -> bool:
    fresh = database.refresh()
    return fresh if isinstance(fresh, bool) else await fresh


async def follow(database: Database) -> None:
    """Wait until reads are kept."""
    for _ in range(500):
        if await refresh(database):
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the log of changes is not followed")


async def read(database: Database, subject: str, find: Callable[..., Any], *key: Any) -> Any:
    """Read as a server does for a request: from what it keeps, and from the catalog otherwise."""
    work = partial(database.cached_read, subject, find, *key)
    if await refresh(database):
        with suppress(NeedsThreadError):
            return run_inline(work)
    return await asyncio.to_thread(work)


async def table_of(database: Database) -> Table | None:
    found: Table | None = await read(database, table_subject(TEAS), tables.find, TEAS)
    return found


def is_kept(database: Database, subject: str, find: Callable[..., Any], *key: Any) -> bool:
    return database.cache.find(subject, (find, key)) is not None


def _find(find: Callable[..., Any], key: tuple[Any, ...], connection: Connection) -> Any:
    return find(connection, *key)


def add(connection: Connection, number: int = 0) -> None:
    table = Table(f"t{number}", SHOP, "teas", f"/lake/teas{number}")
    assert tables.insert(connection, table)


def commit(connection: Connection, number: int) -> None:
    assert versions.insert(connection, Version("t0", "", number, f"{number}.manifest", 10, "digest"))


#: Changes of a cached row, each after those before it: the read, and the change.
CHANGES: list[tuple[str, str, Callable[..., Any], tuple[Any, ...], Callable[[Connection], Any]]] = [
    ("insert a table", table_subject(TEAS), tables.find, (TEAS,), add),
    ("set properties", table_subject(TEAS), tables.find, (TEAS,), lambda c: tables.set_properties(c, "t0", {"a": "b"})),
    ("insert a version", versions_subject("t0"), versions.latest, ("t0", ""), lambda c: commit(c, 1)),
    (
        "update a version",
        versions_subject("t0"),
        versions.latest,
        ("t0", ""),
        lambda c: versions.correct(c, Version("t0", "", 1, "1.manifest", 11, "other")),
    ),
    (
        "delete a version",
        versions_subject("t0"),
        versions.latest,
        ("t0", ""),
        lambda c: versions.delete_branch(c, "t0", ""),
    ),
    ("rename from", table_subject(TEAS), tables.find, (TEAS,), lambda c: tables.rename(c, "t0", ("shop", "b"))),
    ("rename to", table_subject(TEAS), tables.find, (TEAS,), lambda c: tables.rename(c, "t0", TEAS)),
    ("relocate", table_subject(TEAS), tables.find, (TEAS,), lambda c: tables.relocate(c, "t0", "/lake/elsewhere")),
    ("delete a table", table_subject(TEAS), tables.find, (TEAS,), lambda c: tables.delete(c, "t0")),
    (
        "insert a namespace",
        namespace_subject(("a",)),
        namespaces.exists,
        (("a",),),
        lambda c: namespaces.insert(c, ("a",), None),
    ),
    (
        "update a namespace",
        namespace_subject(("a",)),
        namespaces.find_properties,
        (("a",),),
        lambda c: namespaces.set_properties(c, ("a",), {"x": "y"}),
    ),
    (
        "delete a namespace",
        namespace_subject(("a",)),
        namespaces.exists,
        (("a",),),
        lambda c: namespaces.delete(c, ("a",)),
    ),
    ("insert a key", KEYS, keys.any_configured, (), lambda c: keys.create(c, "ada", Role.READER, (), None)),
]


def test_each_change_of_a_kept_row_is_seen_in_another_process(writer: Database, reader: Database) -> None:
    async def run() -> None:
        await follow(reader)
        for name, subject, find, key, change in CHANGES:
            before = await read(reader, subject, find, *key)
            assert is_kept(reader, subject, find, *key), name
            await asyncio.to_thread(writer.write, change)
            after = await read(reader, subject, find, *key)
            assert after != before, name
            assert after == writer.read(partial(_find, find, key)), name

    asyncio.run(run())


def test_a_change_of_one_table_leaves_reads_of_others(writer: Database, reader: Database) -> None:
    async def run() -> None:
        writer.write(add)
        await follow(reader)
        await table_of(reader)
        await asyncio.to_thread(writer.write, lambda c: c.run("UPDATE tables SET declared = declared"))
        await asyncio.to_thread(writer.write, lambda c: namespaces.insert(c, ("b",), None))
        assert await table_of(reader) is not None
        assert is_kept(reader, table_subject(TEAS), tables.find, TEAS)

    asyncio.run(run())


def test_a_revoked_key_is_seen_in_another_process(writer: Database, reader: Database) -> None:
    secret = writer.write(lambda c: keys.create(c, "ada", Role.READER, (), None)) or ""
    digest = keys.digest_of(secret)

    async def run() -> None:
        await follow(reader)
        for _ in range(2):
            assert (await read(reader, key_subject(digest), keys.find, digest)).is_active
        assert is_kept(reader, key_subject(digest), keys.find, digest)
        await asyncio.to_thread(writer.write, lambda c: keys.revoke(c, "ada"))
        assert not (await read(reader, key_subject(digest), keys.find, digest)).is_active

    asyncio.run(run())


def test_unknown_keys_are_not_kept(writer: Database, reader: Database) -> None:
    async def run() -> None:
        await follow(reader)
        with pytest.raises(keys.KeyNotFoundError):
            await read(reader, key_subject("x"), keys.find, "x")
        assert not is_kept(reader, key_subject("x"), keys.find, "x")

    asyncio.run(run())


def test_writes_and_reads_at_once_are_never_stale(writer: Database, reader: Database) -> None:
    """Several tasks read while a writer writes: each read is at least as new as the last write before it."""
    writer.write(add)
    acknowledged = 0

    async def keep_reading(seen: list[int]) -> None:
        while acknowledged < 200:
            before = acknowledged
            table = await table_of(reader)
            assert table is not None
            assert int(table.properties.get("n", "0")) >= before
            seen.append(int(table.properties.get("n", "0")))
            await asyncio.sleep(0.001)

    async def keep_writing() -> None:
        nonlocal acknowledged
        for number in range(1, 201):
            properties = {"n": str(number)}
            await asyncio.to_thread(writer.write, lambda c: tables.set_properties(c, "t0", properties))  # noqa: B023
            acknowledged = number

    async def run() -> None:
        await follow(reader)
        seen: list[int] = []
        await asyncio.gather(keep_writing(), *(keep_reading(seen) for _ in range(8)))
        assert len(set(seen)) > 20

    asyncio.run(run())


def test_a_log_that_was_pruned_before_it_was_read_empties_the_cache(writer: Database, reader: Database) -> None:
    def prune(connection: Connection) -> None:
        connection.run("UPDATE change_horizon SET recorded_at = 0")
        changes.prune(connection, writer.dialect)

    async def run() -> None:
        writer.write(add)
        await follow(reader)
        await table_of(reader)
        await asyncio.to_thread(writer.write, lambda c: tables.set_properties(c, "t0", {"a": "b"}))
        for _ in range(2):
            await asyncio.to_thread(writer.write, prune)
        assert writer.read(lambda c: c.all("SELECT subject FROM changes")) == []
        table = await table_of(reader)
        assert table is not None
        assert table.properties == {"a": "b"}
        # A process that keeps up loses nothing.
        for _ in range(3):
            await refresh(reader)
            await asyncio.to_thread(writer.write, prune)
        assert await table_of(reader) is not None
        assert is_kept(reader, table_subject(TEAS), tables.find, TEAS)

    asyncio.run(run())


def test_transactions_that_commit_in_another_order_than_they_began(postgres_url: str) -> None:
    async def run(reader: Database, first: psycopg.Connection[Any], second: psycopg.Connection[Any]) -> None:
        await follow(reader)
        first.execute("UPDATE tables SET properties = '{\"n\": \"1\"}' WHERE id = 't0'")
        second.execute("INSERT INTO namespaces VALUES ('later', '', 'later', '{}', 0)")
        second.commit()
        table = await table_of(reader)
        assert table is not None
        assert table.properties == {}
        first.commit()
        table = await table_of(reader)
        assert table is not None
        assert table.properties == {"n": "1"}

    with closing(open_database(postgres_url)) as reader:
        migrate(reader)
        reader.write(lambda c: namespaces.insert(c, SHOP, None))
        reader.write(add)
        with psycopg.connect(postgres_url) as first, psycopg.connect(postgres_url) as second:
            asyncio.run(run(reader, first, second))


def test_a_lost_connection_empties_the_cache_and_is_opened_again(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Requests that wait for the log are released by the loss itself.
    monkeypatch.setattr("pennon.catalog.database.change_feed._QUERY_SECONDS", 600)

    async def run(reader: Database, administrator: psycopg.Connection[Any]) -> None:
        await follow(reader)
        for number in range(3):
            await table_of(reader)
            administrator.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
                "AND datname = current_database()"
            )
            await asyncio.wait_for(asyncio.gather(*(refresh(reader) for _ in range(8))), 60)
            administrator.execute("UPDATE tables SET properties = %s", (f'{{"n": "{number}"}}',))
            table = await table_of(reader)
            assert table is not None
            assert table.properties == {"n": str(number)}
            await follow(reader)

    with closing(open_database(postgres_url)) as reader:
        migrate(reader)
        reader.write(lambda c: namespaces.insert(c, SHOP, None))
        reader.write(add)
        with psycopg.connect(postgres_url, autocommit=True) as administrator:
            asyncio.run(run(reader, administrator))


def test_a_server_that_does_not_respond_keeps_no_request_waiting_and_no_read(
    postgres_server: PostgresServer, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pennon.catalog.database.change_feed._QUERY_SECONDS", 0.2)

    async def run(reader: Database, other: psycopg.Connection[Any]) -> None:
        await follow(reader)
        await table_of(reader)
        other.execute("LOCK TABLE changes IN ACCESS EXCLUSIVE MODE")
        assert not await refresh(reader)
        assert not is_kept(reader, table_subject(TEAS), tables.find, TEAS)
        other.rollback()
        await follow(reader)

    with closing(open_database(postgres_url)) as reader:
        migrate(reader)
        with psycopg.connect(postgres_url) as other:
            asyncio.run(run(reader, other))


def test_more_changes_than_are_read_at_once_empty_the_cache(
    writer: Database, reader: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pennon.catalog.database.change_feed._MAX_CHANGES", 3)

    async def run() -> None:
        writer.write(add)
        await follow(reader)
        await table_of(reader)

        def change(connection: Connection) -> None:
            for number in range(5):
                namespaces.insert(connection, (f"n{number}",), None)
            tables.set_properties(connection, "t0", {"a": "b"})

        await asyncio.to_thread(writer.write, change)
        table = await table_of(reader)
        assert table is not None
        assert table.properties == {"a": "b"}

    asyncio.run(run())


def test_many_threads_fill_the_cache_together(writer: Database, reader: Database) -> None:
    writer.write(add)

    async def run() -> None:
        await follow(reader)
        with ThreadPoolExecutor(8) as threads:
            work = partial(reader.cached_read, table_subject(TEAS), tables.find, TEAS)
            found = list(threads.map(lambda _: work(), range(32)))
        assert all(table is not None and table.id == "t0" for table in found)
        assert await table_of(reader) == found[0]

    asyncio.run(run())
