"""The stored states of feature columns, and their transfer to rows that moved to other fragments.

The files of a fragment identify its values: as long as a fragment has the same files for a column and for its inputs,
the recorded states of its rows are valid, whatever else was committed. An update moves its rows to a new fragment, a
compaction moves all rows. Stable row ids identify rows that moved: a row that was last written after it was computed,
or after it was last confirmed, is stale.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pennon.catalog import column_states
from pennon.catalog.column_states import ColumnStateRecord
from pennon.columns.file_signatures import input_signature, signature
from pennon.columns.row_spans import Mask, as_spans, mask_of, numbers_of, runs_of, spans_of
from pennon.columns.row_states import NO_ROW, RowStates, Segment
from pennon.columns.write_effects import apply_column_writes
from pennon.commits.history import stored_manifest
from pennon.tables.lance_errors import typed_errors

if TYPE_CHECKING:
    from lance import LanceDataset
    from lance.fragment import FragmentMetadata

    from pennon.catalog import Connection, Database
    from pennon.catalog.tables import Table
    from pennon.columns.feature_columns import FeatureColumn
    from pennon.commits.history import History
    from pennon.core.arrow_typing import AnyChunkedArray, AnyScalar
    from pennon.storage.root import StorageRoot

#: The suffix of a record's signature that describes the rows left in a fragment; no fragment matches it.
_ROWS_LEFT = "-left"


@dataclass
class FragmentState:
    """The state of a column in one fragment of a dataset."""

    fragment_id: int
    rows: int
    deleted: int
    signature: str
    row_states: RowStates
    #: Whether the states were transferred from other fragments.
    moved: bool = False


class ColumnStateStore:
    """Reads and writes the states of feature columns."""

    def __init__(self, database: Database, storage_root: StorageRoot, history: History) -> None:
        self._database = database
        self._storage_root = storage_root
        self._history = history

    def manifest_tag(self, table: Table, branch: str, version: int) -> str:
        """Return the tag of a version's manifest if Pennon does not manage the table; otherwise empty."""
        found = None if table.managed else stored_manifest(self._storage_root.folder(table.location), branch, version)
        return (found.e_tag or "") if found is not None else ""

    def _of_table(self, table: Table, records: list[ColumnStateRecord]) -> list[ColumnStateRecord]:
        """Return the records of this table, without those of an unmanaged table that was dropped and recreated."""
        if table.managed:
            return records
        versions = {(record.branch, record.version) for record in records}
        tags = {version: self.manifest_tag(table, *version) for version in versions}
        recorded = [(record, RowStates.decode(record.state).manifest) for record in records]
        return [record for record, tag in recorded if tag and tag == tags[record.branch, record.version]]

    def read(self, dataset: LanceDataset, table: Table, branch: str, column: FeatureColumn) -> list[FragmentState]:
        """Return the state of a column in each fragment of a dataset."""
        output = column.output
        records = self._records(table, column)
        # Branches share files, so the records of other branches are valid; the branch's own record comes first.
        by_signature = {
            record.signature: record for record in sorted(records, key=lambda record: record.branch == branch)
        }
        states, unknown = [], []
        for fragment in dataset.get_fragments():
            metadata = fragment.metadata
            sign = signature(metadata, column, output)
            found = by_signature.get(sign)
            row_states = RowStates.decode(found.state) if found else RowStates()
            state = FragmentState(metadata.id, metadata.physical_rows, fragment.num_deletions, sign, row_states)
            states.append(state)
            # A restore may bring back rows that were already deleted at the time of the record, which lacks them.
            if found is None or row_states.deleted > fragment.num_deletions:
                unknown.append(state)
        if unknown and dataset.has_stable_row_ids:
            earlier = self._earlier_states(dataset, table, branch, column, self._of_table(table, records))
            _transfer(dataset, column, unknown, earlier)
        return states

    def confirm(
        self, dataset: LanceDataset, table: Table, branch: str, column: FeatureColumn, states: list[FragmentState]
    ) -> None:
        """Record the states of rows that moved, so that they are not determined again.

        Also record the rows left in fragments that have lost some: their values are valid, even if later commits have
        marked them as written.
        """
        # Without fragments with stale rows: older branches would use the record, and the next commit records it anyway.
        found = [
            state for state in states if state.moved and state.row_states.segments and not state.row_states.has_stale
        ]
        if dataset.has_stable_row_ids:
            found += self._rows_left(dataset, table, column, [state for state in states if _has_lost_rows(state)])
        if not found:
            return

        tag = self.manifest_tag(table, branch, dataset.version)

        def work(connection: Connection) -> None:
            for state in found:
                inputs = input_signature(_fragment_metadata(dataset, state.fragment_id), column)
                confirmed = replace(state.row_states.confirmed_at(dataset.version), inputs=inputs, manifest=tag)
                record = ColumnStateRecord(
                    table.id,
                    column.output.key,
                    state.signature,
                    branch,
                    state.fragment_id,
                    dataset.version,
                    confirmed.encode(),
                )
                column_states.save(connection, record)

        self._database.write(work)

    def _rows_left(
        self, dataset: LanceDataset, table: Table, column: FeatureColumn, states: list[FragmentState]
    ) -> list[FragmentState]:
        """Return the states of fragments without the rows they have lost, unless they are already recorded.

        They are recorded in addition to the states of all rows, which identify rows that a restore brings back or an
        update moves.
        """
        recorded = {record.signature: record.state for record in self._records(table, column)} if states else {}
        found = []
        for state in states:
            key = f"{state.signature}{_ROWS_LEFT}"
            if key not in recorded or RowStates.decode(recorded[key]).deleted != state.deleted:
                row_ids, _ = read_row_versions(dataset, state.fragment_id)
                left = replace(state.row_states, row_ids=as_spans(runs_of(row_ids)))
                found.append(replace(state, signature=key, row_states=left))
        return found

    def _records(self, table: Table, column: FeatureColumn) -> list[ColumnStateRecord]:
        return self._database.read(lambda connection: column_states.of_column(connection, table.id, column.output.key))

    def _earlier_states(
        self, dataset: LanceDataset, table: Table, branch: str, column: FeatureColumn, records: list[ColumnStateRecord]
    ) -> list[tuple[int, RowStates]]:
        """Return the recorded states of fragments: of the ancestors of a branch until it began, then of the branch."""

        def recorded_by(name: str, until: int) -> list[tuple[int, RowStates]]:
            return [
                (record.fragment_id, RowStates.decode(record.state).until(until))
                for record in records
                if record.branch == name
            ]

        until = dataset.version
        history: list[tuple[str, int, int]] = []  # branches, each with its versions: after the first, up to the second
        with typed_errors():
            branches = dataset.branches.list() if branch else {}
        while branch in branches:
            began = branches[branch]["parent_version"]
            history.insert(0, (branch, began, until))
            until, branch = min(until, began), branches[branch]["parent_branch"] or ""
        history.insert(0, (branch, 0, until))
        found = [each for name, _, until in history for each in recorded_by(name, until)]
        oldest = min((segment.valid_at for _, states in found for segment in states.segments), default=dataset.version)
        writes = [
            write
            for name, began, until in history
            for write in self._history.column_writes(table, name, max(oldest, began), until)
        ]
        return apply_column_writes(found, writes, column.input_field_ids | column.output.field_ids)


