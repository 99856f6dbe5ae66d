"""How much of a table changed between two versions, as far as their manifests tell: no row is read for it."""

from __future__ import annotations

from typing import Any


def rows_touched(old: Any, new: Any) -> int:
    """Return about how many rows were written or deleted: those of new, rewritten and removed fragments, and deletions.

    An updated row counts where it was deleted and where it was written. Compaction counts, too: that its rows are the
    same is for others to find out.
    """
    before, after = _fragments(old), _fragments(new)
    written = sum(_rows(after[number]) for number in after.keys() - before.keys())
    removed = sum(_rows(before[number]) for number in before.keys() - after.keys())
    kept = before.keys() & after.keys()
    return max(written, removed) + sum(_difference(before[number], after[number]) for number in kept)


def _fragments(dataset: Any) -> dict[int, Any]:
    return {fragment.fragment_id: fragment.metadata for fragment in dataset.get_fragments()}


def _difference(before: Any, after: Any) -> int:
    if [file.path for file in before.files] != [file.path for file in after.files]:
        return int(after.physical_rows)
    return abs(int(after.num_deletions) - int(before.num_deletions))


def _rows(fragment: Any) -> int:
    return int(fragment.physical_rows) - int(fragment.num_deletions)
