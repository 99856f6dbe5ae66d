"""The first rows of a table: the files they are in stay open for a while, and not too many of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from pennon.lake import heads
from pennon.lake.heads import Head, close_heads


@pytest.fixture(autouse=True)
def _nothing_open() -> Iterator[None]:
    close_heads()
    yield
    close_heads()


def make(path: Path) -> Head:
    """Return the head of a new table, whose file is too large to be read whole when it is opened."""
    return Head(lance.write_dataset(pa.table({"id": range(3000), "word": list("abc") * 1000}), path))


def open_files(path: Path) -> int:
    """Return how many files below a path this process has open."""
    links = [link.resolve() for link in Path("/proc/self/fd").iterdir()]
    return sum(link.is_relative_to(path.resolve()) for link in links)


def wait_for_open_files(path: Path, most: int) -> None:
    """Wait until no more files below a path are open: Lance closes them on threads of its own."""
    deadline = time.monotonic() + 60
    while open_files(path) > most:
        assert time.monotonic() < deadline, "they stay open"
        time.sleep(0.01)


def test_files_stay_open_for_who_asks_again_until_they_are_closed(tmp_path: Path) -> None:
    head = make(tmp_path / "t.lance")
    assert head.take(range(2), ["id"]).to_pydict() == {"id": [0, 1]}
    wait_for_open_files(tmp_path, 0)
    for _ in range(2):
        assert head.take(range(1, 3), ["id"]).to_pydict() == {"id": [1, 2]}
        assert open_files(tmp_path) == 1
    close_heads()
    wait_for_open_files(tmp_path, 0)
    assert head.take(range(3, 4), ["id"]).to_pydict() == {"id": [3]}


def test_files_are_open_for_the_columns_that_were_asked_for_last(tmp_path: Path) -> None:
    head = make(tmp_path / "t.lance")
    for columns in (["word"], ["word", "id"], None):
        for _ in range(3):
            found = head.take(range(1, 2), columns)
            assert found.column_names == (columns or ["id", "word"])
            assert found["word"].to_pylist() == ["b"]
        wait_for_open_files(tmp_path, 1)


def test_files_are_closed_with_the_version_they_belong_to(tmp_path: Path) -> None:
    head = make(tmp_path / "t.lance")
    for _ in range(2):
        head.take(range(1), None)
    assert open_files(tmp_path) > 0
    del head
    wait_for_open_files(tmp_path, 0)


def test_few_tables_have_open_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "_MOST_OPEN", 3)
    made = [make(tmp_path / f"{number}.lance") for number in range(5)]
    for head in made * 3:
        assert head.take(range(2), ["id"]).to_pydict() == {"id": [0, 1]}
    assert open_files(tmp_path) > 0
    wait_for_open_files(tmp_path, 3)
