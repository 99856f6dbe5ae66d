"""Changes of a table between two versions: added, changed and removed rows.

Fragments are compared by metadata first: a fragment with the same files for the columns of a view, and the same
deleted rows, is not scanned. From the others only row ids and the version of the last write of each row are read. So
the cost is proportional to the change, whether it was an append, an update, a compaction or a restore.
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

from pennon.tables.field_files import field_ids_of, lance_field

if TYPE_CHECKING:
    from lance import LanceDataset, LanceFragment
    from lance.fragment import FragmentMetadata

    from pennon.commits.column_writes import ColumnWrite
    from pennon.storage.file_io import FileIO

Ids = NDArray[np.int64]

_OFFSET_BITS = np.uint64(0xFFFFFFFF)
_ROW_ID, _ADDRESS, _WRITTEN = "_rowid", "_rowaddr", "_row_last_updated_at_version"
_NO_IDS: Ids = np.empty(0, dtype=np.int64)
#: Operations that may change rows without setting the version of their last update.
_SILENT = frozenset({"Restore", "DataOverlay", "Clone"})
#: Operations that do not change rows.
_ROWLESS = frozenset({"CreateIndex", "Rewrite", "UpdateConfig"})
#: Stands for the transaction of a compaction that also rewrote indexes, which pylance cannot read.
_COMPACTION = object()
_MAX_TRANSACTIONS = 10_000
#: The maximum number of row addresses in a filter.
_MAX_ADDRESSES = 10_000
_BATCH_ROWS = 256 * 1024


class NotComparableError(Exception):
    """Two versions cannot be compared row by row, for the reason in the message."""


@dataclass(frozen=True)
class RowChanges:
    """Sorted row ids of added, changed and removed rows."""

    added: Ids = field(default_factory=lambda: _NO_IDS)
    changed: Ids = field(default_factory=lambda: _NO_IDS)
    removed: Ids = field(default_factory=lambda: _NO_IDS)
    #: For each added and each changed row, its fragment in the newer version.
    added_in: Ids = field(default_factory=lambda: _NO_IDS)
    changed_in: Ids = field(default_factory=lambda: _NO_IDS)

    @property
    def is_empty(self) -> bool:
        """Whether nothing has changed."""
        return not (len(self.added) or len(self.changed) or len(self.removed))

    @property
    def to_compute(self) -> Ids:
        """The added and changed rows, which must be computed."""
        return np.union1d(self.added, self.changed)

    @property
    def obsolete(self) -> Ids:
        """The changed and removed rows, whose earlier results are obsolete."""
        return np.union1d(self.removed, self.changed)


def field_ids(dataset: LanceDataset, columns: Iterable[str]) -> dict[str, int]:
    """Return the field ids of columns by path; a column that is created again usually gets a new id."""
    return {path: lance_field(dataset, path).id() for path in columns}


def new_columns(old: LanceDataset, new: LanceDataset) -> list[str]:
    """Return the names of the columns that the older version does not have."""
    known = set(old.schema.names)
    return [name for name in new.schema.names if name not in known]


def compare(
    old: LanceDataset,
    new: LanceDataset,
    columns: Sequence[str],
    folder: FileIO | None = None,
    writes: Callable[[], Iterable[ColumnWrite]] = tuple,
) -> RowChanges:
    """Return the rows that differ in some columns between two versions of a table.

    Args:
        old: The older version.
        new: The newer version.
        columns: The columns to compare.
        folder: The folder of the table, to read deletion files directly instead of scanning all row ids.
        writes: Returns the in-place column writes of the versions after the older one.
    """
    if old.version == new.version:
        return RowChanges()
    if not (old.has_stable_row_ids and new.has_stable_row_ids):
        if has_same_files(old, new, columns):
            return RowChanges()
        raise NotComparableError("the table was made without stable row ids")
    before, after = _Side(old, columns, new, folder), _Side(new, columns, new, folder)
    rewritten = [
        _compare_fragment(before, after, number) for number in before.fragments.keys() | after.fragments.keys()
    ]

    def unmarked_fragments() -> frozenset[int] | None:
        found = _unmarked_fragments(before, after, rewritten=any(rewritten))
        unmarked = [each for each in writes() if not each.marks_rows]
        written = {number for each in unmarked for number, fields in each.fields.items() if after.read & fields}
        if found is None or any(each.is_unknown for each in unmarked):
            return None
        # The rows of a fragment that is gone may be in any fragment.
        return found | written if written <= after.fragments.keys() else None

    return _match(before.candidates(), after.candidates(), unmarked_fragments)


def has_same_files(old: LanceDataset, new: LanceDataset, columns: Sequence[str]) -> bool:
    """Return whether two versions have the same fragments, files of these columns, and deleted rows."""
    before, after = _Side(old, columns, new, None), _Side(new, columns, new, None)
    return before.fragments.keys() == after.fragments.keys() and all(
        before.files(number) == after.files(number)
        and before.fragments[number].deletion_file() == after.fragments[number].deletion_file()
        for number in before.fragments
    )


def changes_no_rows(dataset: LanceDataset, version: int) -> bool:
    """Return whether a version was committed by an index build, a compaction, or a change of settings."""
    transaction = _transaction(dataset, version)
    return transaction is _COMPACTION or type(getattr(transaction, "operation", None)).__name__ in _ROWLESS


def deleted_rows(dataset: LanceDataset, fragment: LanceFragment, folder: FileIO | None) -> Ids:
    """Return the sorted offsets of the deleted rows of a fragment."""
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
    """Rows sorted by id, each with the version that last wrote it, and its fragment."""

    ids: Ids
    written: Ids
    fragments: Ids


class _Side:
    """One of the two versions, and the rows of it that may have changed."""

    def __init__(
        self, dataset: LanceDataset, columns: Sequence[str], named: LanceDataset, folder: FileIO | None
    ) -> None:
        self.dataset = dataset
        self._folder = folder
        self.fragments = {fragment.fragment_id: fragment for fragment in dataset.get_fragments()}
        self.read = frozenset().union(*(field_ids_of(_field(dataset, path, named)) for path in columns))
        self._whole: list[LanceFragment] = []
        self._addresses: list[Ids] = []

    def files(self, fragment_id: int) -> object:
        """Return a value that is equal as long as the rows of a fragment, including deleted ones, are unchanged."""
        return _files(self.fragments[fragment_id].metadata, self.read)

    def add_fragment(self, fragment_id: int) -> None:
        """Scan all rows of a fragment."""
        self._whole.append(self.fragments[fragment_id])

    def add_rows(self, fragment_id: int, offsets: Ids) -> None:
        """Scan the rows of a fragment at some offsets."""
        self._addresses.append(offsets + (fragment_id << 32))

    def deleted(self, fragment_id: int) -> Ids:
        """Return the offsets of the deleted rows of a fragment."""
        return deleted_rows(self.dataset, self.fragments[fragment_id], self._folder)

    def candidates(self) -> _Rows:
        """Return the rows that may have changed."""
        addresses = np.concatenate([_NO_IDS, *self._addresses])
        starts = range(0, len(addresses), _MAX_ADDRESSES)
        parts = [self._scan_rows(addresses[start : start + _MAX_ADDRESSES]) for start in starts]
        parts += [self._scan(self._whole)] if self._whole else []
        if not parts:
            return _Rows(_NO_IDS, _NO_IDS, _NO_IDS)
        ids = np.concatenate([part.ids for part in parts])
        written = np.concatenate([part.written for part in parts])
        fragments = np.concatenate([part.fragments for part in parts])
        if np.all(ids[1:] > ids[:-1]):  # usual after a compaction, which has the most candidates
            return _Rows(ids, written, fragments)
        order = np.argsort(ids, kind="stable")
        return _Rows(ids[order], written[order], fragments[order])

    def _scan_rows(self, addresses: Ids) -> _Rows:
        """Scan rows of several fragments at once: starting a scan costs more than reading a few rows."""
        fragments = [self.fragments[number] for number in np.unique(addresses >> 32).tolist()]
        return self._scan(fragments, f"{_ADDRESS} IN ({', '.join(map(str, addresses.tolist()))})")

    def _scan(self, fragments: list[LanceFragment], condition: str | None = None) -> _Rows:
        scanner = self.dataset.scanner(
            fragments=fragments, columns=[_ROW_ID, _WRITTEN, _ADDRESS], filter=condition, batch_size=_BATCH_ROWS
        )
        table = scanner.to_table()
        read = [table.column(name).to_numpy().view(np.int64) for name in (_ROW_ID, _WRITTEN, _ADDRESS)]
        return _Rows(read[0], read[1], read[2] >> 32)


def _files(metadata: FragmentMetadata, read: frozenset[int]) -> object:
    files = [(file.path, sorted(read.intersection(file.fields))) for file in metadata.files]
    return metadata.physical_rows, [file for file in files if file[1]], [str(layer) for layer in metadata.overlays]


def _field(dataset: LanceDataset, path: str, named: LanceDataset) -> Any:
    """Return a column by its name; if this version has no such column, it was renamed, and the other version has it."""
    try:
        return lance_field(dataset, path)
    except TableColumnNotFoundError:
        return lance_field(named, path)


def _compare_fragment(before: _Side, after: _Side, fragment_id: int) -> bool:
    """Select the rows of a fragment to scan, and return whether its files were replaced in place."""
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


def _read_deletions(folder: FileIO | None, path: str, metadata: FragmentMetadata) -> Ids | None:
    """Return the offsets in a deletion file; none if it is a bitmap, or not in the folder."""
    if folder is None or not path.endswith(".arrow"):
        return None
    try:
        table = pa.ipc.open_file(pa.py_buffer(folder.read(path))).read_all()
    except (FileNotFoundError, pa.ArrowInvalid):
        return None
    offsets = np.sort(table.column(0).to_numpy().astype(np.int64))
    deletions = metadata.deletion_file
    return offsets if deletions is not None and len(offsets) == deletions.num_deleted_rows else None


def _match(old: _Rows, new: _Rows, unmarked_fragments: Callable[[], frozenset[int] | None]) -> RowChanges:
    """Match rows of both versions by id into added, changed and removed rows."""
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
    return RowChanges(
        added=new.ids[~is_kept],
        changed=new.ids[is_changed],
        removed=old.ids[is_gone],
        added_in=new.fragments[~is_kept],
        changed_in=new.fragments[is_changed],
    )


def _unmarked_fragments(before: _Side, after: _Side, *, rewritten: bool) -> frozenset[int] | None:
    """Return the fragments whose rows were changed without setting the version of their last update.

    None means that this can be any row. A column that is dropped and created again changes all rows that way, and may
    even get the old field id.
    """
    version, new = before.dataset.version, after.dataset
    if not 0 < new.version - version <= _MAX_TRANSACTIONS:
        return None
    found: frozenset[int] = frozenset()
    for number in range(new.version, version, -1):
        transaction = _transaction(new, number)
        if transaction is _COMPACTION:
            continue
        if transaction is None or not _marks_changed_rows(transaction.operation, after.read, rewritten=rewritten):
            return None
        if isinstance(transaction.operation, LanceOperation.Update):
            found |= _written_in_place(transaction.operation, before, after.read)
            if not found <= after.fragments.keys():
                return None  # their rows may be in any fragment
    return found


def _written_in_place(update: Any, before: _Side, read: frozenset[int]) -> frozenset[int]:
    """Return the fragments in which an update replaced columns; pylance's ``update_columns`` does not mark the rows.

    Writers need not list the modified fields, so files are compared, too, if the older version has the fragment.
    """
    named = not read.isdisjoint(update.fields_modified)
    return frozenset(
        fragment.id
        for fragment in update.updated_fragments
        if named or (fragment.id in before.fragments and before.files(fragment.id) != _files(fragment, before.read))
    )


def _transaction(dataset: LanceDataset, version: int) -> Any:
    """Return the transaction of a version; none if it cannot be read."""
    try:
        # On a copy, because the method borrows mutably, and threads of a refresh may share the dataset.
        return copy(dataset).read_transaction(version)
    except TypeError as error:
        return _COMPACTION if "RewrittenIndex" in str(error) else None
    except Exception:  # noqa: BLE001 - any failure to read it means that the change is unknown
        return None


def _marks_changed_rows(operation: Any, read: frozenset[int], *, rewritten: bool) -> bool:
    kind = type(operation).__name__
    if kind in ("Merge", "Project"):
        kept = frozenset().union(*(field_ids_of(each) for each in operation.schema.fields()))
        return read <= kept and not (rewritten and kind == "Merge")
    return kind not in _SILENT
