"""How many segments of an index are merged: geometrically, and never more segments than the policy allows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pennon.maintenance.index_upkeep import IndexState, fold_depth, merge_depth


@pytest.mark.parametrize(
    ("segments", "new", "depth"),
    [
        ([], 10, 0),
        ([1000], 0, None),
        ([1000], 10, 0),
        ([1000], 600, 1),
        ([1000, 10], 10, 1),
        ([1000, 10, 5], 5, 2),
        ([1000, 10, 10], 0, 2),
        ([1000, 100, 10], 0, None),
        ([10**6, 10**5, 10**4, 10**3], 1, 1),
        ([0, 0, 5], 0, 3),
        ([0, 0], 7, 2),
    ],
)
def test_segments_are_merged_with_others_of_their_size(segments: list[int], new: int, depth: int | None) -> None:
    assert merge_depth(segments, new, 4) == depth


def test_a_small_index_is_kept_in_one_segment() -> None:
    assert merge_depth([1000, 10], 1, 4, single=2000) == 2
    assert merge_depth([1000, 10], 0, 4, single=2000) == 2
    assert merge_depth([1000], 0, 4, single=2000) is None
    assert merge_depth([10_000, 10], 1, 4, single=2000) == 0


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=300), st.integers(2, 6))
def test_segments_stay_few_and_are_rarely_rewritten(inserts: list[int], most: int) -> None:
    segments: list[int] = []
    for rows in inserts:
        depth = merge_depth(segments, rows, most)
        assert depth is not None
        segments = [*segments[: len(segments) - depth], sum(segments[len(segments) - depth :]) + rows]
        assert len(segments) <= most
        assert merge_depth(segments, 0, most) is None
    assert sum(segments) == sum(inserts)


def test_a_large_index_is_not_rewritten_for_a_handful_of_rows() -> None:
    segments, rewritten = [1_000_000], 0
    for _ in range(1000):
        depth = merge_depth(segments, 10, 4)
        assert depth is not None
        merged = sum(segments[len(segments) - depth :]) + 10
        rewritten += merged
        segments = [*segments[: len(segments) - depth], merged]
    assert rewritten < 1_000_000


def state(*segments: tuple[set[int], int]) -> IndexState:
    described = tuple((str(number), frozenset(ids), rows) for number, (ids, rows) in enumerate(segments))
    return IndexState("i", "IVF_PQ", ("v",), described, 0, ())


def test_only_the_segments_that_cover_deleted_rows_are_folded() -> None:
    found = state(({0}, 10**6), ({1}, 1000), ({2}, 1000))
    assert fold_depth(found, frozenset({2}), {2: 5}) == 1
    assert fold_depth(found, frozenset({1}), {1: 5}) == 2


def test_a_large_segment_is_folded_only_for_many_deleted_rows() -> None:
    found = state(({0, 9}, 10**6), ({1}, 1000))
    assert fold_depth(found, frozenset({0}), {0: 100}) == 0
    assert fold_depth(found, frozenset({0, 1}), {0: 100, 1: 3}) == 1
    assert fold_depth(found, frozenset({0}), {0: 60_000}) == 2
