"""What a backfill has to do: which rows of which fragments, and what that costs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pennon.columns.file_signatures import input_signature
from pennon.columns.row_spans import Mask, Spans, numbers_of, spans_of
from pennon.columns.state import FragmentState, Status
from pennon.tables.lance_errors import typed_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pennon.columns.feature_columns import FeatureColumn

_OFFSET_BITS = np.uint64(0xFFFFFFFF)


class Mode(StrEnum):
    """Which rows a backfill computes."""

    #: Those without a value, with changed inputs, or by another function.
    DEFAULT = "default"
    ONLY_MISSING = "only_missing"
    ONLY_FAILED = "only_failed"
    ALL = "all"


def _wanted(*states: Status) -> Mask:
    return np.isin(np.arange(len(Status)), states)


#: For each mode, which of the states it is about, by their numbers.
_WANTED = {
    Mode.DEFAULT: _wanted(Status.MISSING, Status.STALE, Status.OUTDATED),
    Mode.ONLY_MISSING: _wanted(Status.MISSING),
    Mode.ONLY_FAILED: _wanted(Status.FAILED),
    Mode.ALL: _wanted(*Status),
}


@dataclass(frozen=True)
class Unit:
    """The work on one fragment."""

    fragment_id: int
    #: How many rows its files have, deleted ones included.
    rows: int
    #: The rows to compute; deleted ones are not among them.
    todo: Spans
    count: int
    #: Whether rows that are not computed have values to keep.
    keeps: bool
    has_deletions: bool
    signature: str
    input_signature: str
    bytes: int


@dataclass(frozen=True)
class Plan:
    """The work on all fragments of a version."""

    version: int
    units: tuple[Unit, ...]
    granularity: str

    @property
    def rows(self) -> int:
        """How many rows are to be computed."""
        return sum(unit.count for unit in self.units)

    @property
    def bytes(self) -> int:
        """How many bytes are to be read."""
        return sum(unit.bytes for unit in self.units)


@dataclass(frozen=True)
class Summary:
    """How many rows of a column are in which state."""

    rows: int
    computed: int
    failed: int
    stale: int
    missing: int
    granularity: str
    version: int

    @property
    def unfilled(self) -> int:
        """How many rows have no value, or not the one they should have."""
        return self.missing + self.stale

    def as_dict(self) -> dict[str, Any]:
        """Return it as an answer."""
        return asdict(self)


def granularity_of(dataset: Any) -> str:
    """Return how exactly staleness is known: of each row, where rows keep their ids, or of a fragment as a whole."""
    return "row" if dataset.has_stable_row_ids else "fragment"


def plan_units(
    dataset: Any,
    states: list[FragmentState],
    column: FeatureColumn,
    *,
    mode: Mode,
    where: str | None = None,
    before: int | None = None,
    most_fragments: int | None = None,
) -> Plan:
    """Plan a backfill; of rows that have a value, ``before`` leaves out those that came with a later version."""
    units: list[Unit] = []
    for state in states:
        if most_fragments is not None and len(units) >= most_fragments:
            break
        unit = _plan_fragment(dataset, state, column, mode, where, before)
        if unit is not None:
            units.append(unit)
    return Plan(dataset.version, tuple(units), granularity_of(dataset))


def known_to(earlier: Any, dataset: Any, states: list[FragmentState], column: FeatureColumn) -> list[FragmentState]:
    """Return those of a dataset's fragments that an earlier version has, too, with the same inputs."""
    then = {fragment.fragment_id: input_signature(fragment.metadata, column) for fragment in earlier.get_fragments()}

    def is_same(state: FragmentState) -> bool:
        metadata = dataset.get_fragment(state.fragment_id).metadata
        return then.get(state.fragment_id) == input_signature(metadata, column)

    return [state for state in states if is_same(state)]


def summarise(dataset: Any, states: list[FragmentState], column: FeatureColumn) -> Summary:
    """Count the rows of a column by what is known of them."""
    counts = np.zeros(len(Status), dtype=np.int64)
    for state in states:
        status, _ = state.fill.status(state.rows, column.digest)
        if state.deleted:
            status = status[live_rows(dataset, state.fragment_id, state.rows)]
        counts += [np.count_nonzero(status == np.uint8(number)) for number in Status]
    return Summary(
        rows=int(counts.sum()),
        computed=int(counts[Status.COMPUTED]),
        failed=int(counts[Status.FAILED]),
        stale=int(counts[Status.STALE] + counts[Status.OUTDATED]),
        missing=int(counts[Status.MISSING]),
        granularity=granularity_of(dataset),
        version=dataset.version,
    )


class FailedRow(NamedTuple):
    """A row on which a function failed."""

    fragment_id: int
    offset: int
    #: None where row ids are not stable.
    row_id: int | None
    #: The version whose commit left it without a value.
    version: int


def failed_rows(dataset: Any, states: list[FragmentState], column: FeatureColumn) -> Iterator[FailedRow]:
    """Return the rows on which a column's function failed."""
    for state in states:
        status, filled_at = state.fill.status(state.rows, column.digest)
        failed = status == Status.FAILED
        if state.deleted and failed.any():
            failed &= live_rows(dataset, state.fragment_id, state.rows)
        ids = numbers_of(state.fill.row_ids)
        for offset in np.flatnonzero(failed).tolist():
            row_id = int(ids[offset]) if len(ids) else None
            yield FailedRow(state.fragment_id, offset, row_id, int(filled_at[offset]))


def live_rows(dataset: Any, fragment_id: int, rows: int, where: str | None = None) -> Mask:
    """Return which rows of a fragment are not deleted, or of those, where a predicate holds."""
    with typed_errors():
        scanner = dataset.scanner(
            fragments=[dataset.get_fragment(fragment_id)], columns=[], filter=where, with_row_address=True
        )
        addresses: NDArray[np.uint64] = scanner.to_table().column("_rowaddr").to_numpy()
    mask = np.zeros(rows, dtype=np.bool_)
    mask[(addresses & _OFFSET_BITS).astype(np.int64)] = True
    return mask


def _plan_fragment(
    dataset: Any, state: FragmentState, column: FeatureColumn, mode: Mode, where: str | None, before: int | None
) -> Unit | None:
    status, filled_at = state.fill.status(state.rows, column.digest)
    wanted = _WANTED[mode].take(status)
    if before is not None:
        wanted &= filled_at <= before
    if not wanted.any():
        return None
    if state.deleted or where is not None:
        wanted &= live_rows(dataset, state.fragment_id, state.rows, where)
    count = int(np.count_nonzero(wanted))
    if count == 0:
        return None
    metadata = dataset.get_fragment(state.fragment_id).metadata
    others = state.rows - state.deleted - count
    has_values = any(output.leaves.intersection(file.fields) for output in column.outputs for file in metadata.files)
    keeps = others > 0 and has_values
    read = column.input_leaves.union(*(output.leaves for output in column.outputs if keeps))
    size = sum(file.file_size_bytes or 0 for file in metadata.files if read.intersection(file.fields))
    return Unit(
        fragment_id=state.fragment_id,
        rows=state.rows,
        todo=spans_of(wanted),
        count=count,
        keeps=keeps,
        has_deletions=state.deleted > 0,
        signature=state.signature,
        input_signature=input_signature(metadata, column),
        bytes=size * count // max(state.rows, 1),
    )
