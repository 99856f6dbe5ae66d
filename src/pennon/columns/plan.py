"""Planning of backfills: the rows of each fragment to compute, and the bytes to read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pennon.columns.file_signatures import input_signature
from pennon.columns.row_spans import Mask, Spans, count_rows, numbers_of, spans_of
from pennon.columns.row_states import RowStatus
from pennon.columns.state import FragmentState
from pennon.tables.lance_errors import typed_errors
from pennon.tables.query.scan import check_filter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lance import LanceDataset
    from lance.fragment import LanceFragment

    from pennon.columns.feature_columns import FeatureColumn

_OFFSET_BITS = np.uint64(0xFFFFFFFF)


class BackfillMode(StrEnum):
    """Which rows a backfill computes."""

    #: Rows without a value, with changed inputs, or computed by another function.
    DEFAULT = "default"
    ONLY_MISSING = "only_missing"
    ONLY_FAILED = "only_failed"
    ALL = "all"


def _wanted(*states: RowStatus) -> Mask:
    return np.isin(np.arange(len(RowStatus)), states)


#: For each mode, a mask over the values of ``RowStatus``.
_WANTED = {
    BackfillMode.DEFAULT: _wanted(RowStatus.MISSING, RowStatus.STALE, RowStatus.OUTDATED),
    BackfillMode.ONLY_MISSING: _wanted(RowStatus.MISSING),
    BackfillMode.ONLY_FAILED: _wanted(RowStatus.FAILED),
    BackfillMode.ALL: _wanted(*RowStatus),
}


@dataclass(frozen=True)
class WorkUnit:
    """The work on one fragment."""

    fragment_id: int
    #: The number of rows including deleted ones.
    rows: int
    #: The rows to compute, without deleted ones.
    todo: Spans
    count: int
    #: Whether rows outside of ``todo`` have values to keep.
    keeps_values: bool
    has_deletions: bool
    signature: str
    input_signature: str
    bytes: int

    def within(self, start: int, stop: int) -> WorkUnit:
        """Return the work on a range of the fragment's rows."""
        todo = tuple((max(first, start), min(last, stop)) for first, last in self.todo if first < stop and last > start)
        count = count_rows(todo)
        return replace(self, todo=todo, count=count, bytes=self.bytes * count // max(self.count, 1))


@dataclass(frozen=True)
class ColumnPlan:
    """The work on all fragments of one version."""

    version: int
    units: tuple[WorkUnit, ...]
    granularity: str

    @property
    def rows(self) -> int:
        """The number of rows to compute."""
        return sum(unit.count for unit in self.units)

    @property
    def bytes(self) -> int:
        """The number of bytes to read."""
        return sum(unit.bytes for unit in self.units)


@dataclass(frozen=True)
class ColumnSummary:
    """The number of rows of a column in each state."""

    rows: int
    computed: int
    failed: int
    stale: int
    missing: int
    granularity: str
    version: int

    @property
    def incomplete(self) -> int:
        """The number of rows without a current value."""
        return self.missing + self.stale


def granularity_of(dataset: LanceDataset) -> str:
    """Return the granularity of staleness: "row" with stable row ids, otherwise "fragment"."""
    return "row" if dataset.has_stable_row_ids else "fragment"


def plan_backfill(
    dataset: LanceDataset,
    states: list[FragmentState],
    column: FeatureColumn,
    *,
    mode: BackfillMode,
    where: str | None = None,
    before: int | None = None,
    max_fragments: int | None = None,
) -> ColumnPlan:
    """Plan a backfill; ``before`` excludes rows whose value a later version wrote."""
    units: list[WorkUnit] = []
    for state in states:
        if max_fragments is not None and len(units) >= max_fragments:
            break
        unit = _plan_fragment(dataset, state, column, mode, where, before)
        if unit is not None:
            units.append(unit)
    return ColumnPlan(dataset.version, tuple(units), granularity_of(dataset))


def unchanged_since(
    earlier: LanceDataset, dataset: LanceDataset, states: list[FragmentState], column: FeatureColumn
) -> list[FragmentState]:
    """Return the fragments of a dataset that an earlier version also has, with the same inputs."""
    inputs = {fragment.fragment_id: input_signature(fragment.metadata, column) for fragment in earlier.get_fragments()}

    def is_same(state: FragmentState) -> bool:
        metadata = _fragment(dataset, state.fragment_id).metadata
        return inputs.get(state.fragment_id) == input_signature(metadata, column)

    return [state for state in states if is_same(state)]


def summarize_column(dataset: LanceDataset, states: list[FragmentState], column: FeatureColumn) -> ColumnSummary:
    """Count the rows of a column by their state."""
    counts = np.zeros(len(RowStatus), dtype=np.int64)
    for state in states:
        status, _ = state.row_states.status(state.rows, column.digest)
        if state.deleted:
            status = status[live_rows(dataset, state.fragment_id, state.rows)]
        counts += [np.count_nonzero(status == np.uint8(number)) for number in RowStatus]
    return ColumnSummary(
        rows=int(counts.sum()),
        computed=int(counts[RowStatus.COMPUTED]),
        failed=int(counts[RowStatus.FAILED]),
        stale=int(counts[RowStatus.STALE] + counts[RowStatus.OUTDATED]),
        missing=int(counts[RowStatus.MISSING]),
        granularity=granularity_of(dataset),
        version=dataset.version,
    )


class FailedRow(NamedTuple):
    """A row on which a function failed."""

    fragment_id: int
    offset: int
    #: None if row ids are not stable.
    row_id: int | None
    #: The version of the commit that recorded the failure.
    version: int


def failed_rows(dataset: LanceDataset, states: list[FragmentState], column: FeatureColumn) -> Iterator[FailedRow]:
    """Yield the rows on which a column's function failed."""
    for state in states:
        status, committed_at = state.row_states.status(state.rows, column.digest)
        failed = status == RowStatus.FAILED
        if state.deleted and failed.any():
            failed &= live_rows(dataset, state.fragment_id, state.rows)
        ids = numbers_of(state.row_states.row_ids)
        for offset in np.flatnonzero(failed).tolist():
            row_id = int(ids[offset]) if len(ids) else None
            yield FailedRow(state.fragment_id, offset, row_id, int(committed_at[offset]))


def live_rows(dataset: LanceDataset, fragment_id: int, rows: int, where: str | None = None) -> Mask:
    """Return a mask of the live rows of a fragment, or of those that satisfy a predicate."""
    with typed_errors():
        scanner = dataset.scanner(
            fragments=[_fragment(dataset, fragment_id)], columns=[], filter=where, with_row_address=True
        )
        if where is not None:
            check_filter(scanner)
        addresses: NDArray[np.uint64] = scanner.to_table().column("_rowaddr").to_numpy()
    mask = np.zeros(rows, dtype=np.bool_)
    mask[(addresses & _OFFSET_BITS).astype(np.int64)] = True
    return mask


def _fragment(dataset: LanceDataset, fragment_id: int) -> LanceFragment:
    fragment = dataset.get_fragment(fragment_id)
    assert fragment is not None  # noqa: S101 (the states are of this dataset)
    return fragment


def _plan_fragment(
    dataset: LanceDataset,
    state: FragmentState,
    column: FeatureColumn,
    mode: BackfillMode,
    where: str | None,
    before: int | None,
) -> WorkUnit | None:
    status, committed_at = state.row_states.status(state.rows, column.digest)
    wanted = _WANTED[mode].take(status)
    if before is not None:
        wanted &= committed_at <= before
    if not wanted.any():
        return None
    if state.deleted or where is not None:
        wanted &= live_rows(dataset, state.fragment_id, state.rows, where)
    count = int(np.count_nonzero(wanted))
    if count == 0:
        return None
    metadata = _fragment(dataset, state.fragment_id).metadata
    others = state.rows - state.deleted - count
    has_values = any(output.field_ids.intersection(file.fields) for output in column.outputs for file in metadata.files)
    keeps_values = others > 0 and has_values
    read = column.input_field_ids.union(*(output.field_ids for output in column.outputs if keeps_values))
    size = sum(file.file_size_bytes or 0 for file in metadata.files if read.intersection(file.fields))
    return WorkUnit(
        fragment_id=state.fragment_id,
        rows=state.rows,
        todo=spans_of(wanted),
        count=count,
        keeps_values=keeps_values,
        has_deletions=state.deleted > 0,
        signature=state.signature,
        input_signature=input_signature(metadata, column),
        bytes=size * count // max(state.rows, 1),
    )
