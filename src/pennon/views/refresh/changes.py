"""What changed in a table between two versions: which rows came, which are others, and which are gone.

Fragments are compared by their metadata first: one that has the same files for what a view reads, and the same deleted
rows, is not looked at. Of the others only the ids of rows are read, and the version that wrote each of them last. So
the cost follows the change, whatever it was: an append, an update, a compaction or a restore.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from lance import LanceOperation
from lance_namespace.errors import TableColumnNotFoundError
from numpy.typing import NDArray

from pennon.tables.field_files import lance_field, leaves_of

if TYPE_CHECKING:
    from pennon.commits.column_writes import ColumnWrite
    from pennon.storage.file_io import FileIO

Ids = NDArray[np.int64]

_OFFSET_BITS = np.uint64(0xFFFFFFFF)
_ROW_ID, _ADDRESS, _WRITTEN = "_rowid", "_rowaddr", "_row_last_updated_at_version"
_NO_IDS: Ids = np.empty(0, dtype=np.int64)
#: Operations that may change rows without leaving the number of their version on them.
_SILENT = frozenset({"Restore", "DataOverlay", "Clone"})
#: Operations that change no row.
_ROWLESS = frozenset({"CreateIndex", "Rewrite", "UpdateConfig"})
#: In place of the transaction of a compaction that took indexes along, which pylance cannot show.
_OF_COMPACTION = object()
_MOST_TRANSACTIONS = 10_000
#: How many rows a condition names at most.
_MOST_ADDRESSES = 10_000
_BATCH_ROWS = 256 * 1024


class NotComparableError(Exception):
    """Two versions cannot be compared row by row; the message says why."""


@dataclass(frozen=True)
class Changes:
    """Rows by their ids, in rising order."""

    added: Ids = field(default_factory=lambda: _NO_IDS)
    changed: Ids = field(default_factory=lambda: _NO_IDS)
    gone: Ids = field(default_factory=lambda: _NO_IDS)
    #: The fragments of the newer version that have those that were added, and those that changed.
    added_in: Ids = field(default_factory=lambda: _NO_IDS)
    changed_in: Ids = field(default_factory=lambda: _NO_IDS)

    @property
    def none(self) -> bool:
        """Whether nothing changed."""
        return not (len(self.added) or len(self.changed) or len(self.gone))

    @property
    def present(self) -> Ids:
        """The rows to compute: those that came, and those that are others."""
        return np.union1d(self.added, self.changed)

    @property
    def past(self) -> Ids:
        """The rows whose results do not hold any more: those that are gone, and those that are others."""
        return np.union1d(self.gone, self.changed)


def field_ids(dataset: Any, columns: Iterable[str]) -> dict[str, int]:
    """Return the ids of columns by their paths; a column made anew under an old name mostly has another."""
    return {path: lance_field(dataset, path).id() for path in columns}


def new_columns(old: Any, new: Any) -> list[str]:
    """Return the columns that a table did not have before."""
    known = set(old.schema.names)
    return [name for name in new.schema.names if name not in known]


def compare(
    old: Any,
    new: Any,
    columns: Sequence[str],
    folder: FileIO | None = None,
    writes: Callable[[], Iterable[ColumnWrite]] = tuple,
) -> Changes:
    """Return how the rows of a table, as far as these columns tell, differ between two of its versions.

    Args:
        old: The older version.
        new: The newer version.
        columns: The columns to compare.
        folder: The table's folder. With it, deleted rows are read from small files instead of from all row ids.
        writes: Returns what the versions after the older one wrote in place.
    """
    if old.version == new.version:
        return Changes()
    if not (old.has_stable_row_ids and new.has_stable_row_ids):
        if has_same_files(old, new, columns):
            return Changes()
        raise NotComparableError("the table was made without stable row ids")
    before, after = _Side(old, columns, new, folder), _Side(new, columns, new, folder)
    rewritten = [
        _compare_fragment(before, after, number) for number in before.fragments.keys() | after.fragments.keys()
    ]

    def unmarked_fragments() -> frozenset[int] | None:
        found = _unmarked_fragments(before, after, rewritten=any(rewritten))
        unmarked = [each for each in writes() if not each.marks_rows]
        written = {number for each in unmarked for number, fields in each.fields.items() if after.read & fields}
        if found is None or any(each.anything for each in unmarked):
            return None
        # Rows of a fragment that is gone may be anywhere by now.
        return found | written if written <= after.fragments.keys() else None

    return _match(before.candidates(), after.candidates(), unmarked_fragments)


def has_same_files(old: Any, new: Any, columns: Sequence[str]) -> bool:
    """Tell whether two versions have the same fragments, files of these columns, and deleted rows."""
    before, after = _Side(old, columns, new, None), _Side(new, columns, new, None)
    return before.fragments.keys() == after.fragments.keys() and all(
        before.files(number) == after.files(number)
        and before.fragments[number].deletion_file() == after.fragments[number].deletion_file()
        for number in before.fragments
    )


def changes_no_rows(dataset: Any, version: int) -> bool:
    """Tell whether a version was made by an index, a compaction, or settings of the table."""
    transaction = _transaction(dataset, version)
    return transaction is _OF_COMPACTION or type(getattr(transaction, "operation", None)).__name__ in _ROWLESS


def deleted_rows(dataset: Any, fragment: Any, folder: FileIO | None) -> Ids:
    """Return the places of a fragment's deleted rows, in rising order."""
    path = fragment.deletion_file()
    if path is None:
        return _NO_IDS
    found = _read_deletions(folder, path, fragment.metadata)
    if found is None:
        scanner = dataset.scanner(fragments=[fragment], columns=[_ADDRESS], batch_size=_BATCH_ROWS)
        addresses: NDArray[np.uint64] = scanner.to_table().column(_ADDRESS).to_numpy()
        mask = np.ones(fragment.physical_rows, dtype=np.bool_)
        mask[(addresses & _OFFSET_BITS).astype(np.int64)] = False
        found = np.flatnonzero(mask)
    return found


