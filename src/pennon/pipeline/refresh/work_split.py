"""Sharing out the rows of the source that a refresh computes among its tasks."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pennon.columns.row_spans import runs_of

if TYPE_CHECKING:
    from pennon.views.refresh.changes import Changes, Ids

#: A fragment is read as it is if it has so many rows, or if there can be only so few of its size.
_SCANNED_ROWS, _FEW_SCANS = 1024, 32


@dataclass(frozen=True)
class Slice:
    """Rows of a fragment by their place among those that are not deleted."""

    fragment_id: int
    start: int
    stop: int
    #: Whether these are all rows of the fragment.
    whole: bool
    #: Whether the view may have rows of them already.
    known: bool = False

    @property
    def rows(self) -> int:
        """How many rows these are."""
        return self.stop - self.start


@dataclass(frozen=True)
class Picked:
    """Rows by their ids, as runs of a first id and a length."""

    runs: tuple[tuple[int, int], ...]
    #: Whether the view may have rows of them already.
    known: bool

    @property
    def rows(self) -> int:
        """How many rows these are."""
        return sum(length for _, length in self.runs)


Item = Slice | Picked


def changed_items(dataset: Any, changes: Changes, most: int) -> list[Item]:
    """Return the rows of a version that came or are others, in pieces of at most so many.

    They are about in the order of their ids, by which the view's rows are found again: those that came have the larger.
    """
    whole = _whole_fragments(dataset, np.concatenate([changes.changed_in, changes.added_in]))
    numbers = np.array([fragment.fragment_id for fragment in whole], dtype=np.int64)
    is_known = np.isin(numbers, changes.changed_in)
    items: list[Item] = []
    for ids, owners, known in ((changes.changed, changes.changed_in, True), (changes.added, changes.added_in, False)):
        items += picked(ids[np.isin(owners, numbers, invert=True)], most, known=known)
        for fragment in itertools.compress(whole, is_known == known):
            items += slices(fragment, most, known=known)
    return items


def _whole_fragments(dataset: Any, owners: Ids) -> list[Any]:
    """Return the fragments that are read as they are, because all of their rows are wanted; told whose each row is.

    To find rows by their ids, Lance looks at those of the whole table. It does so once, however many rows there are.
    """
    least = min(_SCANNED_ROWS, len(owners) // _FEW_SCANS)
    numbers, wanted = np.unique(owners, return_counts=True)
    fragments = [(dataset.get_fragment(int(number)), rows) for number, rows in zip(numbers, wanted, strict=True)]
    return [fragment for fragment, rows in fragments if rows >= least and rows == fragment.count_rows()]


def slices(fragment: Any, most: int, *, known: bool = False) -> list[Item]:
    """Return all rows of a fragment, in pieces of at most so many."""
    rows = fragment.count_rows()
    size = max(-(-rows // max(-(-rows // most), 1)), 1)
    return [
        Slice(fragment.fragment_id, start, min(start + size, rows), size >= rows, known)
        for start in range(0, rows, size)
    ]


def picked(ids: Ids, most: int, *, known: bool) -> list[Item]:
    """Return rows by their ids, in pieces of at most so many."""
    pieces = [ids[start : start + most] for start in range(0, len(ids), most)]
    return [Picked(tuple((first, length) for first, length in runs_of(piece)), known) for piece in pieces]


def share(items: Sequence[Item], count: int) -> tuple[tuple[Item, ...], ...]:
    """Share items out among tasks in their order, so that each has about as many rows."""
    total = sum(item.rows for item in items)
    groups: list[list[Item]] = [[] for _ in range(min(count, len(items)))]
    done = 0
    for item in items:
        at = min((done + item.rows // 2) * len(groups) // max(total, 1), len(groups) - 1)
        groups[at].append(item)
        done += item.rows
    return tuple(tuple(group) for group in groups if group)
