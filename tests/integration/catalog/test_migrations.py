"""The schema of the catalog: every way to the latest version leads to the same place."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from pennon.catalog import (
    clones,
    column_states,
    dropped_locations,
    garbage,
    idempotency,
    index_builds,
    job_events,
    jobs,
    open_database,
    tables,
    versions,
    view_schedules,
)
from pennon.catalog.schema import (
    SchemaVersionError,
    latest_version,
    migrate,
    migration_numbers,
    migrations,
    schema_version,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pennon.catalog import Connection, Database

NUMBERS = migration_numbers()
COLUMNS = (
    "SELECT table_name, column_name, ordinal_position, data_type, is_nullable, column_default, collation_name "
    "FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1, 3"
)
INDEXES = "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1, 2"
CONSTRAINTS = (
    "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint "
    "WHERE connamespace = 'public'::regnamespace ORDER BY 1, 2"
)
#: A table with a version, as the first schema has them.
OLD_CATALOG = """
INSERT INTO namespaces VALUES ('shop', '', 'shop', '{}', 1);
INSERT INTO tables VALUES ('t1', 'shop', 'teas', '/lake/teas', 'created', 1, 0, '{"owner": "ada"}', 2);
INSERT INTO versions VALUES ('t1', '', 3, '3.manifest', NULL, 10, NULL, 'digest', '{}', 0, NULL, 4);
"""
#: Rows of the tables that the migration of names touches, as the schema before it has them.
CATALOG_BEFORE_NAMES = """
INSERT INTO namespaces VALUES ('shop', '', 'shop', '{}', 1);
INSERT INTO tables VALUES ('t1', 'shop', 'teas', 'teas.lance', 'created', 1, 0, '{}', 2);
INSERT INTO tables VALUES ('t2', 'shop', 'copy', 'copy.lance', 'created', 1, 0, '{}', 2);
INSERT INTO tables VALUES ('v1', 'shop', 'view', 'view.lance', 'view', 1, 0, '{}', 2);
INSERT INTO clones VALUES ('t2', 't1');
INSERT INTO garbage VALUES ('old.lance', 't0', 3, 4);
INSERT INTO dropped_places VALUES ('gone.lance', 5);
INSERT INTO idempotency VALUES ('ada', 'key', 'print', 'tx', 200, '{"a": 1}', 6);
INSERT INTO index_builds VALUES ('t1', '', 'idx', 'name', 'BTREE', 'broken', 7);
INSERT INTO views (table_id, kind, definition, request, auto_refresh, on_schema_change, created_at)
    VALUES ('v1', 'query', '{}', '{}', 0, 'ignore_new', 10);
INSERT INTO view_slots VALUES ('v1', '@hourly', 11);
INSERT INTO jobs (id, kind, table_id, branch, target, namespace, name, state, priority, spec, submitted_by, context,
    created_at, worker, lease_until, attempt, takeovers, wish, counters, events)
    VALUES ('j1', 'backfill', 't1', '', 'column', 'shop', 'teas', 'running', 0, '{}', 'ada', '{}',
    12, 'w1', 13, 1, 0, 'pause', '{}', 1);
INSERT INTO job_events VALUES ('j1', 1, 12, 'submitted', '', '{}');
"""
BEFORE_NAMES = 17


@contextmanager
def opened(url: str) -> Iterator[Database]:
    database = open_database(url, pool_size=2)
    try:
        yield database
    finally:
        database.close()


def dump(url: str) -> Any:
    """Return all that a database says of its schema, and what its tables hold from the start."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            schema = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY 1, 2").fetchall()
            return schema, connection.execute("SELECT * FROM namespaces").fetchall()
    with psycopg.connect(url) as connection:
        schema = [connection.execute(sql).fetchall() for sql in (COLUMNS, INDEXES, CONSTRAINTS)]
        return schema, connection.execute("SELECT * FROM namespaces").fetchall()