@dataclass(frozen=True)
class _Rows:
    """Rows in the order of their ids, with the version that wrote each of them last, and the fragment it is in."""

    ids: Ids
    written: Ids
    fragments: Ids


class _Side:
    """One of the two versions, and which of its rows may have changed."""

    def __init__(self, dataset: Any, columns: Sequence[str], named: Any, folder: FileIO | None) -> None:
        self.dataset = dataset
        self._folder = folder
        self.fragments = {fragment.fragment_id: fragment for fragment in dataset.get_fragments()}
        self.read = frozenset().union(*(leaves_of(_field(dataset, path, named)) for path in columns))
        self._whole: list[Any] = []
        self._addresses: list[Ids] = []

    def files(self, fragment_id: int) -> object:
        """Return what is the same as long as the rows of a fragment, deleted ones included, hold the same values."""
        return _files(self.fragments[fragment_id].metadata, self.read)

    def add_fragment(self, fragment_id: int) -> None:
        """Look at all rows of a fragment."""
        self._whole.append(self.fragments[fragment_id])

    def add_rows(self, fragment_id: int, offsets: Ids) -> None:
        """Look at some rows of a fragment, by their places in it."""
        self._addresses.append(offsets + (fragment_id << 32))

    def deleted(self, fragment_id: int) -> Ids:
        """Return the places of a fragment's deleted rows."""
        return deleted_rows(self.dataset, self.fragments[fragment_id], self._folder)

    def candidates(self) -> _Rows:
        """Return the rows that may have changed."""
        addresses = np.concatenate([_NO_IDS, *self._addresses])
        starts = range(0, len(addresses), _MOST_ADDRESSES)
        parts = [self._scan_rows(addresses[start : start + _MOST_ADDRESSES]) for start in starts]
        parts += [self._scan(self._whole)] if self._whole else []
        if not parts:
            return _Rows(_NO_IDS, _NO_IDS, _NO_IDS)
        ids = np.concatenate([part.ids for part in parts])
        written = np.concatenate([part.written for part in parts])
        fragments = np.concatenate([part.fragments for part in parts])
        if np.all(ids[1:] > ids[:-1]):  # as after a compaction, when there are most of them
            return _Rows(ids, written, fragments)
        order = np.argsort(ids, kind="stable")
        return _Rows(ids[order], written[order], fragments[order])

    def _scan_rows(self, addresses: Ids) -> _Rows:
        """Look at rows of several fragments at once: to begin a scan costs more than to read so few rows."""
        fragments = [self.fragments[number] for number in np.unique(addresses >> 32).tolist()]
        return self._scan(fragments, f"{_ADDRESS} IN ({', '.join(map(str, addresses.tolist()))})")

    def _scan(self, fragments: list[Any], condition: str | None = None) -> _Rows:
        scanner = self.dataset.scanner(
            fragments=fragments, columns=[_ROW_ID, _WRITTEN, _ADDRESS], filter=condition, batch_size=_BATCH_ROWS
        )
        table = scanner.to_table()
        read = [table.column(name).to_numpy().view(np.int64) for name in (_ROW_ID, _WRITTEN, _ADDRESS)]
        return _Rows(read[0], read[1], read[2] >> 32)


def _files(metadata: Any, read: frozenset[int]) -> object:
    files = [(file.path, sorted(read.intersection(file.fields))) for file in metadata.files]
    return metadata.physical_rows, [file for file in files if file[1]], [str(layer) for layer in metadata.overlays]


def _field(dataset: Any, path: str, named: Any) -> Any:
    """Return a column by the name it has in another version: where it had none of that name, it was renamed since."""
    try:
        return lance_field(dataset, path)
    except TableColumnNotFoundError:
        return lance_field(named, path)


