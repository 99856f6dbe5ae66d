"""What a refresh says it did adds up: rows of the same source row take each other's place, one for one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pennon.pipeline.refresh.counts import Counts, count, pack_ids, unpack_ids

IDS = st.lists(st.integers(0, 8), max_size=30)


@pytest.mark.parametrize(
    ("written", "known", "removed", "expected"),
    [
        (2, [], [], Counts(2, 0, 0)),
        (0, [], [4, 5], Counts(0, 0, 2)),
        (1, [4], [4], Counts(0, 1, 0)),
        (3, [4], [4, 4], Counts(2, 1, 1)),  # a parent with a child fewer, beside a new one with two
        (3, [4, 4, 4], [4, 4], Counts(1, 2, 0)),
        (1, [4], [5], Counts(1, 0, 1)),
    ],
)
def test_rows_are_counted(written: int, known: list[int], removed: list[int], expected: Counts) -> None:
    assert count(written, np.array(known, dtype=np.int64), np.array(removed, dtype=np.int64)) == expected


@given(known=IDS, removed=IDS, new=st.integers(0, 5))
def test_the_counts_add_up_to_the_change(known: list[int], removed: list[int], new: int) -> None:
    written = len(known) + new
    counts = count(written, np.array(known, dtype=np.int64), np.array(removed, dtype=np.int64))
    assert counts.added + counts.updated == written
    assert counts.updated + counts.removed == len(removed)
    assert counts.updated == sum(min(known.count(row), removed.count(row)) for row in set(known))


@given(IDS)
def test_ids_survive_the_way_from_a_task(ids: list[int]) -> None:
    assert unpack_ids(pack_ids([np.array(ids, dtype=np.uint64)])).tolist() == ids


def test_ids_of_several_batches_are_joined() -> None:
    parts = [np.array([1, 3, 4], dtype=np.int64), np.array([1, 2], dtype=np.int64)]
    assert unpack_ids(pack_ids(parts)).tolist() == [1, 3, 4, 1, 2]
    assert unpack_ids(pack_ids([])).tolist() == []
