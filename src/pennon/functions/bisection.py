"""Bisection: find the rows that a function fails for by dividing the failed range."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TypeVar

from pennon.functions.failures import RangeFailedError

T = TypeVar("T")

#: Computes the rows in [start, stop); raises RangeFailedError.
Attempt = Callable[[int, int], T]


def compute_ranges(attempt: Attempt[T], rows: int) -> Iterator[tuple[int, int, T | RangeFailedError]]:
    """Yield consecutive ranges that cover all rows, each with its result, or its failure if it cannot be divided."""
    ranges = [(0, rows)] if rows else []
    while ranges:
        start, stop = ranges.pop()
        try:
            result: T | RangeFailedError = attempt(start, stop)
        except RangeFailedError as failure:
            if stop - start > 1 and failure.divisible:
                ranges += reversed(_divide(start, stop, failure))
                continue
            result = failure
        yield start, stop, result


def first_failure(attempt: Attempt[T], rows: int, failure: RangeFailedError) -> tuple[int | None, RangeFailedError]:
    """Return the first failing row of a failed range, and its failure, after about log2(rows) attempts.

    The row is None when the failure takes several rows together, or does not occur again.
    """
    start, stop, exact = 0, rows, rows == 1
    while stop - start > 1 and failure.divisible:
        if failure.current_row is not None:  # the rows before it were computed
            start, stop, exact = start + failure.current_row, start + failure.current_row + 1, False
            break
        middle = (start + stop) // 2
        try:
            attempt(start, middle)
        except RangeFailedError as nearer:
            stop, failure, exact = middle, nearer, middle - start == 1
        else:
            start, exact = middle, False
    if exact or not failure.divisible:
        return start, failure
    try:
        attempt(start, stop)
    except RangeFailedError as own:
        return start, own
    return None, failure


def _divide(start: int, stop: int, failure: RangeFailedError) -> list[tuple[int, int]]:
    """Return the parts of a range: the row that was being computed and both sides of it, or else two halves."""
    if failure.current_row is None:
        cuts = [start, (start + stop) // 2, stop]
    else:
        cuts = [start, start + failure.current_row, start + failure.current_row + 1, stop]
    return [part for part in pairwise(cuts) if part[0] < part[1]]
