"""An estimate of the rows that changed between two versions, from their manifests alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lance import LanceDataset
    from lance.fragment import FragmentMetadata


def estimate_changed_rows(old: LanceDataset, new: LanceDataset) -> int:
    """Estimate the rows written or deleted: rows of new, rewritten and removed fragments, and new deletions.

    An updated row counts twice, as deleted and as written. Compacted rows count although they did not change.
    """
    before, after = _fragments(old), _fragments(new)
    written = sum(_rows(after[number]) for number in after.keys() - before.keys())
    removed = sum(_rows(before[number]) for number in before.keys() - after.keys())
    kept = before.keys() & after.keys()
    return max(written, removed) + sum(_difference(before[number], after[number]) for number in kept)


def _fragments(dataset: LanceDataset) -> dict[int, FragmentMetadata]:
    return {fragment.fragment_id: fragment.metadata for fragment in dataset.get_fragments()}


def _difference(before: FragmentMetadata, after: FragmentMetadata) -> int:
    if [file.path for file in before.files] != [file.path for file in after.files]:
        return after.physical_rows
    return abs(after.num_deletions - before.num_deletions)


def _rows(fragment: FragmentMetadata) -> int:
    return fragment.physical_rows - fragment.num_deletions
