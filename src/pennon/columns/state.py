"""The state of each row of a feature column: what was computed, failed, or went stale, and by which function.

Values of a fragment are known by the files that hold them: as long as a fragment has the same files for a column and
for its inputs, what was recorded of its rows is true, whatever else was committed. An update moves its rows to a new
fragment; a compaction moves all of them. Rows that moved are recognised by their stable row ids: one that was last
written after it was computed, or after it was last seen unchanged, is stale.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pennon.catalog import column_states
from pennon.catalog.column_states import Fill
from pennon.columns.file_signatures import input_signature, signature
from pennon.columns.row_spans import NOTHING, Mask, Spans, as_spans, mask_of, numbers_of, runs_of, spans_of
from pennon.columns.write_effects import after_writes
from pennon.commits.history import stored_manifest
from pennon.tables.lance_errors import typed_errors

if TYPE_CHECKING:
    from pennon.catalog import Connection, Database
    from pennon.catalog.tables import Table
    from pennon.columns.feature_columns import FeatureColumn
    from pennon.commits.history import History
    from pennon.storage.root import StorageRoot

#: Stands for the row id of a deleted row.
NO_ROW = -1
#: Ends the signature of a record that tells of the rows that a fragment has left: no fragment is found by it.
_ROWS_LEFT = "-left"


class Status(IntEnum):
    """What is known of the value of one row."""

    MISSING = 0
    COMPUTED = 1
    FAILED = 2
    #: An input has changed since it was computed.
    STALE = 3
    #: Another function computed it.
    OUTDATED = 4


@dataclass(frozen=True)
class Segment:
    """Rows of a fragment that one function computed, up to one version."""

    digest: str
    #: The version whose commit brought the values.
    filled_at: int
    #: The last version of which it is known that their inputs had not changed.
    valid_at: int
    done: Spans = NOTHING
    failed: Spans = NOTHING
    #: Computed once, from inputs that have changed since.
    stale: Spans = NOTHING


@dataclass(frozen=True)
class FragmentFill:
    """What is known of a column in one fragment."""

    segments: tuple[Segment, ...] = ()
    #: The row ids, in runs; empty where they are not stable.
    row_ids: tuple[tuple[int, int], ...] = ()
    #: What the inputs are known by.
    inputs: str = ""
    #: The tag of the manifest it was recorded with, where Pennon does not manage the table.
    manifest: str = ""

    def encode(self) -> bytes:
        """Return it as the catalog stores it."""
        segments = [[s.digest, s.filled_at, s.valid_at, s.done, s.failed, s.stale] for s in self.segments]
        stored = {"segments": segments, "row_ids": self.row_ids, "inputs": self.inputs, "manifest": self.manifest}
        return zlib.compress(json.dumps(stored).encode())

    @classmethod
    def decode(cls, state: bytes) -> FragmentFill:
        """Return what the catalog stored."""
        stored = json.loads(zlib.decompress(state))
        segments = tuple(
            Segment(digest, filled_at, valid_at, as_spans(done), as_spans(failed), as_spans(stale))
            for digest, filled_at, valid_at, done, failed, stale in stored["segments"]
        )
        return cls(segments, as_spans(stored["row_ids"]), stored.get("inputs", ""), stored.get("manifest", ""))

    def status(self, rows: int, digest: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Return the status of each row for a function, and the version that brought its value (0: none)."""
        status = np.zeros(rows, dtype=np.uint8)
        filled_at = np.zeros(rows, dtype=np.int64)
        for segment in self.segments:
            same = segment.digest == digest
            for spans, meaning in (
                (segment.done, Status.COMPUTED if same else Status.OUTDATED),
                (segment.failed, Status.FAILED if same else Status.OUTDATED),
                (segment.stale, Status.STALE),
            ):
                for start, stop in spans:
                    status[start:stop] = meaning
                    filled_at[start:stop] = segment.filled_at
        return status, filled_at

    def may_hold(self, row_ids: NDArray[np.int64]) -> bool:
        """Tell whether rows with some of these ids may be among its rows."""
        live = row_ids[row_ids >= 0]
        if not len(live):
            return False
        first, last = live.min(), live.max()
        return any(start >= 0 and start <= last and start + length > first for start, length in self.row_ids)

    def until(self, version: int) -> FragmentFill:
        """Return what of it was known at a version."""
        then = (replace(old, valid_at=min(old.valid_at, version)) for old in self.segments if old.filled_at <= version)
        return replace(self, segments=tuple(then))

    def with_rows(
        self, segment: Segment, rows: int, row_ids: Sequence[Sequence[int]], *, confirms: bool = True
    ) -> FragmentFill:
        """Return it after a segment's rows were computed, whatever was known of them before.

        The commit that brings them marks all of the fragment as written. It ``confirms`` the other rows when it is
        known that they were unchanged until then.
        """
        new = mask_of(segment.done, rows) | mask_of(segment.failed, rows)
        kept = [_without(old, new, segment.filled_at if confirms else 0) for old in self.segments]
        segments = (*(old for old in kept if old.done or old.failed or old.stale), segment)
        return FragmentFill(segments, as_spans(row_ids))

    def with_written(
        self, version: int, rows: int, row_ids: Sequence[Sequence[int]], changed: Spans = NOTHING
    ) -> FragmentFill:
        """Return it after a commit that marks all of the fragment as written, but changed the inputs of some rows."""
        inputs = mask_of(changed, rows)
        kept = []
        for segment in self.segments:
            computed = mask_of(segment.done, rows) | mask_of(segment.failed, rows)
            rest = _without(segment, inputs & computed, version)
            kept.append(replace(rest, stale=spans_of(mask_of(rest.stale, rows) | (inputs & computed))))
        return FragmentFill(tuple(kept), as_spans(row_ids))

    def gone_stale(self, rows: int) -> FragmentFill:
        """Return it when the inputs of any of its rows may be others."""
        return self.with_written(0, rows, self.row_ids, ((0, rows),))

    @property
    def rows(self) -> int:
        """How many rows the fragment has, deleted ones included; 0 where row ids are not stable."""
        return sum(length for _, length in self.row_ids)

    @property
    def deleted(self) -> int:
        """How many of its rows are deleted."""
        return sum(length for first, length in self.row_ids if first == NO_ROW)

    @property
    def has_stale(self) -> bool:
        """Whether rows were computed from inputs that have changed since."""
        return any(segment.stale for segment in self.segments)

    def stale_before(self, version: int) -> FragmentFill:
        """Return it when the inputs of rows that were last known to be unchanged before a version may be others."""
        old = replace(self, segments=tuple(each for each in self.segments if each.valid_at < version))
        rest = tuple(each for each in self.segments if each.valid_at >= version)
        return replace(self, segments=(*old.gone_stale(self.rows).segments, *rest)) if old.segments else self

    def confirmed_at(self, version: int) -> FragmentFill:
        """Return it when it is known that no row had changed until a version."""
        kept = (replace(each, valid_at=max(each.valid_at, version)) for each in self.segments)
        return replace(self, segments=tuple(kept))


