"""``lancedb.connect(folder)`` on the folder of a running Pennon: each sees what the other does."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import lance
import lance_namespace as ln
import lancedb
import pytest

from tests.clients.lakes import ClientTable, Lake, ids_of, rows


@pytest.fixture
def db(local_lake: Lake) -> Any:
    """LanceDB on the server's folder, without the server."""
    return lancedb.connect(local_lake.server.directory)


@pytest.fixture
def name() -> str:
    """The name of a table that no other test has."""
    return f"t_{secrets.token_hex(6)}"


@pytest.fixture
def table(local_lake: Lake, name: str) -> Iterator[ClientTable]:
    """A table in the root namespace, through Pennon."""
    table = ClientTable(local_lake, local_lake.connect(), name)
    yield table
    if name in names_in(table):
        table.client.drop_table(ln.DropTableRequest(id=[name]))


def names_in(table: ClientTable) -> list[str]:
    return list(table.client.list_tables(ln.ListTablesRequest(id=[])).tables)


class TestTablesOfPennon:
    def test_one_is_listed_opened_and_read(self, db: Any, table: ClientTable, name: str) -> None:
        table.write(rows(10), "create")
        assert name in db.list_tables().tables
        assert ids_of(db.open_table(name).to_arrow()) == list(range(10))

    def test_pennon_follows_what_the_other_appends(self, db: Any, table: ClientTable, name: str) -> None:
        table.write(rows(10), "create")
        opened = db.open_table(name)
        for step in range(1, 4):
            opened.add(rows(step * 10, step * 10 + 10))
            described = table.client.describe_table(ln.DescribeTableRequest(id=[name]))
            assert described.version == step + 1
        table.check(version=4, ids=range(40))

    def test_both_take_turns(self, db: Any, table: ClientTable, name: str) -> None:
        table.write(rows(10), "create")
        for turn in range(1, 4):
            start = turn * 100
            db.open_table(name).add(rows(start, start + 10))
            assert table.write(rows(start + 10, start + 20)).version == turn * 2 + 1
        expected = [number for turn in range(1, 4) for number in range(turn * 100, turn * 100 + 20)]
        table.check(version=7, ids=[*range(10), *expected])
        assert ids_of(db.open_table(name).to_arrow()) == [*range(10), *expected]

    def test_a_writer_that_opened_the_table_before_is_brought_up_to_date(
        self, db: Any, table: ClientTable, name: str
    ) -> None:
        table.write(rows(10), "create")
        opened, stale = db.open_table(name), table.open()
        for step in range(3):
            opened.add(rows(100 + step, 101 + step))
        assert lance.write_dataset(rows(200, 201), stale, mode="append").version == 5
        table.check(version=5, ids=[*range(10), 100, 101, 102, 200])

    def test_every_kind_of_change_is_followed(self, db: Any, table: ClientTable, name: str) -> None:
        table.write(rows(300), "create")
        opened = db.open_table(name)
        opened.delete("id < 10")
        opened.update(where="id = 20", values={"text": "changed"})
        opened.add(rows(300, 310))
        opened.optimize()
        table.check(version=opened.version, ids=range(10, 310))
        table.write(rows(310, 320))
        table.check(version=opened.version + 1, ids=range(10, 320))

    def test_old_versions_that_the_other_removed_are_forgotten(self, db: Any, table: ClientTable, name: str) -> None:
        table.write(rows(10), "create")
        table.write(rows(10, 20))
        location = table.location
        opened = db.open_table(name)
        opened.add(rows(20, 30))
        opened.add(rows(30, 40))
        # Pennon has seen neither of these two versions, and only the last stays.
        lance.dataset(location).cleanup_old_versions(timedelta(0), delete_unverified=True)
        table.check(version=4, ids=range(40))
        assert table.recorded() == [4]
        assert table.client.describe_table(ln.DescribeTableRequest(id=[name])).version == 4
        table.write(rows(40, 50))
        table.check(version=5, ids=range(50))

    def test_writers_on_both_sides_lose_nothing(self, db: Any, table: ClientTable, name: str) -> None:
        table.write(rows(1), "create")

        def through_pennon(number: int) -> None:
            for step in range(5):
                table.write(rows(number * 10 + step, number * 10 + step + 1))

        def beside_it(number: int) -> None:
            for step in range(5):
                db.open_table(name).add(rows(number * 10 + step, number * 10 + step + 1))

        with ThreadPoolExecutor(4) as threads:
            running = [threads.submit(through_pennon, 1), threads.submit(through_pennon, 2)]
            running += [threads.submit(beside_it, 3), threads.submit(beside_it, 4)]
            for each in running:
                each.result()
        expected = [number * 10 + step for number in range(1, 5) for step in range(5)]
        table.check(version=21, ids=[0, *expected])

    def test_a_branch_that_the_other_made_is_followed(self, db: Any, table: ClientTable, name: str) -> None:
        for step in range(3):
            table.write(rows(step * 10, step * 10 + 10), "append" if step else "create")
        branch = db.open_table(name).branches.create("dev")
        table.check(version=3, ids=range(30), branch="dev")
        branch.add(rows(100, 110))
        table.check(version=4, ids=[*range(30), *range(100, 110)], branch="dev")
        lance.write_dataset(rows(110, 120), table.on_branch("dev"), mode="append")
        table.check(version=5, ids=[*range(30), *range(100, 120)], branch="dev")
        table.check(version=3, ids=range(30))

    def test_one_that_the_other_dropped_can_be_dropped_and_made_again(
        self, db: Any, table: ClientTable, name: str
    ) -> None:
        table.write(rows(10), "create")
        db.drop_table(name)
        table.client.drop_table(ln.DropTableRequest(id=[name]))
        table.write(rows(3), "create")
        table.check(version=1, ids=range(3))

    def test_one_that_was_dropped_is_gone_for_the_other(self, db: Any, table: ClientTable, name: str) -> None:
        table.write(rows(10), "create")
        table.client.drop_table(ln.DropTableRequest(id=[name]))
        assert name not in db.list_tables().tables
        db.create_table(name, rows(2))
        assert ids_of(table.open().to_table()) == [0, 1]


