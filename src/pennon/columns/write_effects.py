"""Effects of commits that wrote columns in place on the recorded states of a feature column."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pennon.columns.row_states import RowStates
    from pennon.commits.column_writes import ColumnWrite


def apply_column_writes(
    states: list[tuple[int, RowStates]], writes: list[ColumnWrite], field_ids: frozenset[int]
) -> list[tuple[int, RowStates]]:
    """Return the states of fragments after commits that wrote columns in place, whether Lance marked the rows or not.

    Args:
        states: The recorded states of a column, with their fragment ids.
        writes: The commits, oldest first.
        field_ids: The field ids of the column and of its inputs.
    """
    recorded = {fragment_id for fragment_id, _ in states}
    restored = 0
    for write in writes:
        if not write.fields:
            restored = write.version
        touched = {fragment_id for fragment_id, fields in write.fields.items() if field_ids & fields}
        # Rows may have moved to a fragment without a record, and been written there.
        is_anywhere = write.is_unknown or not touched <= recorded
        states = [
            (
                fragment_id,
                row_states.stale_before(write.version)
                if is_anywhere or fragment_id in touched
                else _after_mark(row_states, fragment_id, write, restored),
            )
            for fragment_id, row_states in states
        ]
    return states


def _after_mark(row_states: RowStates, fragment_id: int, write: ColumnWrite, restored: int) -> RowStates:
    """Return the states after a commit that marked rows as written because of another column.

    They are valid if all rows were still in the fragment: an updated row has left it and counts as deleted there.
    After a restore, the number of deleted rows does not show that.
    """
    if not write.marks_rows or fragment_id not in write.fields:
        return row_states
    if any(segment.valid_at < restored for segment in row_states.segments):
        return row_states
    return row_states.confirmed_at(write.version) if write.deleted[fragment_id] == row_states.deleted else row_states
