"""The guard against wrong answers: which fragments a compaction must not rewrite yet.

On a table with stable row ids, a vector index keeps the entries of deleted rows. They are hidden as long as the
deletion file of their fragment exists. A compaction removes it, and then they displace results: a search returns too
few rows. So a fragment with deletions is rewritten only if the segments that cover it were folded, which drops these
entries, when it had the same deletion file. Lance refuses the commit of the compaction if more of its rows were deleted
since it was planned, or if another index was built over it.

Other indexes keep the old values of rows that were changed (see `pennon.maintenance.index_upkeep`). What shows that
rows were changed is lost when their fragment is rewritten, so that waits until the indexes were folded, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from pennon.maintenance.index_upkeep import IndexState, fold_depth
from pennon.maintenance.tiers import FragmentSize, group_fragments

if TYPE_CHECKING:
    from lance import LanceDataset

    from pennon.maintenance.policy import MaintenancePolicy

#: Identifies a deletion file: the version it was made from, and its number.
DeletionKey: TypeAlias = tuple[int, int]
#: The deletion files of a version, by fragment.
DeletionFiles: TypeAlias = Mapping[int, DeletionKey]

#: How often the fragments to rewrite are determined again after some were held back.
_ROUNDS = 4


@dataclass
class Folds:
    """Index segments without entries of rows that were deleted in the version that each was folded from."""

    deletions: dict[str, DeletionFiles] = field(default_factory=dict)

    def add(self, segments: Iterable[str], deletions: DeletionFiles) -> None:
        """Remember that segments were made from a version with these deletion files."""
        self.deletions.update(dict.fromkeys(segments, deletions))


def deletion_files(dataset: LanceDataset) -> dict[int, DeletionKey]:
    """Return the deletion files of a version, by fragment."""
    return {
        fragment.fragment_id: (deletions.read_version, deletions.id)
        for fragment in dataset.get_fragments()
        if (deletions := fragment.metadata.deletion_file) is not None
    }


def blocked_fragments(dataset: LanceDataset, states: Sequence[IndexState], folds: Folds) -> frozenset[int]:
    """Return the fragments that must not be rewritten: indexes have to be folded first."""
    changed = frozenset[int]().union(*(state.changed_fragments for state in states))
    return changed | _with_stale_entries(dataset, states, folds)


def _with_stale_entries(dataset: LanceDataset, states: Sequence[IndexState], folds: Folds) -> frozenset[int]:
    """Return the fragments whose deleted rows may still have entries in a vector index."""
    current = deletion_files(dataset) if dataset.has_stable_row_ids else {}
    return frozenset(
        fragment
        for state in states
        if state.is_vector
        for segment, fragments, _ in state.segments
        for fragment in fragments & current.keys()
        if folds.deletions.get(segment, {}).get(fragment) != current[fragment]
    )


def fragments_to_fold(
    dataset: LanceDataset,
    states: Sequence[IndexState],
    sizes: Sequence[FragmentSize],
    policy: MaintenancePolicy,
    *,
    all_small: bool = False,
) -> tuple[frozenset[int], frozenset[int]]:
    """Return the fragments whose deleted rows vector indexes must lose before they are rewritten.

    The second set are fragments to leave alone, because folding the large segments that cover them is not worth it yet.
    """
    candidates = _with_stale_entries(dataset, states, Folds())
    deleted = {each.id: each.deleted for each in sizes}
    held: frozenset[int] = frozenset()
    for _ in range(_ROUNDS):
        usable = [replace(each, is_blocked=each.id in held) for each in sizes]
        groups = group_fragments(usable, policy, all_small=all_small)
        wanted = frozenset(each.id for group in groups for each in group) & candidates
        more = frozenset().union(*(_not_worth_it(state, wanted, deleted) for state in states if state.is_vector))
        if not more:
            return wanted, held
        held |= more
    return frozenset(), candidates


def _not_worth_it(state: IndexState, wanted: frozenset[int], deleted: Mapping[int, int]) -> frozenset[int]:
    depth = fold_depth(state, wanted, deleted)
    older = state.segments[: len(state.segments) - depth]
    return frozenset().union(*(fragments & wanted for _, fragments, _ in older))
