"""The states of the rows of one fragment for a feature column: computed, failed or stale, and by which function."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from pennon.columns.row_spans import NO_SPANS, Mask, Spans, as_spans, mask_of, spans_of

#: The row id of a deleted row.
NO_ROW = -1


class RowStatus(IntEnum):
    """The state of one row's value."""

    MISSING = 0
    COMPUTED = 1
    FAILED = 2
    #: An input has changed since the value was computed.
    STALE = 3
    #: Another function computed the value.
    OUTDATED = 4


@dataclass(frozen=True)
class Segment:
    """Rows of a fragment that one function computed and one version committed."""

    #: The digest of the function.
    digest: str
    #: The version that committed the values.
    committed_at: int
    #: The last version at which the inputs are known to be unchanged.
    valid_at: int
    done: Spans = NO_SPANS
    failed: Spans = NO_SPANS
    #: Rows whose inputs have changed since they were computed.
    stale: Spans = NO_SPANS


@dataclass(frozen=True)
class RowStates:
    """The states of the rows of one fragment for one column."""

    segments: tuple[Segment, ...] = ()
    #: The row ids, in runs; empty if they are not stable.
    row_ids: tuple[tuple[int, int], ...] = ()
    #: The signature of the inputs.
    inputs: str = ""
    #: The tag of the manifest at the time of recording, for a table that Pennon does not manage.
    manifest: str = ""

    def encode(self) -> bytes:
        """Return the stored form."""
        segments = [[s.digest, s.committed_at, s.valid_at, s.done, s.failed, s.stale] for s in self.segments]
        stored = {"segments": segments, "row_ids": self.row_ids, "inputs": self.inputs, "manifest": self.manifest}
        return zlib.compress(json.dumps(stored).encode())

    @classmethod
    def decode(cls, state: bytes) -> RowStates:
        """Return the states of a stored form."""
        stored = json.loads(zlib.decompress(state))
        segments = tuple(
            Segment(digest, committed_at, valid_at, as_spans(done), as_spans(failed), as_spans(stale))
            for digest, committed_at, valid_at, done, failed, stale in stored["segments"]
        )
        return cls(segments, as_spans(stored["row_ids"]), stored.get("inputs", ""), stored.get("manifest", ""))

    def status(self, rows: int, digest: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Return the status of each row for a function, and the version that committed its value (0 if none)."""
        status = np.zeros(rows, dtype=np.uint8)
        committed_at = np.zeros(rows, dtype=np.int64)
        for segment in self.segments:
            is_current = segment.digest == digest
            for spans, meaning in (
                (segment.done, RowStatus.COMPUTED if is_current else RowStatus.OUTDATED),
                (segment.failed, RowStatus.FAILED if is_current else RowStatus.OUTDATED),
                (segment.stale, RowStatus.STALE),
            ):
                for start, stop in spans:
                    status[start:stop] = meaning
                    committed_at[start:stop] = segment.committed_at
        return status, committed_at

    def may_contain(self, row_ids: NDArray[np.int64]) -> bool:
        """Return whether some of these row ids may be among its rows."""
        live = row_ids[row_ids >= 0]
        if not len(live):
            return False
        first, last = live.min(), live.max()
        return any(start >= 0 and start <= last and start + length > first for start, length in self.row_ids)

    def until(self, version: int) -> RowStates:
        """Return the states that were known at a version."""
        known = (
            replace(old, valid_at=min(old.valid_at, version)) for old in self.segments if old.committed_at <= version
        )
        return replace(self, segments=tuple(known))

    def with_rows(
        self, segment: Segment, rows: int, row_ids: Sequence[Sequence[int]], *, confirms: bool = True
    ) -> RowStates:
        """Return the states after a segment's rows were computed, which replaces their earlier states.

        The commit of a segment marks the whole fragment as written. ``confirms`` is whether the other rows are known to
        be unchanged until then.
        """
        new = mask_of(segment.done, rows) | mask_of(segment.failed, rows)
        kept = [_without(old, new, segment.committed_at if confirms else 0) for old in self.segments]
        segments = (*(old for old in kept if old.done or old.failed or old.stale), segment)
        return RowStates(segments, as_spans(row_ids))

    def with_written(
        self, version: int, rows: int, row_ids: Sequence[Sequence[int]], changed: Spans = NO_SPANS
    ) -> RowStates:
        """Return the states after a commit that marked the whole fragment as written, but changed some inputs only."""
        inputs = mask_of(changed, rows)
        kept = []
        for segment in self.segments:
            computed = mask_of(segment.done, rows) | mask_of(segment.failed, rows)
            rest = _without(segment, inputs & computed, version)
            kept.append(replace(rest, stale=spans_of(mask_of(rest.stale, rows) | (inputs & computed))))
        return RowStates(tuple(kept), as_spans(row_ids))

    def all_stale(self, rows: int) -> RowStates:
        """Return the states if the inputs of any row may have changed."""
        return self.with_written(0, rows, self.row_ids, ((0, rows),))

    @property
    def rows(self) -> int:
        """The number of rows of the fragment including deleted ones; 0 if row ids are not stable."""
        return sum(length for _, length in self.row_ids)

    @property
    def deleted(self) -> int:
        """The number of deleted rows."""
        return sum(length for first, length in self.row_ids if first == NO_ROW)

    @property
    def has_stale(self) -> bool:
        """Whether some rows are stale."""
        return any(segment.stale for segment in self.segments)

    def stale_before(self, version: int) -> RowStates:
        """Return the states if rows that were last confirmed before a version may have changed."""
        old = replace(self, segments=tuple(each for each in self.segments if each.valid_at < version))
        rest = tuple(each for each in self.segments if each.valid_at >= version)
        return replace(self, segments=(*old.all_stale(self.rows).segments, *rest)) if old.segments else self

    def confirmed_at(self, version: int) -> RowStates:
        """Return the states if no row has changed until a version."""
        kept = (replace(each, valid_at=max(each.valid_at, version)) for each in self.segments)
        return replace(self, segments=tuple(kept))


def _without(segment: Segment, rows: Mask, valid_at: int) -> Segment:
    def rest(spans: Spans) -> Spans:
        return spans_of(mask_of(spans, len(rows)) & ~rows) if spans else NO_SPANS

    return replace(
        segment,
        valid_at=max(segment.valid_at, valid_at),
        done=rest(segment.done),
        failed=rest(segment.failed),
        stale=rest(segment.stale),
    )
