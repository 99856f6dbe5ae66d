"""Which fragments to merge: chosen by size tiers, so that a row is rewritten a logarithmic number of times.

A fragment below half of the target size is small. Small fragments are sorted into tiers; a tier spans a factor of
``max_small_fragments`` in size. A tier with that many fragments is merged into fragments of the next tiers. So a
table keeps fewer than ``max_small_fragments`` small fragments in each tier, and a row moves up one tier each time it is
rewritten. The lowest tier has no lower bound: fragments this small cost more to open than to rewrite.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pennon.maintenance.policy import MaintenancePolicy

#: A fragment whose live rows fill less than this share of the target is small.
_SMALL = 0.5
#: The lowest tier contains all fragments that fill less than this share of the target: 1 MiB of 256 MiB.
_LOWEST = 1 / 256
#: What one task reads at most: it takes seconds, and a conflicting write costs no more than that.
_MAX_INPUT_BYTES = 1024**3
_MAX_INPUT_FRAGMENTS = 256


@dataclass(frozen=True)
class FragmentSize:
    """The size of one fragment."""

    id: int
    rows: int
    deleted: int
    #: The size of its files, with their blobs, including deleted rows.
    bytes: int
    #: The index segments that cover it; only fragments with the same segments can be merged.
    segments: frozenset[str] = frozenset()
    #: Whether an index has entries of its deleted rows, so that it must not be rewritten yet.
    is_blocked: bool = False
    #: Whether its files belong to another branch or table, which keeps them: rewriting it frees no space.
    is_shared: bool = False

    @property
    def live_rows(self) -> int:
        """The number of rows that are not deleted."""
        return self.rows - self.deleted

    @property
    def deleted_share(self) -> float:
        """The share of deleted rows."""
        return self.deleted / self.rows if self.rows else 0.0

    @property
    def live_bytes(self) -> int:
        """The bytes of the rows that are not deleted, estimated by their share."""
        return round(self.bytes * (1 - self.deleted_share))


def fill_of(fragment: FragmentSize, policy: MaintenancePolicy) -> float:
    """Return the share of a target fragment that the live rows of a fragment fill."""
    return max(
        fragment.live_bytes / policy.target_fragment_bytes, fragment.live_rows / policy.target_fragment_rows, 1e-12
    )


def is_small(fragment: FragmentSize, policy: MaintenancePolicy) -> bool:
    """Return whether a fragment is a candidate for merging."""
    return fill_of(fragment, policy) < _SMALL


def needs_reclaiming(fragment: FragmentSize, policy: MaintenancePolicy) -> bool:
    """Return whether a fragment is to be rewritten for its deleted rows alone."""
    return fragment.deleted_share > policy.max_deleted_share and not fragment.is_shared


def group_fragments(
    fragments: Iterable[FragmentSize], policy: MaintenancePolicy, *, all_small: bool = False
) -> list[list[FragmentSize]]:
    """Return the groups of fragments to rewrite, each into one fragment or, if it is larger than that, into several.

    ``all_small`` merges all small fragments of the same index segments, however few: for a user who asks for it.
    """
    classes: dict[frozenset[str], list[FragmentSize]] = defaultdict(list)
    for fragment in fragments:
        if not fragment.is_blocked:
            classes[fragment.segments].append(fragment)
    return [group for members in classes.values() for group in _group_class(members, policy, all_small=all_small)]


def _group_class(
    fragments: Sequence[FragmentSize], policy: MaintenancePolicy, *, all_small: bool
) -> list[list[FragmentSize]]:
    tiers: dict[int, list[FragmentSize]] = defaultdict(list)
    for fragment in fragments:
        if is_small(fragment, policy):
            tiers[0 if all_small else _tier(fill_of(fragment, policy), policy)].append(fragment)
    groups = _merge_tiers(tiers, policy, 2 if all_small else policy.max_small_fragments)
    merged = {fragment.id for group in groups for fragment in group}
    reclaimed = [fragment for fragment in fragments if needs_reclaiming(fragment, policy) and fragment.id not in merged]
    return groups + _cut(reclaimed, policy)


def _merge_tiers(
    tiers: Mapping[int, Sequence[FragmentSize]], policy: MaintenancePolicy, least: int
) -> list[list[FragmentSize]]:
    """Merge the tiers that have ``least`` fragments, smallest first.

    What a tier becomes counts as one fragment of the tier that it reaches, and is rewritten only once.
    """
    groups: list[list[FragmentSize]] = []
    waiting: dict[int, list[list[FragmentSize]]] = {}
    for tier in range(max(tiers, default=0), -1, -1):
        merged = waiting.pop(tier, [])
        own = tiers.get(tier, ())
        if len(own) + len(merged) < least:
            groups += merged
            continue
        *full, last = _cut([*own, *(fragment for group in merged for fragment in group)], policy)
        groups += full
        reached = _tier(sum(fill_of(fragment, policy) for fragment in last), policy)
        if reached < tier:
            waiting.setdefault(reached, []).append(last)
        else:
            groups.append(last)
    return [group for group in groups if len(group) > 1]


def _cut(fragments: Iterable[FragmentSize], policy: MaintenancePolicy) -> list[list[FragmentSize]]:
    """Cut fragments into groups of neighbours that fill at most one fragment and can be read by one task."""
    groups: list[list[FragmentSize]] = []
    fill = float("inf")
    size = 0
    for fragment in sorted(fragments, key=lambda each: each.id):
        own = fill_of(fragment, policy)
        if fill + own > 1 or size + fragment.bytes > _MAX_INPUT_BYTES or len(groups[-1]) >= _MAX_INPUT_FRAGMENTS:
            groups.append([])
            fill = size = 0
        groups[-1].append(fragment)
        fill += own
        size += fragment.bytes
    return groups


def _tier(fill: float, policy: MaintenancePolicy) -> int:
    """Return the tier of a fill: 0 is just below half of the target, and higher numbers are smaller."""
    tier, bound = 0, _SMALL / policy.max_small_fragments
    while fill < bound and bound >= _LOWEST:
        tier += 1
        bound /= policy.max_small_fragments
    return tier
