"""Spans and runs stand for the rows they were made from."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pennon.columns.row_spans import count_rows, mask_of, numbers_of, runs_of, spans_of

masks = st.lists(st.booleans(), max_size=60).map(lambda rows: np.array(rows, dtype=np.bool_))


@given(masks)
def test_spans_are_the_mask_they_were_made_from(mask: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
    spans = spans_of(mask)
    assert mask_of(spans, len(mask)).tolist() == mask.tolist()
    assert count_rows(spans) == int(mask.sum())
    bounds = [bound for span in spans for bound in span]
    assert bounds == sorted(set(bounds)), "neither touching nor empty"


@given(st.lists(st.integers(min_value=-1, max_value=30), max_size=60))
def test_runs_are_the_numbers_they_were_made_from(numbers: list[int]) -> None:
    runs = runs_of(np.array(numbers, dtype=np.int64))
    assert numbers_of(runs).tolist() == numbers
    assert all(length > 0 for _, length in runs)


@given(st.integers(min_value=0, max_value=1000), st.integers(min_value=0, max_value=100))
def test_numbers_in_a_row_are_one_run(start: int, count: int) -> None:
    numbers = np.arange(start, start + count, dtype=np.int64)
    assert runs_of(numbers) == ([[start, count]] if count else [])
