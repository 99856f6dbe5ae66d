"""What is known of a fragment is what a list with the state of each row would say."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pennon.columns.feature_columns import ColumnOutput, FeatureColumn
from pennon.columns.file_signatures import input_signature, signature, signature_after
from pennon.columns.row_spans import mask_of, spans_of
from pennon.columns.row_states import RowStates, RowStatus, Segment
from pennon.columns.state import _StatesByRowId

ROWS = 12
FUNCTIONS = ("f", "g")
IDS = [[100, ROWS]]


@dataclass
class Row:
    """What is known of one row: by which function, at which version, until when, and how."""

    function: str = ""
    committed_at: int = 0
    valid_at: int = 0
    kind: str = ""

    def status(self, function: str) -> RowStatus:
        if not self.kind:
            return RowStatus.MISSING
        if self.kind == "stale":
            return RowStatus.STALE
        if self.function != function:
            return RowStatus.OUTDATED
        return RowStatus.COMPUTED if self.kind == "done" else RowStatus.FAILED


@dataclass
class Model:
    """A fragment row by row."""

    rows: list[Row] = field(default_factory=lambda: [Row() for _ in range(ROWS)])

    def compute(self, function: str, version: int, done: set[int], failed: set[int], *, confirms: bool) -> None:
        for number, row in enumerate(self.rows):
            if number in done | failed:
                self.rows[number] = Row(function, version, version, "failed" if number in failed else "done")
            elif row.kind and confirms:
                row.valid_at = version

    def write(self, version: int, changed: set[int]) -> None:
        for number, row in enumerate(self.rows):
            if row.kind:
                row.valid_at = version
                row.kind = "stale" if number in changed else row.kind


some_rows = st.sets(st.integers(min_value=0, max_value=ROWS - 1))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("compute"), st.sampled_from(FUNCTIONS), some_rows, some_rows, st.booleans()),
        st.tuples(st.just("write"), some_rows),
    ),
    max_size=8,
)


def spans(rows: set[int]) -> Any:
    mask = np.zeros(ROWS, dtype=np.bool_)
    mask[list(rows)] = True
    return spans_of(mask)


def play(script: list[Any]) -> tuple[RowStates, Model]:
    states, model = RowStates(), Model()
    for version, step in enumerate(script, start=2):
        if step[0] == "write":
            states = states.with_written(version, ROWS, IDS, spans(step[1]))
            model.write(version, step[1])
            continue
        _, function, computed, failed, confirms = step
        done = computed - failed
        segment = Segment(function, version, version, spans(done), spans(failed))
        states = states.with_rows(segment, ROWS, IDS, confirms=confirms)
        model.compute(function, version, done, failed, confirms=confirms)
    return states, model


@given(steps)
def test_the_state_of_each_row_is_what_happened_to_it(script: list[Any]) -> None:
    states, model = play(script)
    for function in FUNCTIONS:
        status, committed_at = states.status(ROWS, function)
        assert [RowStatus(number) for number in status] == [row.status(function) for row in model.rows]
        assert committed_at.tolist() == [row.committed_at if row.kind else 0 for row in model.rows]


@given(steps)
def test_each_row_is_in_one_segment(script: list[Any]) -> None:
    states, _ = play(script)
    counted = np.zeros(ROWS, dtype=np.int64)
    for segment in states.segments:
        for part in (segment.done, segment.failed, segment.stale):
            counted += mask_of(part, ROWS)
    assert counted.max(initial=0) <= 1


@given(steps)
def test_what_is_stored_is_read_again(script: list[Any]) -> None:
    states, _ = play(script)
    assert RowStates.decode(states.encode()) == states


@given(
    steps,
    st.permutations(range(ROWS + 3)),
    st.lists(st.integers(min_value=1, max_value=14), min_size=ROWS + 3, max_size=ROWS + 3),
)
def test_rows_that_moved_are_known_by_their_ids(script: list[Any], order: list[int], written: list[int]) -> None:
    states, model = play(script)
    # Three rows are new, and all are in another order now.
    moved = _StatesByRowId([states]).find(np.array([100 + number for number in order]), np.array(written))
    status, _ = moved.status(len(order), "f")
    for place, number in enumerate(order):
        row = model.rows[number] if number < ROWS else Row()
        expected = row.status("f")
        if row.kind and written[place] < row.committed_at:
            expected = RowStatus.MISSING  # from before it was computed, as after a restore
        elif row.kind and written[place] > row.valid_at:
            expected = RowStatus.STALE
        assert RowStatus(status[place]) == expected


def test_the_newest_of_several_places_of_a_row_counts() -> None:
    old = RowStates().with_rows(Segment("f", 3, 3, ((0, 2),)), 2, [[7, 2]])
    new = RowStates().with_rows(Segment("f", 5, 5, ((0, 1),)), 1, [[7, 1]])
    moved = _StatesByRowId([new, old]).find(np.array([7, 8]), np.array([5, 3]))
    status, committed_at = moved.status(2, "f")
    assert (status.tolist(), committed_at.tolist()) == ([RowStatus.COMPUTED] * 2, [5, 3])


def test_rows_that_were_deleted_are_nowhere_else() -> None:
    states = RowStates().with_rows(Segment("f", 3, 3, ((0, 3),)), 3, [[7, 1], [-1, 1], [9, 1]])
    moved = _StatesByRowId([states]).find(np.array([8, 9, -1]), np.array([3, 3, 3]))
    assert moved.status(3, "f")[0].tolist() == [RowStatus.MISSING, RowStatus.COMPUTED, RowStatus.MISSING]


def test_row_states_know_which_row_ids_they_may_contain() -> None:
    states = RowStates((), ((5, 3), (-1, 2), (20, 1)))
    held = {4: False, 5: True, 7: True, 8: False, 20: True, 21: False, -1: False}
    assert {number: states.may_contain(np.array([number])) for number in held} == held
    assert states.may_contain(np.array([1, 30]))  # a false positive: the range covers them
    assert not states.may_contain(np.array([], dtype=np.int64))


def fragment(*files: tuple[str, list[int]], rows: int = 10) -> Any:
    return SimpleNamespace(
        physical_rows=rows, files=[SimpleNamespace(path=path, fields=fields) for path, fields in files]
    )


COLUMN = FeatureColumn(
    "y",
    (ColumnOutput("y", "3", pa.int64(), "", frozenset({3})),),
    ("x",),
    frozenset({1}),
    digest="f",
    name="f",
    version="",
)


def test_a_signature_changes_with_the_files_of_the_column_and_its_inputs() -> None:
    before = fragment(("a", [0, 1, 2]))
    sign = signature(before, COLUMN, COLUMN.output)
    others = [
        fragment(("b", [0, 1, 2])),
        fragment(("a", [0, 1, 2]), ("b", [3])),
        fragment(("a", [0, -2, 2]), ("b", [1])),
        fragment(("a", [0, 1, 2]), rows=11),
    ]
    assert sign not in {signature(other, COLUMN, COLUMN.output) for other in others}
    assert signature(fragment(("a", [0, 1, 2]), ("b", [4])), COLUMN, COLUMN.output) == sign
    assert input_signature(fragment(("a", [0, 1, 2]), ("b", [3])), COLUMN) == input_signature(before, COLUMN)


def test_the_signature_after_a_commit_is_predicted() -> None:
    before = fragment(("a", [0, 1, 3]))
    after = fragment(("a", [0, 1, -2]), ("b", [3]))
    predicted = signature_after(before, COLUMN, COLUMN.output, {"path": "b", "fields": [3]})
    assert predicted == signature(after, COLUMN, COLUMN.output)
    assert signature_after(before, COLUMN, COLUMN.output, {"path": "c", "fields": [4]}) == signature(
        before, COLUMN, COLUMN.output
    )
