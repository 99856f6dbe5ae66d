"""Bisecting: exactly the rows that fail are found, whatever they are."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pennon.functions.bisection import compute_ranges, first_failure
from pennon.functions.failures import RangeFailedError


@st.composite
def poisoned(draw: st.DrawFn) -> tuple[int, set[int]]:
    rows = draw(st.integers(1, 300))
    return rows, draw(st.sets(st.integers(0, rows - 1), max_size=rows))


def failing_for(bad: set[int], log: list[tuple[int, int]], *, telling: bool = False) -> Callable[[int, int], list[int]]:
    def attempt(start: int, stop: int) -> list[int]:
        log.append((start, stop))
        if found := bad.intersection(range(start, stop)):
            current_row = min(found) - start if telling else None
            raise RangeFailedError("ValueError", f"{min(found)}", current_row=current_row)
        return list(range(start, stop))

    return attempt


@given(poisoned(), st.booleans())
def test_salvage_keeps_all_but_the_failing_rows_in_order(case: tuple[int, set[int]], telling: bool) -> None:
    rows, bad = case
    log: list[tuple[int, int]] = []
    seen: list[int] = []
    failed: set[int] = set()
    for start, stop, outcome in compute_ranges(failing_for(bad, log, telling=telling), rows):
        assert start == len(seen)
        seen.extend(range(start, stop))
        if isinstance(outcome, RangeFailedError):
            failed.update(range(start, stop))
        else:
            assert outcome == list(range(start, stop))
    assert (seen, failed) == (list(range(rows)), bad)
    needed = 3 if telling else 2 * math.ceil(math.log2(rows) if rows > 1 else 1)
    assert len(log) <= 1 + needed * len(bad)


@given(poisoned().filter(lambda case: bool(case[1])), st.booleans())
def test_the_first_failing_row_is_found_in_few_attempts(case: tuple[int, set[int]], telling: bool) -> None:
    rows, bad = case
    log: list[tuple[int, int]] = []
    seen = RangeFailedError("ValueError", str(min(bad)), current_row=min(bad) if telling else None)
    row, failure = first_failure(failing_for(bad, log, telling=telling), rows, seen)
    assert (row, failure.message) == (min(bad), str(min(bad)))
    assert len(log) <= (1 if telling else math.ceil(math.log2(rows)) + 1)


def test_a_row_has_failed_only_if_it_fails_alone() -> None:
    def attempt(start: int, stop: int) -> None:
        if stop - start > 3:
            raise RangeFailedError("ProcessDied", "too much memory", current_row=3)

    assert [(start, stop) for start, stop, found in compute_ranges(attempt, 9) if found is None] == [
        *[(0, 3), (3, 4)],
        *[(4, 7), (7, 8), (8, 9)],
    ]
    assert first_failure(attempt, 9, RangeFailedError("ProcessDied", "once", current_row=3))[0] is None


def test_a_failure_that_does_not_happen_again_has_no_row() -> None:
    failure = RangeFailedError("ValueError", "once")
    assert first_failure(failing_for(set(), []), 8, failure) == (None, failure)


def test_a_range_that_is_not_divisible_fails_as_a_whole() -> None:
    def attempt(start: int, stop: int) -> None:
        raise RangeFailedError("ValueError", "length", divisible=False)

    assert [(start, stop) for start, stop, _ in compute_ranges(attempt, 8)] == [(0, 8)]


def test_other_errors_are_not_taken_for_failures_of_rows() -> None:
    def attempt(start: int, stop: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        list(compute_ranges(attempt, 8))