def _without(segment: Segment, rows: Mask, valid_at: int) -> Segment:
    def rest(spans: Spans) -> Spans:
        return spans_of(mask_of(spans, len(rows)) & ~rows) if spans else NOTHING

    return replace(
        segment,
        valid_at=max(segment.valid_at, valid_at),
        done=rest(segment.done),
        failed=rest(segment.failed),
        stale=rest(segment.stale),
    )


@dataclass
class FragmentState:
    """A fragment of a dataset, and what is known of a column there."""

    fragment_id: int
    rows: int
    deleted: int
    signature: str
    fill: FragmentFill
    #: Whether it was found out from what is known of other fragments.
    moved: bool = False


class ColumnStateStore:
    """Reads and writes what is known of feature columns."""

    def __init__(self, database: Database, storage_root: StorageRoot, history: History) -> None:
        self._database = database
        self._storage_root = storage_root
        self._history = history

    def manifest_tag(self, table: Table, branch: str, version: int) -> str:
        """Return the tag of a version's manifest, where Pennon does not manage the table; empty where it does."""
        found = None if table.managed else stored_manifest(self._storage_root.folder(table.location), branch, version)
        return (found.e_tag or "") if found is not None else ""

    def _of_table(self, table: Table, known: list[Fill]) -> list[Fill]:
        """Return the records of this table, and not of another one of its name that was dropped around Pennon."""
        if table.managed:
            return known
        positions = {(fill.branch, fill.version) for fill in known}
        tags = {place: self.manifest_tag(table, *place) for place in positions}
        recorded = [(fill, FragmentFill.decode(fill.state).manifest) for fill in known]
        return [fill for fill, tag in recorded if tag and tag == tags[fill.branch, fill.version]]

    def read(self, dataset: Any, table: Table, branch: str, column: FeatureColumn) -> list[FragmentState]:
        """Return what is known of a column in each fragment of a dataset."""
        output = column.output
        known = self._known(table, column)
        # Branches share files: what another one knows of them is true, but the branch's own word goes first.
        by_signature = {fill.signature: fill for fill in sorted(known, key=lambda fill: fill.branch == branch)}
        states, strangers = [], []
        for fragment in dataset.get_fragments():
            metadata = fragment.metadata
            sign = signature(metadata, column, output)
            found = by_signature.get(sign)
            fill = FragmentFill.decode(found.state) if found else FragmentFill()
            state = FragmentState(metadata.id, metadata.physical_rows, fragment.num_deletions, sign, fill)
            states.append(state)
            # A restore may bring back rows that were deleted when the record was made, and that it knows nothing of.
            if found is None or fill.deleted > fragment.num_deletions:
                strangers.append(state)
        if strangers and dataset.has_stable_row_ids:
            former = self._former_fills(dataset, table, branch, column, self._of_table(table, known))
            _carry_over(dataset, column, strangers, former)
        return states

    def confirm(
        self, dataset: Any, table: Table, branch: str, column: FeatureColumn, states: list[FragmentState]
    ) -> None:
        """Record what was found out about rows that moved, so that it need not be found out again.

        And which rows are left in fragments that have lost some: these are as they were computed, whatever commits have
        marked them as written since.
        """
        # Not where rows went stale: branches that began before would hear of it, and the next commit tells it anyway.
        found = [state for state in states if state.moved and state.fill.segments and not state.fill.has_stale]
        if dataset.has_stable_row_ids:
            found += self._rows_left(dataset, table, column, [state for state in states if _has_lost_rows(state)])
        if not found:
            return

        tag = self.manifest_tag(table, branch, dataset.version)

        def work(connection: Connection) -> None:
            for state in found:
                inputs = input_signature(dataset.get_fragment(state.fragment_id).metadata, column)
                fill = replace(state.fill.confirmed_at(dataset.version), inputs=inputs, manifest=tag)
                place = (branch, state.fragment_id, dataset.version)
                column_states.save(
                    connection, Fill(table.id, column.output.key, state.signature, *place, fill.encode())
                )

        self._database.write(work)

    def _rows_left(
        self, dataset: Any, table: Table, column: FeatureColumn, states: list[FragmentState]
    ) -> list[FragmentState]:
        """Return what is known of fragments without the rows that they have lost, unless it was recorded before.

        It is recorded beside what is known of all their rows: a restore brings back those that were deleted, and those
        that an update moved are recognised by it.
        """
        known = {fill.signature: fill.state for fill in self._known(table, column)} if states else {}
        found = []
        for state in states:
            key = f"{state.signature}{_ROWS_LEFT}"
            if key not in known or FragmentFill.decode(known[key]).deleted != state.deleted:
                row_ids, _ = read_row_versions(dataset, state.fragment_id)
                fill = replace(state.fill, row_ids=as_spans(runs_of(row_ids)))
                found.append(replace(state, signature=key, fill=fill))
        return found

    def _known(self, table: Table, column: FeatureColumn) -> list[Fill]:
        return self._database.read(lambda connection: column_states.of_column(connection, table.id, column.output.key))

    def _former_fills(
        self, dataset: Any, table: Table, branch: str, column: FeatureColumn, known: list[Fill]
    ) -> list[tuple[int, FragmentFill]]:
        """Return what a branch knows of its fragments, after what those it comes from knew of theirs when it began."""

        def known_to(name: str, until: int) -> list[tuple[int, FragmentFill]]:
            fills = [(fill.fragment_id, FragmentFill.decode(fill.state)) for fill in known if fill.branch == name]
            return [(fragment_id, fill.until(until)) for fragment_id, fill in fills]

        until = dataset.version
        parts: list[tuple[str, int, int]] = []  # of the history: a branch, and after and up to which versions
        with typed_errors():
            branches = dataset.branches.list() if branch else {}
        while branch in branches:
            began = branches[branch]["parent_version"]
            parts.insert(0, (branch, began, until))
            until, branch = min(until, began), branches[branch]["parent_branch"] or ""
        parts.insert(0, (branch, 0, until))
        found = [each for name, _, until in parts for each in known_to(name, until)]
        oldest = min((segment.valid_at for _, fill in found for segment in fill.segments), default=dataset.version)
        writes = [
            write
            for name, began, until in parts
            for write in self._history.column_writes(table, name, max(oldest, began), until)
        ]
        return after_writes(found, writes, column.input_leaves | column.output.leaves)