def _compare_fragment(before: _Side, after: _Side, fragment_id: int) -> bool:
    """Choose which rows of a fragment are looked at, and tell whether it was written again where it is."""
    if fragment_id not in after.fragments:
        before.add_fragment(fragment_id)
    elif fragment_id not in before.fragments:
        after.add_fragment(fragment_id)
    elif before.files(fragment_id) != after.files(fragment_id):
        before.add_fragment(fragment_id)
        after.add_fragment(fragment_id)
        return True
    elif before.fragments[fragment_id].deletion_file() != after.fragments[fragment_id].deletion_file():
        then, now = before.deleted(fragment_id), after.deleted(fragment_id)
        before.add_rows(fragment_id, np.setdiff1d(now, then, assume_unique=True))
        after.add_rows(fragment_id, np.setdiff1d(then, now, assume_unique=True))
    return False


def _read_deletions(folder: FileIO | None, path: str, metadata: Any) -> Ids | None:
    """Return the places in a file of deleted rows; none when it is of the other kind, or elsewhere."""
    if folder is None or not path.endswith(".arrow"):
        return None
    try:
        table = pa.ipc.open_file(pa.py_buffer(folder.read(path))).read_all()
    except (FileNotFoundError, pa.ArrowInvalid):
        return None
    offsets = np.sort(table.column(0).to_numpy().astype(np.int64))
    return offsets if len(offsets) == metadata.deletion_file.num_deleted_rows else None


def _match(old: _Rows, new: _Rows, unmarked_fragments: Callable[[], frozenset[int] | None]) -> Changes:
    """Tell apart rows that are on one side only from those that are on both, as they were or written anew."""
    at = np.searchsorted(old.ids, new.ids)
    is_kept = np.zeros(len(new.ids), dtype=np.bool_)
    within = at < len(old.ids)
    is_kept[within] = old.ids[at[within]] == new.ids[within]
    is_gone = np.ones(len(old.ids), dtype=np.bool_)
    is_gone[at[is_kept]] = False
    is_changed = is_kept.copy()
    unmarked = unmarked_fragments() if is_kept.any() else None
    if unmarked is not None:
        is_changed[is_kept] = old.written[at[is_kept]] != new.written[is_kept]
        is_changed |= is_kept & np.isin(new.fragments, list(unmarked))
    return Changes(
        added=new.ids[~is_kept],
        changed=new.ids[is_changed],
        gone=old.ids[is_gone],
        added_in=new.fragments[~is_kept],
        changed_in=new.fragments[is_changed],
    )


def _unmarked_fragments(before: _Side, after: _Side, *, rewritten: bool) -> frozenset[int] | None:
    """Return the fragments whose rows changed without the number of the version that changed them.

    None means that any row may have. A column that is dropped and made again changes all rows without a word, and may
    even get the id of the old one.
    """
    version, new = before.dataset.version, after.dataset
    if not 0 < new.version - version <= _MOST_TRANSACTIONS:
        return None
    found: frozenset[int] = frozenset()
    for number in range(new.version, version, -1):
        transaction = _transaction(new, number)
        if transaction is _OF_COMPACTION:
            continue
        if transaction is None or not _tells(transaction.operation, after.read, rewritten=rewritten):
            return None
        if isinstance(transaction.operation, LanceOperation.Update):
            found |= _written_in_place(transaction.operation, before, after.read)
            if not found <= after.fragments.keys():
                return None  # their rows may be anywhere by now
    return found


def _written_in_place(update: Any, before: _Side, read: frozenset[int]) -> frozenset[int]:
    """Return the fragments to which an update wrote columns: pylance's ``update_columns`` marks no row of them.

    Writers need not name the fields, so that files are compared, too, where the older version has the fragment.
    """
    named = not read.isdisjoint(update.fields_modified)
    return frozenset(
        fragment.id
        for fragment in update.updated_fragments
        if named or (fragment.id in before.fragments and before.files(fragment.id) != _files(fragment, before.read))
    )


def _transaction(dataset: Any, version: int) -> Any:
    """Return what made a version; none when that is not known."""
    try:
        # A copy: the method borrows mutably, and threads of a refresh may share the dataset.
        return copy(dataset).read_transaction(version)
    except TypeError as error:
        return _OF_COMPACTION if "RewrittenIndex" in str(error) else None
    except Exception:  # noqa: BLE001 - whatever keeps it from being read, nothing is known then
        return None


def _tells(operation: Any, read: frozenset[int], *, rewritten: bool) -> bool:
    kind = type(operation).__name__
    if kind in ("Merge", "Project"):
        kept = frozenset().union(*(leaves_of(each) for each in operation.schema.fields()))
        return read <= kept and not (rewritten and kind == "Merge")
    return kind not in _SILENT
