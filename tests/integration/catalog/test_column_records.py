"""What the catalog keeps of feature columns, on either database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pennon.catalog import Connection, Database, column_errors, column_states, column_writes, open_database, tables
from pennon.catalog.column_errors import ColumnError, ErrorScope
from pennon.catalog.column_states import ColumnStateRecord
from pennon.catalog.schema import migrate
from pennon.catalog.tables import Table

TABLE = Table("t1", (), "t", "file:///t")
PLACE = ErrorScope("t1", "", "y")


@pytest.fixture
def database(catalog_url: str) -> Iterator[Database]:
    opened = open_database(catalog_url, pool_size=2)
    migrate(opened)
    opened.write(lambda connection: tables.insert(connection, TABLE))
    yield opened
    opened.close()


def fill(version: int, *, fragment: int = 0, branch: str = "", signature: str | None = None) -> ColumnStateRecord:
    return ColumnStateRecord("t1", "key", signature or f"s{version}", branch, fragment, version, b"\x00state")


def save(database: Database, *fills: ColumnStateRecord) -> None:
    for each in fills:
        database.write(lambda connection, each=each: column_states.save(connection, each))  # type: ignore[misc]


def kept(database: Database) -> list[tuple[int, str, int]]:
    found = database.read(lambda connection: column_states.of_column(connection, "t1", "key"))
    return [(each.fragment_id, each.branch, each.version) for each in found]


def test_the_newest_records_of_a_fragment_are_kept(database: Database) -> None:
    save(database, fill(1, fragment=1), fill(2, branch="dev"), *(fill(version) for version in range(3, 10)))
    assert kept(database) == [(1, "", 1), (0, "dev", 2), (0, "", 6), (0, "", 7), (0, "", 8), (0, "", 9)]


def test_a_record_is_written_over_the_one_of_the_same_files(database: Database) -> None:
    save(database, fill(3, signature="same"), fill(5, signature="same"))
    assert kept(database) == [(0, "", 5)]
    found = database.read(lambda connection: column_states.find(connection, "t1", "key", "same", "other"))
    assert found is not None
    assert found.state == b"\x00state"


def test_errors_come_in_the_order_of_their_rows_page_by_page(database: Database) -> None:
    def add(fragment: int, offset: int, job: str) -> None:
        error = ColumnError(job, fragment, offset, 10 * offset, "f", "1", 3, "ValueError", "bad", 1, 5)
        database.write(lambda connection: column_errors.add(connection, PLACE, error))

    for fragment, offset, job in ((1, 4, "a"), (0, 7, "b"), (0, 2, "a")):
        add(fragment, offset, job)

    def page(job: str | None, after: tuple[int, int] | None, limit: int) -> list[tuple[int, int]]:
        found = database.read(
            lambda connection: column_errors.page(connection, PLACE, job_id=job, after=after, limit=limit)
        )
        return [(error.fragment_id, error.row_offset) for error in found]

    assert page(None, None, 2) == [(0, 2), (0, 7)]
    assert page(None, (0, 7), 2) == [(1, 4)]
    assert page("a", None, 9) == [(0, 2), (1, 4)]
    located = database.read(lambda connection: column_errors.of_column(connection, PLACE))
    database.write(lambda connection: column_errors.delete(connection, [error.id for error in located]))
    assert page(None, None, 9) == []


def test_all_records_are_removed_with_the_table(database: Database) -> None:
    save(database, fill(1))
    database.write(lambda connection: connection.run("DELETE FROM tables"))
    assert kept(database) == []


def test_records_of_column_writes_are_bounded_and_end_with_their_branch(database: Database) -> None:
    def read() -> list[tuple[str, int, bytes]]:
        return database.read(
            lambda connection: [
                (branch, *record)
                for branch in ("dev", "")
                for record in column_writes.of_branch(connection, "t1", branch, -1)
            ]
        )

    def save_all(connection: Connection) -> None:
        for version in range(column_writes.MAX_RECORDS + 3):
            column_writes.save(connection, "t1", "", version, b"\x00old")
        column_writes.save(connection, "t1", "", 514, b"\x00new")
        column_writes.save(connection, "t1", "dev", 2, b"\x00dev")

    database.write(save_all)
    assert read()[:2] == [("dev", 2, b"\x00dev"), ("", 3, b"\x00old")]
    assert (len(read()), read()[-1]) == (column_writes.MAX_RECORDS + 1, ("", 514, b"\x00new"))
    since = database.read(lambda connection: column_writes.of_branch(connection, "t1", "", 513))
    assert since == [(514, b"\x00new")]
    database.write(lambda connection: column_writes.delete(connection, "t1", "", 514))
    database.write(lambda connection: column_writes.delete_branch(connection, "t1", "dev"))
    assert (len(read()), read()[-1][1]) == (column_writes.MAX_RECORDS - 1, 513)
    database.write(lambda connection: tables.delete(connection, "t1"))
    assert read() == []
