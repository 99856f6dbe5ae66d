"""A few rows of a table, which are read without a plan: the same ones that a scan returns, each time they are asked."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

from pennon.tables.query.first_rows import FirstRowsCache
from tests.integration.data.arrow_types import CHANGED, COLUMNS, table_of
from tests.integration.data.conftest import WriteBeside
from tests.integration.data.tables import DataTable, rows

_PLACES = [(0, 1), (0, 10), (3, 4), (5, 5), (8, 4), (9, 1), (10, 1), (12, 20), (19, 5), (20, 3), (25, 1), (0, 256)]


def expected(ids: list[int], offset: int, k: int) -> list[int]:
    return ids[offset : offset + k]


def check(table: DataTable, ids: list[int]) -> None:
    for offset, k in _PLACES:
        for _ in range(2):  # the second time the table is known
            assert table.ids(offset=offset, k=k) == expected(ids, offset, k), (offset, k)


def test_they_are_found_in_any_fragment_and_between_two(new: DataTable) -> None:
    new.create(rows(10))
    new.put("insert", rows(10, 20))
    check(new, list(range(20)))


def test_rows_that_were_deleted_are_not_among_them(new: DataTable) -> None:
    new.create(rows(20))
    new.do("delete", {"predicate": "id in (0, 4, 9, 19)"})
    check(new, [number for number in range(20) if number not in (0, 4, 9, 19)])


def test_a_change_is_seen_by_the_next_question(new: DataTable) -> None:
    new.create(rows(10))
    check(new, list(range(10)))
    new.do("delete", {"predicate": "id = 0"})
    check(new, list(range(1, 10)))
    new.put("insert", rows(10, 12))
    check(new, list(range(1, 12)))


def test_overwritten_rows_are_seen_by_the_next_query(new: DataTable) -> None:
    new.create(rows(10))
    check(new, list(range(10)))
    new.put("insert", rows(20, 30), mode="overwrite")
    check(new, list(range(20, 30)))
    assert new.ids(version=1, k=4) == [0, 1, 2, 3]
    new.do("drop")
    new.create(rows(40, 50))
    check(new, list(range(40, 50)))


def test_they_have_the_columns_that_are_asked_for(new: DataTable) -> None:
    new.create(rows(10))
    for columns in (["word"], ["word"], ["vector", "id"], ["word"], ["id", "vector"], ["id", "vector"]):
        found = new.query(k=3, columns={"column_names": columns})
        assert found.equals(rows(3).select(columns))


def check_values(dataset: lance.LanceDataset) -> None:
    """Compare all rows, read as first rows are, with those of a scan: also the types, and what fields say of theirs."""
    first_rows, places = FirstRowsCache(dataset), range(dataset.count_rows())
    assert first_rows.can_take(places)
    for columns in (None, dataset.schema.names[::-1]):
        scanned = dataset.to_table(columns=columns)
        for _ in range(3):  # first alone, then from files that stay open
            found = first_rows.take(places, columns)
            assert found.schema.equals(scanned.schema, check_metadata=True)
            assert found.to_pylist() == scanned.to_pylist()


@pytest.mark.parametrize("kind", [*COLUMNS, *CHANGED])
def test_values_of_every_type_are_those_of_a_scan(tmp_path: Path, kind: str) -> None:
    column = COLUMNS[kind] if kind in COLUMNS else CHANGED[kind][0]
    dataset = lance.write_dataset(table_of(column), tmp_path / "t.lance")
    check_values(dataset)
    dataset.add_columns({"more": "id + 1"})
    dataset.alter_columns({"path": "column", "name": "renamed"})
    dataset.drop_columns(["other"])
    check_values(dataset)


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_blobs_are_described_as_by_a_scan(write_beside: WriteBeside, new: DataTable, version: str) -> None:
    blob = pa.field("blob", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    schema = pa.schema([pa.field("id", pa.int64()), blob, pa.field("nested", pa.struct([blob]))])
    content = pa.table({"id": [0, 1], "blob": [b"a", b""], "nested": [{"blob": b"b"}] * 2}, schema=schema)
    write_beside(new, content, data_storage_version=version)
    for _ in range(2):
        assert new.query(k=2).equals(new.query(filter="id >= 0"), check_metadata=True)
    assert new.ids(k=1, columns={"column_names": ["id"]}) == [0]


def test_large_rows_are_whole(new: DataTable) -> None:
    content = pa.table({"id": pa.array(range(6), pa.int64()), "blob": pa.array([b"x" * 200_000] * 6, pa.binary())})
    new.create(content)
    for _ in range(2):
        assert new.query(k=4).equals(content.slice(0, 4))
