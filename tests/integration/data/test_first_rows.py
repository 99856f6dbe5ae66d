"""A few rows of a table, which are read without a plan: the same ones that a scan returns, each time they are asked."""

from __future__ import annotations

import pyarrow as pa
import pytest

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


@pytest.mark.parametrize("columns", [["word"], ["vector", "id"]])
def test_they_have_the_columns_that_are_asked_for(new: DataTable, columns: list[str]) -> None:
    new.create(rows(10))
    for _ in range(2):
        found = new.query(k=3, columns={"column_names": columns})
        assert found.equals(rows(3).select(columns))


def test_large_rows_are_whole(new: DataTable) -> None:
    content = pa.table({"id": pa.array(range(6), pa.int64()), "blob": pa.array([b"x" * 200_000] * 6, pa.binary())})
    new.create(content)
    for _ in range(2):
        assert new.query(k=4).equals(content.slice(0, 4))