def _carry_over(
    dataset: Any, column: FeatureColumn, strangers: list[FragmentState], former: list[tuple[int, FragmentFill]]
) -> None:
    """Give fragments that are new what is known of those of their rows that were elsewhere before."""
    for state in strangers if former else ():
        row_ids, written_at = read_row_versions(dataset, state.fragment_id)
        inputs = input_signature(dataset.get_fragment(state.fragment_id).metadata, column)
        sources = [
            # Inputs that were written in place may be others, which Lance does not always say of their rows.
            fill if fragment_id != state.fragment_id or fill.inputs in ("", inputs) else fill.gone_stale(state.rows)
            for fragment_id, fill in former
            if fill.may_hold(row_ids)
        ]
        if sources:
            state.fill, state.moved = _Former(sources).fill_of(row_ids, written_at), True


def _has_lost_rows(state: FragmentState) -> bool:
    """Tell whether rows were deleted, or moved by an update, since what is known of a fragment was recorded."""
    return not state.moved and bool(state.fill.segments) and state.deleted != state.fill.deleted


def read_row_versions(dataset: Any, fragment_id: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the row id of each row of a fragment, and the version it was last written at; deleted rows have none."""
    scanner = dataset.scanner(
        fragments=[dataset.get_fragment(fragment_id)],
        columns=["_row_last_updated_at_version"],
        with_row_id=True,
        include_deleted_rows=True,
    )
    rows = scanner.to_table()
    return row_numbers(rows), rows.column("_row_last_updated_at_version").fill_null(0).to_numpy().astype(np.int64)


def row_numbers(rows: pa.Table) -> NDArray[np.int64]:
    """Return the ids of scanned rows; deleted ones have none."""
    column = rows.column("_rowid")
    if not column.null_count:
        return np.asarray(column).astype(np.int64)
    numbers: NDArray[np.int64] = column.fill_null(0).to_numpy().astype(np.int64)
    numbers[column.is_null().to_numpy()] = NO_ROW
    return numbers


class _Former:
    """Rows as they were in other fragments: by their ids, the newest knowledge of each."""

    def __init__(self, fills: list[FragmentFill]) -> None:
        segments: list[Segment] = []
        ids, owner, kind = [], [], []
        for fill in fills:
            numbers = numbers_of(fill.row_ids)
            for segment in fill.segments:
                for which, spans in enumerate((segment.done, segment.failed, segment.stale)):
                    rows = numbers[mask_of(spans, len(numbers))] if len(numbers) else numbers
                    rows = rows[rows >= 0]
                    ids.append(rows)
                    owner.append(np.full(len(rows), len(segments), dtype=np.int64))
                    kind.append(np.full(len(rows), which, dtype=np.uint8))
                segments.append(segment)
        self.segments = segments
        all_ids = np.concatenate(ids) if ids else np.empty(0, dtype=np.int64)
        order = np.lexsort((self._filled_at(owner), all_ids)) if len(all_ids) else np.empty(0, dtype=np.int64)
        self.row_ids = all_ids[order]
        self.owner = np.concatenate(owner)[order] if ids else np.empty(0, dtype=np.int64)
        self.kind = np.concatenate(kind)[order] if ids else np.empty(0, dtype=np.uint8)

    def _filled_at(self, owner: list[NDArray[np.int64]]) -> NDArray[np.int64]:
        return np.array([segment.filled_at for segment in self.segments], dtype=np.int64)[np.concatenate(owner)]

    def _find(self, row_ids: NDArray[np.int64], written_at: NDArray[np.int64]) -> tuple[NDArray[np.int64], Mask]:
        """Return which entry holds for each row, and for which rows there is one.

        The last of several entries of a row is the newest. The commit that brought a value wrote its row: a row that
        was last written before that is from before, as after a restore, and an older entry holds for it.
        """
        filled_at = np.array([segment.filled_at for segment in self.segments], dtype=np.int64)[self.owner]
        at = np.searchsorted(self.row_ids, row_ids, side="right") - 1
        known = (at >= 0) & (row_ids >= 0)
        while True:
            known[known] = self.row_ids[at[known]] == row_ids[known]
            later = known & (filled_at[at] > written_at)
            if not later.any():
                return at, known
            at[later] -= 1
            known &= at >= 0

    def fill_of(self, row_ids: NDArray[np.int64], written_at: NDArray[np.int64]) -> FragmentFill:
        """Return what is known of rows that are in a new fragment now."""
        if not len(self.row_ids):
            return FragmentFill()
        at, known = self._find(row_ids, written_at)
        owner = np.where(known, self.owner[at], -1)
        kind = np.where(known, self.kind[at], 0)
        segments = []
        for index in np.unique(owner[owner >= 0]):
            segment = self.segments[index]
            mine = owner == index
            same = mine & (written_at <= segment.valid_at)
            segments.append(
                replace(
                    segment,
                    done=spans_of(same & (kind == 0)),
                    failed=spans_of(same & (kind == 1)),
                    stale=spans_of((mine & ~same) | (same & (kind == 2))),
                )
            )
        kept = tuple(segment for segment in segments if segment.done or segment.failed or segment.stale)
        return FragmentFill(kept, tuple((a, b) for a, b in runs_of(row_ids)))