@pytest.fixture
def fresh(catalog_url: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """Another empty database of the same kind."""
    if catalog_url.startswith("sqlite"):
        return f"sqlite:///{tmp_path / 'fresh.db'}"
    server = request.getfixturevalue("postgres_server")
    name = server.create_database()
    request.addfinalizer(lambda: server.drop_database(name))  # noqa: PT021 (only one of the two kinds needs it)
    return str(server.url(name))


def test_migrations_are_numbered_without_gaps() -> None:
    assert list(range(1, latest_version() + 1)) == NUMBERS


def test_every_way_to_the_latest_schema_leads_to_the_same(catalog_url: str, fresh: str) -> None:
    with opened(fresh) as database:
        assert migrate(database) == NUMBERS
        assert schema_version(database) == latest_version()
    expected = dump(fresh)
    for number in NUMBERS:
        with opened(catalog_url) as database:
            empty(database, catalog_url)
            assert migrate(database, number) == NUMBERS[:number]
            assert schema_version(database) == number
            assert migrate(database) == NUMBERS[number:]
        assert dump(catalog_url) == expected


def drop(connection: Connection, name: str) -> None:
    connection.script(f"DROP TABLE {name}")


def empty(database: Database, url: str) -> None:
    if url.startswith("sqlite"):
        names = database.read(lambda c: c.all("SELECT name FROM sqlite_master WHERE type = 'table'"))
        for (name,) in [name for name in reversed(names) if not name[0].startswith("sqlite_")]:
            database.write(partial(drop, name=name))
    else:
        database.write(lambda c: c.script("DROP SCHEMA public CASCADE; CREATE SCHEMA public"))


def test_one_migration_at_a_time_leads_there_too(catalog_url: str, fresh: str) -> None:
    with opened(catalog_url) as database:
        for number in NUMBERS:
            assert migrate(database, number) == [number]
    with opened(fresh) as database:
        migrate(database)
    assert dump(catalog_url) == dump(fresh)


def test_what_the_first_schema_held_is_there_in_the_latest(catalog_url: str) -> None:
    with opened(catalog_url) as database:
        migrate(database, 1)
        database.write(lambda connection: connection.script(OLD_CATALOG))
        migrate(database)
        table = database.read(lambda connection: tables.find(connection, ("shop", "teas")))
        version = database.read(lambda connection: versions.latest(connection, "t1", ""))
    assert table is not None
    assert (table.id, table.location, table.managed, table.declared) == ("t1", "/lake/teas", True, False)
    assert (table.properties, table.created_at) == ({"owner": "ada"}, 2)
    assert version is not None
    assert (version.version, version.manifest, version.size, version.pending) == (3, "3.manifest", 10, False)


def test_rows_of_renamed_tables_and_columns_are_kept(catalog_url: str) -> None:
    with opened(catalog_url) as database:
        migrate(database, BEFORE_NAMES)
        database.write(lambda connection: connection.script(CATALOG_BEFORE_NAMES))
        state = ("t1", "column", "files", "", 8, 9, b"state")
        database.write(
            lambda connection: connection.run("INSERT INTO column_fills VALUES (?, ?, ?, ?, ?, ?, ?)", *state)
        )
        migrate(database)

        def read(connection: Connection) -> None:
            assert [table.id for table in clones.of(connection, "t1")] == ["t2"]
            assert garbage.contains(connection, "old.lance")
            assert dropped_locations.contains(connection, "gone.lance")
            assert idempotency.find(connection, "ada", "key") == idempotency.Outcome("print", "tx", 200, '{"a": 1}')
            build = index_builds.Build("t1", "", "idx", "name", "BTREE", "broken")
            assert index_builds.of_branch(connection, "t1", "") == [build]
            states = column_states.of_column(connection, "t1", "column")
            assert [(state.fragment_id, state.version, state.state) for state in states] == [(8, 9, b"state")]
            due = view_schedules.find(connection, "v1")
            assert due is not None
            assert (due.schedule, due.due_at) == ("@hourly", 11)
            job = jobs.find(connection, "j1")
            assert job is not None
            assert (job.state, job.worker, job.stop_request) == ("running", "w1", "pause")

        database.read(read)
        assert database.write(lambda connection: job_events.append(connection, "j1", "paused", 14))
        events = database.read(lambda connection: job_events.after(connection, "j1", 0, 10))
        assert [(event.seq, event.kind) for event in events] == [(1, "submitted"), (2, "paused")]
        # Foreign keys still lead to the renamed tables.
        database.write(lambda connection: tables.deregister(connection, "t1"))
        assert database.read(lambda connection: column_states.of_column(connection, "t1", "column")) == []
        database.write(lambda connection: tables.delete(connection, "v1"))
        assert database.read(lambda connection: view_schedules.find(connection, "v1")) is None


def test_an_up_to_date_schema_is_left_alone(catalog_url: str) -> None:
    with opened(catalog_url) as database:
        migrate(database)
        before = dump(catalog_url)
        assert migrate(database) == []
    assert dump(catalog_url) == before


def test_a_newer_schema_is_refused_and_left_alone(catalog_url: str) -> None:
    with opened(catalog_url) as database:
        migrate(database)
        newer = latest_version() + 1
        database.write(lambda c: c.run("UPDATE pennon_schema SET version = ?", newer))
        with pytest.raises(SchemaVersionError, match=f"{newer}.*Upgrade Pennon"):
            migrate(database)
        assert schema_version(database) == newer


def test_a_migration_that_fails_leaves_the_schema_as_it_was(catalog_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(catalog_url) as database:
        migrate(database)
        before = dump(catalog_url)
        broken = [*migrations(database.dialect), (latest_version() + 1, "CREATE TABLE half (id TEXT); CREATE NONSENSE")]
        monkeypatch.setattr("pennon.catalog.schema.migrations", lambda _: broken)
        with pytest.raises((sqlite3.Error, psycopg.Error)):
            migrate(database)
        assert schema_version(database) == NUMBERS[-1]
    assert dump(catalog_url) == before


def test_processes_that_start_together_migrate_once(catalog_url: str) -> None:
    def start(_: int) -> list[int]:
        with opened(catalog_url) as database:
            return migrate(database)

    with ThreadPoolExecutor(4) as threads:
        applied = list(threads.map(start, range(4)))
    assert sorted(applied, key=len) == [[], [], [], NUMBERS]
