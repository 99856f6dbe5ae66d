"""Bisecting: exactly the rows that fail are found, whatever they are."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pennon.functions.bisecting import first_failure, salvage
from pennon.functions.failures import RangeFailedError


@st.composite
def poisoned(draw: st.DrawFn) -> tuple[int, set[int]]:
    rows = draw(st.integers(1, 300))
    return rows, draw(st.sets(st.integers(0, rows - 1), max_size=rows))


def failing_for(bad: set[int], log: list[tuple[int, int]]) -> Callable[[int, int], list[int]]:
    def attempt(start: int, stop: int) -> list[int]:
        log.append((start, stop))
        if bad.intersection(range(start, stop)):
            raise RangeFailedError("ValueError", f"{min(bad.intersection(range(start, stop)))}")
        return list(range(start, stop))

    return attempt


@given(poisoned())
def test_salvage_keeps_all_but_the_failing_rows_in_order(case: tuple[int, set[int]]) -> None:
    rows, bad = case
    log: list[tuple[int, int]] = []
    seen: list[int] = []
    failed: set[int] = set()
    for start, stop, outcome in salvage(failing_for(bad, log), rows):
        assert start == len(seen)
        seen.extend(range(start, stop))
        if isinstance(outcome, RangeFailedError):
            failed.update(range(start, stop))
        else:
            assert outcome == list(range(start, stop))
    assert (seen, failed) == (list(range(rows)), bad)
    assert len(log) <= 1 + 2 * len(bad) * math.ceil(math.log2(rows) if rows > 1 else 1)


@given(poisoned().filter(lambda case: bool(case[1])))
def test_the_first_failing_row_is_found_in_few_attempts(case: tuple[int, set[int]]) -> None:
    rows, bad = case
    log: list[tuple[int, int]] = []
    row, failure = first_failure(failing_for(bad, log), rows, RangeFailedError("ValueError", str(min(bad))))
    assert (row, failure.message) == (min(bad), str(min(bad)))
    assert len(log) <= math.ceil(math.log2(rows)) + 1


def test_a_failure_that_does_not_happen_again_has_no_row() -> None:
    failure = RangeFailedError("ValueError", "once")
    assert first_failure(failing_for(set(), []), 8, failure) == (None, failure)


def test_a_range_that_is_not_divisible_fails_as_a_whole() -> None:
    def attempt(start: int, stop: int) -> None:
        raise RangeFailedError("ValueError", "length", divisible=False)

    assert [(start, stop) for start, stop, _ in salvage(attempt, 8)] == [(0, 8)]


def test_other_errors_are_not_taken_for_failures_of_rows() -> None:
    def attempt(start: int, stop: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        list(salvage(attempt, 8))
