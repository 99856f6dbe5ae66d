"""The health of a table: what its newest version looks like, and what maintenance would do about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from pennon.core.clock import now_millis
from pennon.maintenance.compaction import BlobBytes, fragment_sizes
from pennon.maintenance.guard import fragments_to_fold
from pennon.maintenance.index_upkeep import IndexState, IndexTask, index_states, plan, stale_entries
from pennon.maintenance.tiers import FragmentSize, group_fragments, is_small, needs_reclaiming

if TYPE_CHECKING:
    from lance import LanceDataset

    from pennon.maintenance.policy import MaintenancePolicy


class Action(StrEnum):
    """A step of maintenance."""

    COMPACT = "compact"
    OPTIMIZE_INDICES = "optimize_indices"
    CLEANUP = "cleanup"


@dataclass(frozen=True)
class Due:
    """A step that is due, and why."""

    action: Action
    reason: str


@dataclass(frozen=True)
class IndexHealth:
    """The coverage of one index."""

    name: str
    index_type: str
    columns: tuple[str, ...]
    segments: int
    rows_indexed: int
    rows_unindexed: int
    #: Entries of rows that no longer exist, which can displace results of a search.
    stale_entries: int


@dataclass(frozen=True)
class TableHealth:
    """What one version of a table looks like."""

    branch: str
    version: int
    fragments: int
    small_fragments: int
    rows: int
    deleted_rows: int
    #: The size of the version's data files, without its blobs' folders if they are not measured.
    bytes_live: int
    #: The part of it that belongs to deleted rows, estimated by their share of each fragment.
    bytes_deleted: int
    versions: int
    indices: tuple[IndexHealth, ...]
    due: tuple[Due, ...]


def measure(
    dataset: LanceDataset,
    branch: str,
    policy: MaintenancePolicy,
    *,
    versions: int = 0,
    unindexed_since: int | None = None,
    is_stale: bool = False,
    blob_bytes: BlobBytes | None = None,
    all_small: bool = False,
) -> TableHealth:
    """Return the health of one version, with the steps that are due under a policy, except cleanup.

    Args:
        dataset: The version.
        branch: Its branch.
        policy: The effective policy of the table.
        versions: The number of versions of the branch.
        unindexed_since: When the oldest rows outside an index were committed, in milliseconds, if that is known.
        is_stale: Whether a commit is known to have left entries of deleted rows in vector indexes.
        blob_bytes: Measures blobs, which are stored outside data files; without it, they do not count.
        all_small: Whether small fragments are to be merged however few they are, as for a user who asks for it.
    """
    sizes = fragment_sizes(dataset, blob_bytes)
    states = index_states(dataset)
    indices = tuple(_index_health(dataset, state) for state in states)
    unclean, held = fragments_to_fold(dataset, states, sizes, policy, all_small=all_small)
    groups = group_fragments([each for each in sizes if each.id not in held], policy, all_small=all_small)
    # API processes measure, too: what they do must not grow with the number of new rows.
    tasks = plan(dataset, states, policy, unclean=unclean, is_stale=is_stale, reads_vectors=False)
    return TableHealth(
        branch=branch,
        version=dataset.version,
        fragments=len(sizes),
        small_fragments=sum(is_small(each, policy) for each in sizes),
        rows=sum(each.live_rows for each in sizes),
        deleted_rows=sum(each.deleted for each in sizes),
        bytes_live=sum(each.live_bytes for each in sizes),
        bytes_deleted=sum(each.bytes - each.live_bytes for each in sizes),
        versions=versions,
        indices=indices,
        due=tuple(
            [Due(Action.OPTIMIZE_INDICES, reason) for reason in _index_reasons(states, tasks, policy, unindexed_since)]
            + [Due(Action.COMPACT, reason) for reason in _compaction_reasons(groups, policy)]
        ),
    )


def _index_health(dataset: LanceDataset, state: IndexState) -> IndexHealth:
    return IndexHealth(
        name=state.name,
        index_type=state.kind,
        columns=state.columns,
        segments=len(state.segments),
        rows_indexed=state.rows,
        rows_unindexed=state.unindexed_rows,
        stale_entries=stale_entries(dataset, state) if state.is_vector and dataset.has_stable_row_ids else 0,
    )


def _compaction_reasons(groups: Sequence[Sequence[FragmentSize]], policy: MaintenancePolicy) -> list[str]:
    fragments = [each for group in groups for each in group]
    small = sum(is_small(each, policy) for each in fragments)
    deleted = sum(needs_reclaiming(each, policy) for each in fragments)
    reasons = []
    if small:
        reasons.append(f"{small} small fragments can be merged into {len(groups)}")
    if deleted:
        share = f"{policy.max_deleted_share:.0%}"
        reasons.append(f"more than {share} of the rows of {deleted} fragments are deleted")
    return reasons


def _index_reasons(
    states: Sequence[IndexState], tasks: Sequence[IndexTask], policy: MaintenancePolicy, unindexed_since: int | None
) -> list[str]:
    """Return why indexes are due; a few new rows are due only after a time."""
    is_late = unindexed_since is not None and now_millis() - unindexed_since > policy.max_unindexed_seconds * 1000
    unindexed = {state.name: state.unindexed_rows for state in states}
    reasons = []
    for task in tasks:
        has_few = 0 < unindexed[task.name] <= policy.max_unindexed_rows
        if task.is_urgent or not has_few or is_late:
            reasons.append(f"index {task.name}: {task.reason}")
    return reasons
