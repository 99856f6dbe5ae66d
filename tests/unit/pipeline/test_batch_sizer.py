"""How many rows a function gets follows from how long it takes and how much it returns."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pennon.pipeline.batch_sizer import BatchLimits, BatchSizer

LIMITS = BatchLimits(batch_bytes=1_000_000, checkpoint_seconds=0.1)


@given(
    st.integers(min_value=1, max_value=10_000),
    st.lists(
        st.tuples(
            st.integers(min_value=1, max_value=10_000),
            st.floats(min_value=0, max_value=100),
            st.integers(min_value=0, max_value=10**9),
        ),
        max_size=10,
    ),
)
def test_a_call_never_gets_more_than_it_may(most: int, calls: list[tuple[int, float, int]]) -> None:
    batch_sizer = BatchSizer(LIMITS, 1, most)
    assert 1 <= batch_sizer.rows <= most
    for rows, seconds, size in calls:
        batch_sizer.update(rows, seconds, size)
        assert 1 <= batch_sizer.rows <= most


def test_a_fast_function_soon_gets_all_it_may() -> None:
    batch_sizer = BatchSizer(LIMITS, 1, 8192)
    for _ in range(5):
        batch_sizer.update(batch_sizer.rows, 1e-6 * batch_sizer.rows, 8 * batch_sizer.rows)
    assert batch_sizer.rows == 8192


def test_a_slow_function_gets_what_fits_the_time() -> None:
    batch_sizer = BatchSizer(LIMITS, 1, 8192)
    for _ in range(10):
        batch_sizer.update(batch_sizer.rows, 0.01 * batch_sizer.rows, 8 * batch_sizer.rows)
    assert 8 <= batch_sizer.rows <= 10


def test_a_function_that_costs_the_same_whatever_it_gets_is_given_all_it_may_have() -> None:
    batch_sizer = BatchSizer(LIMITS, 1, 8192)
    for _ in range(12):
        batch_sizer.update(batch_sizer.rows, 0.5 + 1e-6 * batch_sizer.rows, 8 * batch_sizer.rows)
    assert batch_sizer.rows == 8192


def test_a_very_slow_function_keeps_the_few_rows_it_began_with() -> None:
    batch_sizer = BatchSizer(LIMITS, 1, 8192)
    for _ in range(10):
        batch_sizer.update(batch_sizer.rows, 1.0 * batch_sizer.rows, 8 * batch_sizer.rows)
    assert batch_sizer.rows == 8


def test_the_end_of_a_batch_changes_nothing() -> None:
    batch_sizer = BatchSizer(LIMITS, 1, 8192)
    batch_sizer.update(batch_sizer.rows, 0.01, 8 * batch_sizer.rows)
    before = batch_sizer.rows
    batch_sizer.update(1, 1.0, 8)
    assert batch_sizer.rows == before


def test_large_results_get_fewer_rows() -> None:
    batch_sizer = BatchSizer(LIMITS, 1, 8192)
    batch_sizer.update(batch_sizer.rows, 1e-6, 100_000 * batch_sizer.rows)
    assert batch_sizer.rows == 10


def test_a_batch_as_its_author_wants_it_is_not_made_smaller_to_save_time() -> None:
    batch_sizer = BatchSizer(LIMITS, 128, 128)
    batch_sizer.update(128, 10.0, 8 * 128)
    assert batch_sizer.rows == 128
