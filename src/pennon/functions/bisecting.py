"""Finding the rows that a function fails for by dividing the range it fails for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from pennon.functions.failures import RangeFailedError

T = TypeVar("T")

#: Computes the rows from the first up to, not including, the last; raises RangeFailedError.
Attempt = Callable[[int, int], T]


def salvage(attempt: Attempt[T], rows: int) -> Iterator[tuple[int, int, T | RangeFailedError]]:
    """Yield the consecutive ranges that succeed, with their result, and those that cannot, with their failure."""
    ranges = [(0, rows)] if rows else []
    while ranges:
        start, stop = ranges.pop()
        try:
            result: T | RangeFailedError = attempt(start, stop)
        except RangeFailedError as failure:
            if stop - start > 1 and failure.divisible:
                middle = (start + stop) // 2
                ranges += [(middle, stop), (start, middle)]
                continue
            result = failure
        yield start, stop, result


def first_failure(attempt: Attempt[T], rows: int, failure: RangeFailedError) -> tuple[int | None, RangeFailedError]:
    """Return the first row of a failed range that fails, and its failure, after about log2(rows) attempts.

    The row is None when the failure needs the rows together, or did not happen again.
    """
    start, stop, exact = 0, rows, rows == 1
    while stop - start > 1 and failure.divisible:
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
