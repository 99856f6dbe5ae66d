"""Sets of row numbers as spans: the states of a fragment are mostly the same over long runs of rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

#: Pairs of the first row and the row after the last, in ascending order and not adjacent.
Spans = tuple[tuple[int, int], ...]
Mask = NDArray[np.bool_]

NO_SPANS: Spans = ()


def as_spans(pairs: Iterable[Sequence[int]]) -> Spans:
    """Return the spans of their JSON form."""
    return tuple((start, stop) for start, stop in pairs)


def spans_of(mask: Mask) -> Spans:
    """Return the spans where a mask is true."""
    padded = np.concatenate(([False], mask, [False]))
    edges = np.flatnonzero(padded[1:] != padded[:-1])
    return tuple(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def mask_of(spans: Spans, count: int) -> Mask:
    """Return a mask of ``count`` rows that is true in the spans."""
    mask = np.zeros(count, dtype=np.bool_)
    for start, stop in spans:
        mask[start:stop] = True
    return mask


def count_rows(spans: Iterable[Sequence[int]]) -> int:
    """Return the number of rows in spans."""
    return sum(stop - start for start, stop in spans)


def runs_of(numbers: NDArray[np.int64]) -> list[list[int]]:
    """Encode numbers as runs of a first number and a length, in order; a run of a negative number repeats it."""
    if not len(numbers):
        return []
    breaks = np.flatnonzero(numbers[1:] != numbers[:-1] + (numbers[:-1] >= 0)) + 1
    starts = np.concatenate(([0], breaks))
    lengths = np.diff(np.concatenate((starts, [len(numbers)])))
    return [[int(numbers[start]), int(length)] for start, length in zip(starts, lengths, strict=True)]


def numbers_of(runs: Iterable[Sequence[int]]) -> NDArray[np.int64]:
    """Decode runs to numbers."""
    parts = [
        np.full(length, start, dtype=np.int64) if start < 0 else np.arange(start, start + length, dtype=np.int64)
        for start, length in runs
    ]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
