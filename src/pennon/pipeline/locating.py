"""Finding the rows of a view that come from certain rows of its source.

A refresh writes most files in the order of the source's rows, and notes in the file when it did. Few ids are looked up
in such a file by their order, at a cost that hardly follows its size. Other files are read: one column of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pennon.views.changes import Ids, deleted_rows
from pennon.views.definition import SOURCE_ROW

if TYPE_CHECKING:
    from pennon.lake.folder import Folder

#: What a file says whose rows are in the order of the source's.
RISING_KEY = "pennon.rising"
#: Reading a column is as fast as looking up one in so many of its rows.
_SPARSE = 64
_BATCH_ROWS = 256 * 1024
_OFFSET_BITS = np.uint64(0xFFFFFFFF)
_FRAGMENT_SHIFT = np.uint64(32)
#: Ids up to this one are looked up in a table, which has a byte for each of them.
_MOST_BITS = 128 * 1024 * 1024
_BISECT_EVERY = 4

#: The rows of a fragment by their places in it, and the source's rows that they come from.
Found = tuple[int, Ids, Ids]


def locate(dataset: Any, wanted: Ids, folder: Folder, options: dict[str, str]) -> Iterator[Found]:
    """Yield where the rows are that come from these rows of the source, which rise."""
    if not len(wanted):
        return
    unordered = []
    for fragment in dataset.get_fragments():
        rows = fragment.physical_rows - fragment.num_deletions
        # Elsewhere each probe would be a request.
        is_sparse = folder.probes_are_cheap and len(wanted) * _SPARSE < rows
        if is_sparse and _is_rising(fragment, folder, options):
            places, sources = _search(fragment, rows, wanted)
            if len(places):
                yield fragment.fragment_id, _physical(places, deleted_rows(dataset, fragment, folder)), sources
        else:
            unordered.append(fragment)
    if unordered:
        yield from _scan(dataset, unordered, wanted)


def lower_bounds(values_at: Callable[[Ids], Ids], count: int, wanted: Ids) -> Ids:
    """Return, for each number, the first place in rising values where there is none smaller; count where all are.

    Places are guessed from the values around them, so that few looks are enough where values are evenly spread.
    """
    first, last = values_at(np.array([0, count - 1], dtype=np.int64))
    answer = np.where(wanted <= first, 0, count).astype(np.int64)
    inside = np.flatnonzero((wanted > first) & (wanted <= last))
    number = wanted[inside]
    low, high = np.ones(len(inside), dtype=np.int64), np.full(len(inside), count - 1, dtype=np.int64)
    below, above = np.full(len(inside), first), np.full(len(inside), last)
    turn = 0
    while (active := np.flatnonzero(low < high)).size:
        turn += 1
        guess = _guess(number[active], low[active], high[active], below[active], above[active], turn)
        # One look at three neighbours: where values are dense, it settles the matter.
        places = np.stack([guess - 1, guess, guess + 1])
        fits = (places >= low[active]) & (places < high[active])
        values = np.zeros_like(places)
        values[fits] = values_at(places[fits])
        reaches = values >= number[active]
        for row in (2, 1, 0):
            found = fits[row] & reaches[row]
            high[active[found]], above[active[found]] = places[row][found], values[row][found]
        for row in (0, 1, 2):
            found = fits[row] & ~reaches[row]
            low[active[found]], below[active[found]] = places[row][found] + 1, values[row][found]
    answer[inside] = low
    return answer


def _guess(number: Ids, low: Ids, high: Ids, below: Ids, above: Ids, turn: int) -> Ids:
    if turn % _BISECT_EVERY == 0:  # so that values of any spread are found
        return (low + high) // 2
    share = (number - below) / np.maximum(above - below, 1)
    guessed: Ids = low - 1 + np.ceil(share * (high - low + 1)).astype(np.int64)
    return np.minimum(np.maximum(guessed, low), high - 1)


def _search(fragment: Any, count: int, wanted: Ids) -> tuple[Ids, Ids]:
    """Return the places, among the rows that are not deleted, of all rows that come from these."""

    def values_at(places: Ids) -> Ids:
        if not len(places):
            return np.empty(0, dtype=np.int64)
        unique, back = np.unique(places, return_inverse=True)
        taken: Ids = fragment.take(unique.tolist(), columns=[SOURCE_ROW]).column(SOURCE_ROW).to_numpy()
        return taken[back]

    starts, stops = np.split(lower_bounds(values_at, count, np.concatenate([wanted, wanted + 1])), 2)
    lengths = stops - starts
    ends = np.cumsum(lengths)
    within = np.arange(ends[-1]) - np.repeat(ends - lengths, lengths)
    return np.repeat(starts, lengths) + within, np.repeat(wanted, lengths)


def _physical(places: Ids, deleted: Ids) -> Ids:
    """Return places among all rows for places among those that are not deleted."""
    return places + np.searchsorted(deleted - np.arange(len(deleted)), places, side="right")


def _scan(dataset: Any, fragments: list[Any], wanted: Ids) -> Iterator[Found]:
    is_wanted = _membership(wanted)
    scanner = dataset.scanner(fragments=fragments, columns=[SOURCE_ROW], with_row_address=True, batch_size=_BATCH_ROWS)
    addresses, sources = [], []
    for batch in scanner.to_batches():
        ids = batch.column(SOURCE_ROW).to_numpy()
        mask = is_wanted(ids)
        if mask.any():
            addresses.append(batch.column("_rowaddr").to_numpy()[mask])
            sources.append(ids[mask])
    if not addresses:
        return
    found, ids = np.concatenate(addresses), np.concatenate(sources)
    owners = found >> _FRAGMENT_SHIFT
    for owner in np.unique(owners):
        mask = owners == owner
        yield int(owner), (found[mask] & _OFFSET_BITS).astype(np.int64), ids[mask]


def _membership(wanted: Ids) -> Callable[[Ids], NDArray[np.bool_]]:
    """Return what tells which of many ids are among those wanted, which rise."""
    last = int(wanted[-1])
    if last >= _MOST_BITS:
        return lambda ids: np.isin(ids, wanted)
    table = np.zeros(last + 2, dtype=np.bool_)
    table[wanted] = True
    return lambda ids: table[np.minimum(ids, last + 1)]


def _is_rising(fragment: Any, folder: Folder, options: dict[str, str]) -> bool:
    """Tell whether the file that has the source's rows says that they are in order."""
    from lance.file import LanceFileReader

    for file in fragment.metadata.files:
        if file.path.startswith("refresh-"):
            settings: dict[str, Any] = {"storage_options": options} if options else {}
            metadata = LanceFileReader(f"{folder.location}/data/{file.path}", **settings).metadata()
            return (metadata.schema.metadata or {}).get(RISING_KEY.encode()) == SOURCE_ROW.encode()
    return False
