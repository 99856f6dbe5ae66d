"""The split of a row-by-row refresh: which rows of the source each task computes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pennon.columns.row_spans import runs_of

if TYPE_CHECKING:
    from lance import LanceDataset
    from lance.fragment import LanceFragment

    from pennon.views.refresh.changes import Ids, RowChanges

#: A fragment whose rows are all wanted is scanned, not looked up by row ids, if it has at least this many rows, or at
#: least this fraction of all wanted rows. Not measured.
_SCANNED_ROWS, _SCANNED_FRACTION = 1024, 32


@dataclass(frozen=True)
class FragmentRange:
    """Rows of a fragment, by their positions among those that are not deleted."""

    fragment_id: int
    start: int
    stop: int
    #: Whether these are all rows of the fragment.
    is_whole: bool
    #: Whether the view may have rows of these already.
    known: bool = False

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.stop - self.start


@dataclass(frozen=True)
class RowIdRuns:
    """Rows by their ids, in runs of a first id and a length."""

    runs: tuple[tuple[int, int], ...]
    #: Whether the view may have rows of these already.
    known: bool

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(length for _, length in self.runs)


WorkItem = FragmentRange | RowIdRuns


def changed_items(dataset: LanceDataset, changes: RowChanges, most: int) -> list[WorkItem]:
    """Return the rows of a version that were added or changed, in items of at most ``most`` rows.

    They are roughly in the order of their ids, by which rows of the view are found: added rows have the larger ids.
    """
    whole = _whole_fragments(dataset, np.concatenate([changes.changed_in, changes.added_in]))
    numbers = np.array([fragment.fragment_id for fragment in whole], dtype=np.int64)
    is_known = np.isin(numbers, changes.changed_in)
    items: list[WorkItem] = []
    for ids, owners, known in ((changes.changed, changes.changed_in, True), (changes.added, changes.added_in, False)):
        items += split_ids(ids[np.isin(owners, numbers, invert=True)], most, known=known)
        for fragment in itertools.compress(whole, is_known == known):
            items += split_fragment(fragment, most, known=known)
    return items


def _whole_fragments(dataset: LanceDataset, owners: Ids) -> list[LanceFragment]:
    """Return the fragments that are scanned because all of their rows are wanted, given the fragment of each row.

    To look rows up by their ids, Lance reads the ids of the whole table, once for any number of rows.
    """
    least = min(_SCANNED_ROWS, len(owners) // _SCANNED_FRACTION)
    numbers, wanted = np.unique(owners, return_counts=True)
    fragments = [(dataset.get_fragment(int(number)), rows) for number, rows in zip(numbers, wanted, strict=True)]
    return [
        fragment
        for fragment, rows in fragments
        if fragment is not None and rows >= least and rows == fragment.count_rows()
    ]


def split_fragment(fragment: LanceFragment, most: int, *, known: bool = False) -> list[WorkItem]:
    """Return all rows of a fragment, in items of at most ``most`` rows."""
    rows = fragment.count_rows()
    size = max(-(-rows // max(-(-rows // most), 1)), 1)
    return [
        FragmentRange(fragment.fragment_id, start, min(start + size, rows), size >= rows, known)
        for start in range(0, rows, size)
    ]


def split_ids(ids: Ids, most: int, *, known: bool) -> list[WorkItem]:
    """Return rows by their ids, in items of at most ``most`` rows."""
    pieces = [ids[start : start + most] for start in range(0, len(ids), most)]
    return [RowIdRuns(tuple((first, length) for first, length in runs_of(piece)), known) for piece in pieces]


def split_work(items: Sequence[WorkItem], count: int) -> tuple[tuple[WorkItem, ...], ...]:
    """Divide items among tasks, in order and with about equal rows."""
    total = sum(item.rows for item in items)
    groups: list[list[WorkItem]] = [[] for _ in range(min(count, len(items)))]
    done = 0
    for item in items:
        at = min((done + item.rows // 2) * len(groups) // max(total, 1), len(groups) - 1)
        groups[at].append(item)
        done += item.rows
    return tuple(tuple(group) for group in groups if group)
