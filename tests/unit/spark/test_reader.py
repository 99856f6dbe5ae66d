"""Names, ids of rows, and how fragments become partitions."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidInputError

from pennon.spark.reader import Scan, _split_fragments, batch_rows
from pennon.spark.row_ids import as_option, from_option
from pennon.spark.table_address import parse_name


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("t", ("t",)),
        ("a.b.t", ("a", "b", "t")),
        ("a.`b.c`", ("a", "b.c")),
        ("`tick``ed`.t", ("tick`ed", "t")),
        ("odd name.t-1", ("odd name", "t-1")),
    ],
)
def test_names_are_taken_apart_at_their_dots(name: str, parts: tuple[str, ...]) -> None:
    assert parse_name(name) == parts


@pytest.mark.parametrize("name", ["", ".", "a.", ".a", "a..b", "`a", "a`b`", "a/b"])
def test_what_names_no_table_is_refused(name: str) -> None:
    with pytest.raises(InvalidInputError):
        parse_name(name)


@pytest.mark.parametrize("ids", [[], [0], [5, 3, 3, 4], [2**62, 0, 7], list(range(1000))])
def test_ids_of_rows_come_back_rising_and_once(ids: list[int]) -> None:
    assert from_option(as_option(ids)).tolist() == sorted(set(ids))


def test_a_million_neighbours_are_a_short_option() -> None:
    assert len(as_option(np.arange(1_000_000, dtype=np.int64))) < 20_000


def test_ids_that_are_no_file_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="'row_ids' does not name an Arrow file"):
        from_option("nowhere.arrow")


def rows_of(parts: list[Scan], sizes: dict[int, int]) -> list[tuple[int, int]]:
    found = []
    for part in parts:
        for fragment in part.fragments:
            count = sizes[fragment] if part.count is None else part.count
            found += [(fragment, part.first + row) for row in range(count)]
    return found


@pytest.mark.parametrize("splitting", [True, False])
@pytest.mark.parametrize("wanted", [1, 2, 3, 7, 50])
def test_every_row_is_in_one_partition(wanted: int, splitting: bool) -> None:
    sizes = dict(enumerate([100, 1, 0, 5, 40, 40, 3, 250]))
    parts = _split_fragments(list(sizes.items()), wanted, 1, can_split=splitting)
    every = [(fragment, row) for fragment, count in sizes.items() for row in range(count)]
    assert sorted(rows_of([part for part in parts if isinstance(part, Scan)], sizes)) == every
    assert not splitting or len(parts) <= 2 * wanted + 1


def test_few_rows_are_one_partition() -> None:
    assert _split_fragments([(0, 10), (1, 10)], 8, 1000, can_split=True) == [Scan((0, 1))]


def test_batches_of_wide_rows_have_fewer_of_them() -> None:
    narrow = batch_rows([pa.field("x", pa.float64())])
    wide = batch_rows([pa.field("v", pa.list_(pa.float32(), 1536))])
    assert wide < 200 < narrow
