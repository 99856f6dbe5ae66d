"""What commits that wrote columns in place mean for the recorded state of a feature column."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pennon.columns.state import FragmentFill
    from pennon.commits.column_writes import ColumnWrite


def after_writes(
    fills: list[tuple[int, FragmentFill]], writes: list[ColumnWrite], leaves: frozenset[int]
) -> list[tuple[int, FragmentFill]]:
    """Return what is known of fragments after commits that wrote columns in place, marked by Lance or not.

    Args:
        fills: What is known of a column, by the fragments it is known of.
        writes: The commits, oldest first.
        leaves: The ids of the fields of the column and of its inputs.
    """
    known = {fragment_id for fragment_id, _ in fills}
    restored = 0
    found = fills
    for write in writes:
        if not write.fields:
            restored = write.version
        touched = {fragment_id for fragment_id, fields in write.fields.items() if leaves & fields}
        # Rows may have moved to a fragment of which nothing is known, and been written there.
        is_anywhere = write.anything or not touched <= known
        found = [
            (
                fragment_id,
                fill.stale_before(write.version)
                if is_anywhere or fragment_id in touched
                else _after_mark(fill, fragment_id, write, restored),
            )
            for fragment_id, fill in found
        ]
    return found


def _after_mark(fill: FragmentFill, fragment_id: int, write: ColumnWrite, restored: int) -> FragmentFill:
    """Return a fill after a commit that marked its rows for the sake of another column.

    It holds for them if they all still were in the fragment: one that was updated has left it, and counts as deleted
    there. After a restore, the number of deleted rows does not tell that.
    """
    if not write.marks_rows or fragment_id not in write.fields:
        return fill
    if any(segment.valid_at < restored for segment in fill.segments):
        return fill
    return fill.confirmed_at(write.version) if write.deleted[fragment_id] == fill.deleted else fill
