"""Writers that still hold a table which was dropped and made again: the new table never hears of them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

from tests.integration.catalog.lakes import rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.catalog.conftest import OpenLake
    from tests.integration.catalog.lakes import Lake

WRITES: dict[str, Callable[[Any], Any]] = {
    "append": lambda dataset: dataset.insert(rows(3, 100)),
    "delete": lambda dataset: dataset.delete("number = 0"),
    "delete everything": lambda dataset: dataset.delete("true"),
    "update": lambda dataset: dataset.update({"number": "number + 1"}),
    "merge": lambda dataset: dataset.merge_insert("number").when_not_matched_insert_all().execute(rows(1, 50)),
    "overwrite": lambda dataset: lance.write_dataset(rows(1, 70), dataset, mode="overwrite"),
    "add a column": lambda dataset: dataset.add_columns({"twice": "number * 2"}),
    "add an empty column": lambda dataset: dataset.add_columns(pa.field("empty", pa.int32())),
    "rename a column": lambda dataset: dataset.alter_columns({"path": "number", "name": "renamed"}),
    "configure": lambda dataset: dataset.update_config({"key": "value"}),
    "restore": lambda dataset: dataset.restore(),
    "compact": lambda dataset: dataset.optimize.compact_files(),
    "index": lambda dataset: dataset.create_scalar_index("number", "BTREE"),
}
#: What writers hold, and what the table is made of that takes its place; each table is a version.
NO_ROWS = rows().slice(0, 0)
HELD = {"rows": [rows(), rows()], "no rows": [NO_ROWS, NO_ROWS]}
MADE = {
    "the same": [rows(), rows()],
    "no rows": [NO_ROWS, NO_ROWS],
    "other rows": [rows(3, 7), rows(1, 10)],
    "more versions": [rows(1, 7), rows(1, 8), rows(1, 9), rows(1, 10)],
    "other columns": [pa.table({"name": [name]}) for name in "abcd"],
}


def make(lake: Lake, name: str, contents: list[pa.Table]) -> None:
    """Make a table, version by version."""
    for number, content in enumerate(contents):
        lake.write(name, content, mode="append" if number else "create")


def dropped(lake: Lake, name: str) -> Any:
    """Return a table as a writer holds it that opened it before it was dropped."""
    lake("CreateNamespace", "a")
    lake.write(name)
    stale = lake.open(name)
    lake("DropTable", name)
    return stale


@pytest.mark.parametrize(
    ("name", "held", "made"),
    [*(("t", held, made) for held in HELD for made in MADE), ("a$t", "rows", "other rows")],
)
def test_stale_writers_are_refused(lake: Lake, name: str, held: str, made: str) -> None:
    lake("CreateNamespace", "a")
    make(lake, name, HELD[held])
    stale = {write: lake.open(name) for write in WRITES}
    lake("DropTable", name)
    make(lake, name, MADE[made])
    expected = lake.open(name).to_table()

    def attempt(write: str) -> None:
        # A client may also notice that it has nothing to do.
        with suppress(OSError, ValueError, RuntimeError):
            WRITES[write](stale[write])

    with ThreadPoolExecutor(len(WRITES)) as threads:
        list(threads.map(attempt, WRITES))
    assert lake.numbers(name) == list(range(1, len(MADE[made]) + 1))
    assert lake.open(name).to_table() == expected
    lake.write(name, MADE[made][0], mode="append")
    assert lake.open(name).count_rows() == expected.num_rows + MADE[made][0].num_rows


@pytest.mark.parametrize("write", ["append", "delete", "overwrite"])
def test_a_stale_writer_gets_an_error(lake: Lake, write: str) -> None:
    stale = dropped(lake, "t")
    make(lake, "t", MADE["more versions"])
    with pytest.raises((OSError, ValueError, RuntimeError)):
        WRITES[write](stale)


@pytest.mark.parametrize("name", ["t", "a$t"])
def test_the_writer_of_the_new_table_is_not_stale(lake: Lake, name: str) -> None:
    dropped(lake, name)
    mine = lake.write(name, NO_ROWS)
    mine.insert(rows(3))
    mine.delete("true")
    mine.insert(rows(2))
    assert lake.open(name).count_rows() == 2
    assert lake.numbers(name) == [1, 2, 3, 4]


def test_a_table_in_the_same_folder_is_safe_from_writers_that_name_its_predecessors_files(open_lake: OpenLake) -> None:
    lake = open_lake(isolate_recreated_tables=False)
    make(lake, "t", HELD["rows"])
    stale = {write: lake.open("t") for write in ("append", "delete", "update", "merge", "add a column", "compact")}
    lake("DropTable", "t")
    make(lake, "t", MADE["other rows"])
    assert lake.folder("t") == lake.root / "t.lance"
    for write, dataset in stale.items():
        with pytest.raises((OSError, ValueError, RuntimeError)):
            WRITES[write](dataset)
    assert lake.open("t").to_table()["number"].to_pylist() == [7, 8, 9, 10]


@pytest.mark.parametrize("name", ["t", "a$t"])
def test_a_stale_writer_of_a_table_that_is_gone_does_not_bring_it_back(lake: Lake, name: str) -> None:
    stale = dropped(lake, name)
    with pytest.raises((OSError, ValueError, RuntimeError)):
        stale.insert(rows())
    assert lake("ListAllTables").tables == []


@pytest.mark.parametrize("name", ["t", "a$t"])
def test_a_stale_writer_of_a_table_that_was_only_declared_again_does_not_write_it(lake: Lake, name: str) -> None:
    stale = dropped(lake, name)
    lake("DeclareTable", name)
    with pytest.raises((OSError, ValueError, RuntimeError)):
        stale.insert(rows())
    assert lake("DescribeTable", name, check_declared=True).is_only_declared


def test_writers_that_hold_an_older_version_of_the_same_table_are_not_stale(lake: Lake) -> None:
    lake.write("t")
    holders = [lake.open("t") for _ in range(3)]
    for number, holder in enumerate(holders):
        holder.insert(rows(1, 100 + number))
    holders[0].delete("number = 0")
    assert lake.open("t").count_rows() == 4
    assert lake.numbers("t") == [1, 2, 3, 4, 5]


def test_a_renamed_table_is_written_under_its_new_name_alone(lake: Lake) -> None:
    lake.write("t")
    stale = lake.open("t")
    lake("RenameTable", "t", new_table_name="u")
    with pytest.raises((OSError, ValueError, RuntimeError)):
        stale.insert(rows())
    assert lake.numbers("u") == [1]
    assert lance.dataset(lake.folder("u")).count_rows() == 2
