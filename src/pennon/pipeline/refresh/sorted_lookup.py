"""Finding the rows of a view that come from certain rows of its source.

A refresh writes most files in the order of the source's rows, and notes in the file when it did. Few ids are looked up
in such a file by their order, at a cost that hardly follows its size. Other files are read: one column of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pennon.views.model.definition import SOURCE_ROW
from pennon.views.refresh.changes import Ids, deleted_rows

if TYPE_CHECKING:
    from pennon.storage.file_io import FileIO

#: What a file says whose rows are in the order of the source's.
RISING_KEY = "pennon.rising"
#: What it says when each of them comes from another row of the source.
DISTINCT_KEY = "pennon.distinct"
#: Reading a column of a file is as fast as looking up one in so many of its rows.
_SPARSE = 1024
_BATCH_ROWS = 256 * 1024
_OFFSET_BITS = np.uint64(0xFFFFFFFF)
_FRAGMENT_SHIFT = np.uint64(32)
#: Ids up to this one are looked up in a table, which has a byte for each of them, if rows are not far fewer.
_MOST_BITS = 128 * 1024 * 1024
_WORTH_BITS = 64
_BISECT_EVERY = 4

#: The rows of a fragment by their places in it, and the source's rows that they come from.
Found = tuple[int, Ids, Ids]


def locate(dataset: Any, wanted: Ids, folder: FileIO, options: dict[str, str]) -> Iterator[Found]:
    """Yield where the rows are that come from these rows of the source, which rise."""
    if not len(wanted):
        return
    unordered = []
    for fragment in dataset.get_fragments():
        # Elsewhere each probe would be a request.
        file = _rising_file(fragment, folder, options) if folder.is_local else None
        if file is None:
            unordered.append(fragment)
            continue
        places, sources = file.find(wanted)
        if len(places):
            is_there = np.isin(places, deleted_rows(dataset, fragment, folder), assume_unique=True, invert=True)
            if is_there.any():
                yield fragment.fragment_id, places[is_there], sources[is_there]
    if unordered:
        yield from _scan(dataset, unordered, wanted)


def lower_bounds(values_at: Callable[[Ids], Ids], count: int, wanted: Ids, *, distinct: bool = False) -> Ids:
    """Return, for each number, the first place in rising values where there is none smaller; count where all are.

    StorageRoot are guessed from the values around them, so that few looks are enough where values are evenly spread. Of
    distinct values, those that follow each other without a gap need none.
    """
    places = np.unique(np.array([0, count - 1], dtype=np.int64))
    values = values_at(places)
    answer = np.where(wanted <= values[0], 0, count).astype(np.int64)
    inside = np.flatnonzero((wanted > values[0]) & (wanted <= values[-1]))
    number = wanted[inside]
    for turn in itertools.count(1):
        at = np.searchsorted(values, number)
        below, above = values[at - 1], values[at]
        low, high = places[at - 1] + 1, places[at]
        guess = low + (number - below) * (high - low) // (above - below)
        if distinct:
            low, high = np.maximum(low, high - (above - number)), np.minimum(high, low - 1 + (number - below))
        is_open = low < high
        if not is_open.any():
            break
        if turn % _BISECT_EVERY == 0:  # so that values of any spread are found
            guess = (low + high) // 2
        # One look at three neighbours: where values are dense, it settles the matter.
        looks = [np.clip(guess + step, low, high - 1)[is_open] for step in (-1, 0, 1)]
        seen = np.unique(np.concatenate(looks))
        places, values = np.sort(np.concatenate([places, seen])), np.sort(np.concatenate([values, values_at(seen)]))
    answer[inside] = low
    return answer


@dataclass(frozen=True)
class _RisingFile:
    """A file whose rows are in the order of the source's."""

    reader: Any
    distinct: bool

    def find(self, wanted: Ids) -> tuple[Ids, Ids]:
        """Return the places of all rows that come from these, and which of these each comes from."""
        count = self.reader.num_rows()
        ends = self._values_at(np.unique([0, count - 1]))
        first, last = ends[0], ends[-1]
        inside = wanted[(wanted >= first) & (wanted <= last)]
        if not len(inside) or (self.distinct and last - first == count - 1):
            return inside - first, inside
        bounds = np.concatenate([inside, inside + 1])
        if len(inside) * _SPARSE < count:
            found = lower_bounds(self._values_at, count, bounds, distinct=self.distinct)
        else:
            found = np.searchsorted(_numbers(self.reader.read_all(batch_size=count)), bounds)
        starts, stops = np.split(found, 2)
        lengths = stops - starts
        within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return np.repeat(starts, lengths) + within, np.repeat(inside, lengths)

    def _values_at(self, places: Ids) -> Ids:
        return _numbers(self.reader.take_rows(places.tolist(), batch_size=len(places)))


def _numbers(read: Any) -> Ids:
    numbers: Ids = read.to_table().column(0).to_numpy()
    return numbers


def _scan(dataset: Any, fragments: list[Any], wanted: Ids) -> Iterator[Found]:
    is_wanted = _membership(wanted, sum(fragment.physical_rows for fragment in fragments))
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


def _membership(wanted: Ids, rows: int) -> Callable[[Ids], NDArray[np.bool_]]:
    """Return what tells which ids, of so many, are among those wanted, which rise."""
    last = int(wanted[-1])
    if last >= min(_MOST_BITS, _WORTH_BITS * rows):
        return lambda ids: np.isin(ids, wanted)
    table = np.zeros(last + 2, dtype=np.bool_)
    table[wanted] = True
    return lambda ids: table[np.minimum(ids, last + 1)]


def _rising_file(fragment: Any, folder: FileIO, options: dict[str, str]) -> _RisingFile | None:
    """Return the file that has the source's rows, if it says that they are in order."""
    from lance.file import LanceFileReader

    for file in fragment.metadata.files:
        if file.path.startswith("refresh-"):
            settings: dict[str, Any] = {"storage_options": options} if options else {}
            reader = LanceFileReader(f"{folder.location}/data/{file.path}", columns=[SOURCE_ROW], **settings)
            said = reader.metadata().schema.metadata or {}
            if said.get(RISING_KEY.encode()) == SOURCE_ROW.encode():
                return _RisingFile(reader, distinct=said.get(DISTINCT_KEY.encode()) == SOURCE_ROW.encode())
    return None