def _transfer(
    dataset: LanceDataset, column: FeatureColumn, unknown: list[FragmentState], earlier: list[tuple[int, RowStates]]
) -> None:
    """Transfer the earlier states of rows to the fragments they have moved to."""
    for state in unknown if earlier else ():
        row_ids, written_at = read_row_versions(dataset, state.fragment_id)
        inputs = input_signature(_fragment_metadata(dataset, state.fragment_id), column)
        sources = [
            # Inputs that were written in place may have changed, which Lance does not always mark in their rows.
            states
            if fragment_id != state.fragment_id or states.inputs in ("", inputs)
            else states.all_stale(state.rows)
            for fragment_id, states in earlier
            if states.may_contain(row_ids)
        ]
        if sources:
            state.row_states, state.moved = _StatesByRowId(sources).find(row_ids, written_at), True


def _has_lost_rows(state: FragmentState) -> bool:
    """Return whether rows of a fragment were deleted, or moved by an update, since its states were recorded."""
    return not state.moved and bool(state.row_states.segments) and state.deleted != state.row_states.deleted


def _fragment_metadata(dataset: LanceDataset, fragment_id: int) -> FragmentMetadata:
    fragment = dataset.get_fragment(fragment_id)
    assert fragment is not None  # noqa: S101 (of the same dataset)
    return fragment.metadata


