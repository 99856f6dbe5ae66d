"""The first rows of a table: those that were read last are kept, unless they are large."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

from pennon.tables.query.first_rows import FirstRowsCache

WORDS = list("abc") * 1000


def make(path: Path, words: list[str]) -> FirstRowsCache:
    """Return the first rows of a new table."""
    return FirstRowsCache(lance.write_dataset(pa.table({"id": range(len(words)), "word": words}), path))


def remove_files(path: Path) -> None:
    """Leave nothing to read of a table."""
    for file in (path / "data").iterdir():
        file.unlink()


def test_rows_are_read_once(tmp_path: Path) -> None:
    first_rows = make(tmp_path, WORDS)
    assert first_rows.take(range(2, 8), ["id"]).to_pydict() == {"id": [2, 3, 4, 5, 6, 7]}
    remove_files(tmp_path)
    assert first_rows.take(range(2, 8), ["id"]).to_pydict() == {"id": [2, 3, 4, 5, 6, 7]}
    assert first_rows.take(range(3, 5), ["id"]).to_pydict() == {"id": [3, 4]}
    assert first_rows.take(range(7, 8), ["id"]).to_pydict() == {"id": [7]}


@pytest.mark.parametrize("places", [range(2), range(1, 3), range(7, 9), range(8, 9), range(1, 9)])
def test_rows_beside_them_are_read(tmp_path: Path, places: range) -> None:
    first_rows = make(tmp_path, WORDS)
    first_rows.take(range(2, 8), ["id"])
    assert first_rows.take(places, ["id"]).to_pydict() == {"id": list(places)}


def test_other_columns_are_read(tmp_path: Path) -> None:
    first_rows = make(tmp_path, WORDS)
    for columns in (["word"], ["word", "id"], None, ["id", "word"], ["word"]):
        for _ in range(2):
            found = first_rows.take(range(1, 2), columns)
            assert found.column_names == (columns or ["id", "word"])
            assert found["word"].to_pylist() == ["b"]


@pytest.mark.parametrize(("rows", "is_kept"), [(2_000, True), (20_000, False)])
def test_rows_are_kept_if_they_are_small_in_memory(tmp_path: Path, rows: int, is_kept: bool) -> None:
    """On the disk they are small in any case."""
    first_rows, places = FirstRowsCache(lance.write_dataset(pa.table({"id": [7] * 100_000}), tmp_path)), range(rows)
    assert first_rows.can_take(places)
    first, again = first_rows.take(places, None), first_rows.take(places, None)
    assert first == again
    assert (address(first) == address(again)) is is_kept


def address(table: pa.Table) -> int:
    """Return where the values of the only column are in memory."""
    found: int = table.column(0).chunk(0).buffers()[1].address
    return found


def test_rows_that_are_large_in_memory_are_not_taken(tmp_path: Path) -> None:
    first_rows = make(tmp_path, ["x" * 100_000] * 1000)
    assert sum(file.stat().st_size for file in (tmp_path / "data").iterdir()) / 1000 * 10 < 64 * 1024
    assert not first_rows.can_take(range(10))
