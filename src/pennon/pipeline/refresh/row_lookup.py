"""Lookup of the rows of a view that come from given rows of its source.

Most files that a refresh writes hold one row for each of consecutive source rows, and say so in their metadata: the
offset of a row there is a subtraction. Of all other files, the column with the source rows is scanned.

benchmarks/lookup.py compares this with a BTREE index of Lance. For 1,000 lookups among 20 million rows, a subtraction
takes 0.13 of the time of a scan and the index 0.33, but the index takes another 13 scans to cover the rows of each
refresh. An interpolation search in sorted files with gaps took 0.7 of a scan, which was not worth its code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pennon.views.model.definition import SOURCE_ROW
from pennon.views.refresh.changes import Ids, deleted_rows

if TYPE_CHECKING:
    from lance import LanceDataset
    from lance.fragment import LanceFragment

    from pennon.storage.file_io import FileIO

#: The metadata key of a file whose rows come from consecutive source rows, one row each; the value is the first.
CONSECUTIVE_KEY = "pennon.first_source_row"
_BATCH_ROWS = 256 * 1024
_OFFSET_BITS = np.uint64(0xFFFFFFFF)
_FRAGMENT_SHIFT = np.uint64(32)
#: Ids are tested in a table with a byte for each id, if the largest id is below this, and below this many times the
#: number of rows. Not measured; the table takes at most 128 MiB.
_TABLE_BYTES = 128 * 1024 * 1024
_TABLE_BYTES_PER_ROW = 64

#: A fragment, the offsets of rows in it, and the source rows that they come from.
Found = tuple[int, Ids, Ids]


def find_rows(dataset: LanceDataset, wanted: Ids, folder: FileIO, options: dict[str, str]) -> Iterator[Found]:
    """Yield where the rows are that come from these source rows, which are ascending."""
    if not len(wanted):
        return
    scanned = []
    for fragment in dataset.get_fragments():
        # On an object store, opening each file costs more requests than the scan.
        first = _first_source_row(fragment, folder, options) if folder.is_local else None
        if first is None:
            scanned.append(fragment)
            continue
        offsets = wanted - first
        offsets = offsets[(offsets >= 0) & (offsets < fragment.physical_rows)]
        if len(offsets):
            offsets = np.setdiff1d(offsets, deleted_rows(dataset, fragment, folder), assume_unique=True)
        if len(offsets):
            yield fragment.fragment_id, offsets, offsets + first
    if scanned:
        yield from scan_rows(dataset, scanned, wanted)


def scan_rows(dataset: LanceDataset, fragments: list[LanceFragment], wanted: Ids) -> Iterator[Found]:
    """Yield where the rows are in these fragments, by reading their column of source rows."""
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
    """Return what tests which of ``rows`` ids are wanted; those are ascending."""
    last = int(wanted[-1])
    if last >= min(_TABLE_BYTES, _TABLE_BYTES_PER_ROW * rows):
        return lambda ids: np.isin(ids, wanted)
    table = np.zeros(last + 2, dtype=np.bool_)
    table[wanted] = True
    return lambda ids: table[np.minimum(ids, last + 1)]


def _first_source_row(fragment: LanceFragment, folder: FileIO, options: dict[str, str]) -> int | None:
    """Return the first source row of a fragment, if its file says that the source rows are consecutive."""
    from lance.file import LanceFileReader

    for file in fragment.metadata.files:
        if file.path.startswith("refresh-"):
            path = f"{folder.location}/data/{file.path}"
            reader = LanceFileReader(path, storage_options=options or None, columns=[SOURCE_ROW])
            first = (reader.metadata().schema.metadata or {}).get(CONSECUTIVE_KEY.encode())
            return None if first is None else int(first)
    return None