def read_row_versions(dataset: LanceDataset, fragment_id: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the row id of each row of a fragment, and the version of its last write; a deleted row has ``NO_ROW``."""
    fragment = dataset.get_fragment(fragment_id)
    assert fragment is not None  # noqa: S101 (of the same dataset)
    scanner = dataset.scanner(
        fragments=[fragment], columns=["_row_last_updated_at_version"], with_row_id=True, include_deleted_rows=True
    )
    rows = scanner.to_table()
    return row_ids_of(rows), _without_nulls(rows.column("_row_last_updated_at_version"))


def row_ids_of(rows: pa.Table) -> NDArray[np.int64]:
    """Return the row ids of a scan; a deleted row has ``NO_ROW``."""
    column = rows.column("_rowid")
    if not column.null_count:
        return np.asarray(column).astype(np.int64)
    numbers = _without_nulls(column)
    numbers[column.is_null().to_numpy()] = NO_ROW
    return numbers


def _without_nulls(column: AnyChunkedArray) -> NDArray[np.int64]:
    numbers: NDArray[np.int64] = column.fill_null(cast("AnyScalar", 0)).to_numpy().astype(np.int64)
    return numbers


class _StatesByRowId:
    """The states of rows in earlier fragments, by row id; the newest entry of a row is the last."""

    def __init__(self, sources: list[RowStates]) -> None:
        segments: list[Segment] = []
        ids, owner, kind = [], [], []
        for states in sources:
            numbers = numbers_of(states.row_ids)
            for segment in states.segments:
                for index, spans in enumerate((segment.done, segment.failed, segment.stale)):
                    rows = numbers[mask_of(spans, len(numbers))] if len(numbers) else numbers
                    rows = rows[rows >= 0]
                    ids.append(rows)
                    owner.append(np.full(len(rows), len(segments), dtype=np.int64))
                    kind.append(np.full(len(rows), index, dtype=np.uint8))
                segments.append(segment)
        self.segments = segments
        all_ids = np.concatenate(ids) if ids else np.empty(0, dtype=np.int64)
        order = np.lexsort((self._committed_at(owner), all_ids)) if len(all_ids) else np.empty(0, dtype=np.int64)
        self.row_ids = all_ids[order]
        self.owner = np.concatenate(owner)[order] if ids else np.empty(0, dtype=np.int64)
        self.kind = np.concatenate(kind)[order] if ids else np.empty(0, dtype=np.uint8)

    def _committed_at(self, owner: list[NDArray[np.int64]]) -> NDArray[np.int64]:
        return np.array([segment.committed_at for segment in self.segments], dtype=np.int64)[np.concatenate(owner)]

    def _find_entries(
        self, row_ids: NDArray[np.int64], written_at: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], Mask]:
        """Return the entry of each row, and which rows have one.

        The last entry of a row is the newest. The commit of a value wrote its row: a row that was last written before
        that commit was restored, and an older entry is valid for it.
        """
        committed_at = np.array([segment.committed_at for segment in self.segments], dtype=np.int64)[self.owner]
        at = np.searchsorted(self.row_ids, row_ids, side="right") - 1
        has_entry = (at >= 0) & (row_ids >= 0)
        while True:
            has_entry[has_entry] = self.row_ids[at[has_entry]] == row_ids[has_entry]
            is_later = has_entry & (committed_at[at] > written_at)
            if not is_later.any():
                return at, has_entry
            at[is_later] -= 1
            has_entry &= at >= 0

    def find(self, row_ids: NDArray[np.int64], written_at: NDArray[np.int64]) -> RowStates:
        """Return the states of the rows of a new fragment."""
        if not len(self.row_ids):
            return RowStates()
        at, has_entry = self._find_entries(row_ids, written_at)
        owner = np.where(has_entry, self.owner[at], -1)
        kind = np.where(has_entry, self.kind[at], 0)
        segments = []
        for index in np.unique(owner[owner >= 0]):
            segment = self.segments[index]
            in_segment = owner == index
            is_valid = in_segment & (written_at <= segment.valid_at)
            segments.append(
                replace(
                    segment,
                    done=spans_of(is_valid & (kind == 0)),
                    failed=spans_of(is_valid & (kind == 1)),
                    stale=spans_of((in_segment & ~is_valid) | (is_valid & (kind == 2))),
                )
            )
        kept = tuple(segment for segment in segments if segment.done or segment.failed or segment.stale)
        return RowStates(kept, tuple((first, length) for first, length in runs_of(row_ids)))
