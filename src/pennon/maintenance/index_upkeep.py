"""Index upkeep: which index segments to merge with the rows outside of the index, and which indexes to train again.

The segments of an index are merged geometrically: new rows are merged with the newest segments as long as these are not
much larger, so a large index is not rewritten for every handful of rows, and the number of segments stays small.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pennon.maintenance.compaction import is_system_index
from pennon.maintenance.vector_fit import range_of, relative_distance

if TYPE_CHECKING:
    from lance import LanceDataset
    from lance.fragment import FragmentMetadata
    from lance.lance import IndexDescription

    from pennon.maintenance.policy import MaintenancePolicy

#: A segment is merged if it has at most this many times the rows that are merged with it.
_SIZE_FACTOR = 2
#: Lance puts at most this many rows into a partition when it trains; it splits those four times as large.
_PARTITION_ROWS = {"IVF_FLAT": 4096, "IVF_HNSW_FLAT": 2**20, "IVF_HNSW_PQ": 2**20, "IVF_HNSW_SQ": 2**20}
_DEFAULT_PARTITION_ROWS = 8192
_GROWTH = 4
#: The share of a trained range of values by which new values may exceed it: recall falls to 0.66 when they double.
_RANGE_SLACK = 0.05
#: New vectors do not fit if they are this many times as far from the centroids. With 20,000 shifted ones beside 20,000
#: others (12 times as far), IVF_PQ finds 15 % of the nearest, trained again 34 %; IVF_RQ 56 % and 80 %. A share of new
#: rows is required, so that an index is trained a logarithmic number of times, even if that does not help.
_MAX_DRIFT, _MIN_DRIFT_ROWS, _MIN_DRIFT_SHARE = 2.0, 1000, 0.1
#: Folding a vector index for deleted rows is worth it if they are at least this share of its rows, or it is small. A
#: small one is kept in one segment: a search of 15,000 vectors takes 1.0 ms with one and 3.8 ms with four, and merging
#: 100,000 vectors takes 60 ms.
_MIN_STALE_SHARE, _SMALL_SEGMENT_ROWS = 0.05, 100_000
#: Lance's errors about segments that were trained apart, which only training can merge.
_OTHER_MODEL = re.compile("do not share IVF centroids|quantizer metadata|transposed PQ codes")
#: On tables with stable row ids, segments of these indexes keep the old values of rows that were changed. They are
#: hidden until another segment covers the rows where they are now; then a search finds rows by their old values. Only a
#: merge of all segments with the new values drops the old ones.
_KEEPING_OLD_VALUES = frozenset({"BITMAP", "LABELLIST", "LABEL_LIST", "INVERTED"})


@dataclass(frozen=True)
class IndexState:
    """An index with the rows that it covers."""

    name: str
    kind: str
    columns: tuple[str, ...]
    #: The segments, oldest first, each with its fragments and their live rows.
    segments: tuple[tuple[str, frozenset[int], int], ...]
    unindexed_rows: int
    unindexed_fragments: tuple[int, ...]
    #: Those among them whose rows may have old values in a segment.
    changed_fragments: frozenset[int] = frozenset()

    @property
    def is_vector(self) -> bool:
        """Whether it is a vector index."""
        return self.kind.startswith("IVF")

    @property
    def rows(self) -> int:
        """The number of live rows in its segments."""
        return sum(rows for _, _, rows in self.segments)


@dataclass(frozen=True)
class IndexTask:
    """What to do with one index."""

    name: str
    #: The number of its newest segments that are merged with the new rows; 0 makes a new segment.
    merge: int
    retrain: bool
    rows: int
    reason: str
    #: Whether it is due even if few rows are outside of the index.
    is_urgent: bool = False


def index_states(dataset: LanceDataset) -> list[IndexState]:
    """Return the indexes of a version with their coverage in live rows."""
    fragments = {each.fragment_id: each.metadata for each in dataset.get_fragments()}
    live = {number: metadata.num_rows for number, metadata in fragments.items()}
    states = []
    for index in dataset.describe_indices():
        if is_system_index(index.name):
            continue
        segments = tuple(
            (str(each.uuid), frozenset(each.fragment_ids), sum(live.get(n, 0) for n in each.fragment_ids))
            for each in index.segments
        )
        outside = sorted(live.keys() - frozenset[int]().union(*(covered for _, covered, _ in segments)))
        kind = _kind(index)
        keeps_old_values = dataset.has_stable_row_ids and kind in _KEEPING_OLD_VALUES
        changed = (number for number in outside if keeps_old_values and not _is_new(fragments[number], index.fields))
        states.append(
            IndexState(
                name=index.name,
                kind=kind,
                columns=tuple(index.field_names),
                segments=segments,
                unindexed_rows=sum(live[number] for number in outside),
                unindexed_fragments=tuple(outside),
                changed_fragments=frozenset(changed),
            )
        )
    return states


def plan(
    dataset: LanceDataset,
    states: Sequence[IndexState],
    policy: MaintenancePolicy,
    *,
    unclean: frozenset[int] = frozenset(),
    is_stale: bool = False,
    reads_vectors: bool = True,
) -> list[IndexTask]:
    """Return what to do with the indexes of a version.

    Args:
        dataset: The version.
        states: Its indexes.
        policy: The effective policy of the table.
        unclean: Fragments that are to be compacted: vector indexes must lose the entries of their deleted rows.
        is_stale: Whether a commit is known to have left entries of deleted rows in vector indexes.
        reads_vectors: Whether to read new vectors, to tell whether they fit an index.
    """
    deleted = {each.fragment_id: each.metadata.num_deletions for each in dataset.get_fragments()}
    tasks = []
    for state in states:
        fold = 0
        if state.is_vector:
            is_unclean = is_stale or (dataset.has_stable_row_ids and stale_entries(dataset, state) > 0)
            fold = len(state.segments) if is_unclean else fold_depth(state, unclean, deleted)
        task = _plan_index(dataset, state, policy, fold, reads_vectors=reads_vectors)
        if task is not None:
            tasks.append(task)
    return tasks


def batch(tasks: Sequence[IndexTask], states: Sequence[IndexState]) -> list[list[IndexTask]]:
    """Return the tasks that one commit does: those of scalar indexes that merge as many segments."""
    vectors = {state.name for state in states if state.is_vector}
    batches: dict[object, list[IndexTask]] = {}
    for task in tasks:
        batches.setdefault(task.name if task.name in vectors else task.merge, []).append(task)
    return list(batches.values())


def run(dataset: LanceDataset, tasks: Sequence[IndexTask]) -> bool:
    """Do the tasks of a batch on a dataset opened for writing; return whether the index was trained again."""
    optimize, names = dataset.optimize, [task.name for task in tasks]
    if tasks[0].retrain:
        optimize.optimize_indices(index_names=names, retrain=True)
        return True
    try:
        optimize.optimize_indices(num_indices_to_merge=tasks[0].merge, index_names=names)
    except OSError as error:
        if not _OTHER_MODEL.search(str(error)):
            raise
        optimize.optimize_indices(index_names=names, retrain=True)
        return True
    return False


def merge_depth(segment_rows: Sequence[int], new_rows: int, max_segments: int, *, single: int = 0) -> int | None:
    """Return how many of the newest segments to merge with new rows; None if there is nothing to do.

    An index of up to ``single`` rows is kept in one segment.
    """
    count = len(segment_rows)
    if sum(segment_rows) + new_rows <= single:
        return count if new_rows or count > 1 else None
    rows, depth = new_rows, 0
    if not new_rows and count:
        rows, depth = segment_rows[-1], 1
    while depth < count and (count - depth >= max_segments or segment_rows[-1 - depth] <= _SIZE_FACTOR * rows):
        rows += segment_rows[-1 - depth]
        depth += 1
    return depth if new_rows or depth > 1 else None


def fold_depth(state: IndexState, unclean: frozenset[int], deleted: Mapping[int, int]) -> int:
    """Return how many of the newest segments to merge so that they lose the deleted rows of fragments.

    Older segments are left out while too few of their rows are deleted for the cost of rewriting them.
    """
    rows = stale = depth = 0
    for number, (_, fragments, live) in enumerate(reversed(state.segments), 1):
        rows += live
        stale += sum(deleted.get(fragment, 0) for fragment in fragments)
        if fragments & unclean and (rows <= _SMALL_SEGMENT_ROWS or stale >= _MIN_STALE_SHARE * rows):
            depth = number
    return depth


def stale_entries(dataset: LanceDataset, state: IndexState) -> int:
    """Return the number of entries of a vector index whose rows no fragment has any more, not even as deleted ones.

    It is too small if vectors are null, because these have no entries.
    """
    statistics: dict[str, Any] = dataset.stats.index_stats(state.name)
    entries: int = sum(each["size"] for one in statistics["indices"] for each in one.get("partitions", ()))
    covered = frozenset[int]().union(*(fragments for _, fragments, _ in state.segments))
    rows = sum(each.physical_rows for each in dataset.get_fragments() if each.fragment_id in covered)
    return max(entries - rows, 0)


def _plan_index(
    dataset: LanceDataset, state: IndexState, policy: MaintenancePolicy, fold: int, *, reads_vectors: bool
) -> IndexTask | None:
    """Return what to do with one index; its newest ``fold`` segments must lose the entries of deleted rows."""
    sizes = [rows for _, _, rows in state.segments]
    retraining = _retraining_reason(dataset, state, reads_vectors=reads_vectors) if state.is_vector else None
    if retraining is not None:
        return IndexTask(state.name, len(sizes), True, state.rows + state.unindexed_rows, retraining, True)
    single = _SMALL_SEGMENT_ROWS if state.is_vector else 0
    depth = merge_depth(sizes, state.unindexed_rows, policy.max_index_segments, single=single)
    reason = f"{state.unindexed_rows} rows are outside of it" if state.unindexed_rows else "its segments can be merged"
    if fold > (depth or 0):
        depth, reason = fold, "it has entries of deleted rows"
    if state.changed_fragments:
        depth, reason = len(sizes), "rows that it covers were changed"
    if depth is None:
        return None
    rows = state.unindexed_rows + sum(sizes[len(sizes) - depth :])
    return IndexTask(state.name, depth, False, rows, reason, is_urgent=fold > 0)


def _retraining_reason(dataset: LanceDataset, state: IndexState, *, reads_vectors: bool) -> str | None:
    """Return why a vector index must be trained again; None if its model fits."""
    if not state.unindexed_rows:
        return None  # it was judged when its rows were added
    statistics: dict[str, Any] = dataset.stats.index_stats(state.name)
    newest = statistics["indices"][-1] if statistics["indices"] else {}
    partitions = newest.get("num_partitions") or 0
    most = _GROWTH * _PARTITION_ROWS.get(state.kind, _DEFAULT_PARTITION_ROWS)
    if partitions and (state.rows + state.unindexed_rows) / partitions > most:
        return f"it has {partitions} partitions for {state.rows + state.unindexed_rows} rows"
    if not reads_vectors:
        return None
    (column,) = state.columns
    metric = str(newest.get("metric_type", "")).lower()
    bounds = (newest.get("sub_index") or {}).get("bounds")
    if bounds is not None:
        low, high = range_of(dataset, column, state.unindexed_fragments, is_cosine=metric == "cosine")
        slack = _RANGE_SLACK * (bounds["end"] - bounds["start"])
        if low < bounds["start"] - slack or high > bounds["end"] + slack:
            described = f"{bounds['start']:.4g} to {bounds['end']:.4g}"
            return f"new values are outside the range that it was trained for, {described}"
    return _drift_reason(dataset, state, column, metric)


def _drift_reason(dataset: LanceDataset, state: IndexState, column: str, metric: str) -> str | None:
    """Return why the centroids and the codes of an index do not fit its younger rows; None if they do."""
    if not state.segments or metric not in ("l2", "cosine"):
        return None
    (_, old, old_rows), *younger = state.segments
    new = [*state.unindexed_fragments, *(number for _, fragments, _ in younger for number in fragments)]
    new_rows = state.rows + state.unindexed_rows - old_rows
    if new_rows < max(_MIN_DRIFT_ROWS, _MIN_DRIFT_SHARE * old_rows):
        return None
    times = relative_distance(dataset, state.name, column, new, old, is_cosine=metric == "cosine")
    if times <= _MAX_DRIFT:
        return None
    return f"its new vectors are {times:.1f} times as far from its centroids as the others (by the mean of squares)"


def _is_new(metadata: FragmentMetadata, fields: Sequence[int]) -> bool:
    """Return whether no row of a fragment had another value of some fields before, by an update or in place."""
    document = metadata.to_json()
    created, updated = document.get("created_at_version_meta"), document.get("last_updated_at_version_meta")
    first = metadata.files[0].fields if metadata.files else []
    return created is not None and created == updated and all(field in first for field in fields)


def _kind(index: IndexDescription) -> str:
    kind = str(index.index_type).upper()
    is_vector = str(index.type_url).endswith("VectorIndexDetails")
    return f"IVF_{kind}" if is_vector and not kind.startswith("IVF") else kind