class TestTablesOfTheOther:
    def test_one_appears_and_is_read(self, db: Any, table: ClientTable, name: str) -> None:
        db.create_table(name, rows(10))
        assert name in names_in(table)
        assert ids_of(table.open().to_table()) == list(range(10))
        described = table.client.describe_table(ln.DescribeTableRequest(id=[name], load_detailed_metadata=True))
        assert described.version == 1
        assert described.managed_versioning is False

    def test_one_is_found_by_its_name_at_once(self, db: Any, table: ClientTable, name: str) -> None:
        db.create_table(name, rows(10))
        table.client.table_exists(ln.TableExistsRequest(id=[name]))

    def test_one_is_written_by_both(self, db: Any, table: ClientTable, name: str) -> None:
        opened = db.create_table(name, rows(10))
        assert table.write(rows(10, 20)).version == 2
        opened.checkout_latest()
        opened.add(rows(20, 30))
        table.open().delete("id < 5")
        table.check(version=4, ids=range(5, 30))

    def test_one_that_was_dropped_disappears(self, db: Any, table: ClientTable, name: str) -> None:
        db.create_table(name, rows(10))
        assert name in names_in(table)
        db.drop_table(name)
        assert name not in names_in(table)
        with pytest.raises(ln.TableNotFoundError):
            table.client.describe_table(ln.DescribeTableRequest(id=[name], load_detailed_metadata=True))

    def test_its_name_is_taken(self, db: Any, table: ClientTable, name: str) -> None:
        db.create_table(name, rows(10))
        with pytest.raises(ln.TableAlreadyExistsError):
            table.client.declare_table(ln.DeclareTableRequest(id=[name]))

    def test_one_is_dropped_through_pennon(self, db: Any, table: ClientTable, name: str) -> None:
        db.create_table(name, rows(10))
        table.client.drop_table(ln.DropTableRequest(id=[name]))
        assert name not in db.list_tables().tables
