"""Sets of row numbers as spans: most of what is known of a fragment is true of long runs of its rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: First row and the one after the last, in rising order, none touching the next.
Spans = tuple[tuple[int, int], ...]
Mask = NDArray[np.bool_]

NOTHING: Spans = ()


def as_spans(pairs: Iterable[Sequence[int]]) -> Spans:
    """Return as spans what was written down as JSON."""
    return tuple((start, stop) for start, stop in pairs)


def spans_of(mask: Mask) -> Spans:
    """Return where a mask is true."""
    padded = np.concatenate(([False], mask, [False]))
    edges = np.flatnonzero(padded[1:] != padded[:-1])
    return tuple(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def mask_of(spans: Spans, count: int) -> Mask:
    """Return a mask of so many rows that is true in the spans."""
    mask = np.zeros(count, dtype=np.bool_)
    for start, stop in spans:
        mask[start:stop] = True
    return mask


def count_rows(spans: Iterable[Sequence[int]]) -> int:
    """Return how many rows the spans hold."""
    return sum(stop - start for start, stop in spans)


def runs_of(numbers: NDArray[np.int64]) -> list[list[int]]:
    """Return a list of numbers as runs of a first number and a length, in their order; negative ones repeat."""
    if not len(numbers):
        return []
    breaks = np.flatnonzero(numbers[1:] != numbers[:-1] + (numbers[:-1] >= 0)) + 1
    starts = np.concatenate(([0], breaks))
    lengths = np.diff(np.concatenate((starts, [len(numbers)])))
    return [[int(numbers[start]), int(length)] for start, length in zip(starts, lengths, strict=True)]


def numbers_of(runs: Iterable[Sequence[int]]) -> NDArray[np.int64]:
    """Return the numbers that runs stand for."""
    parts: list[Any] = [
        np.full(length, start, dtype=np.int64) if start < 0 else np.arange(start, start + length, dtype=np.int64)
        for start, length in runs
    ]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
