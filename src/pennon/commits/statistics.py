"""What maintenance needs to know of a version, computed from the manifest that a commit parses anyway."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pennon.catalog.versions import Statistics
from pennon.commits.fragment_bitmap import parse_fragment_bitmap
from pennon.core.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pennon.commits.manifest import Manifest
    from pennon.commits.manifest_messages import DataFileFields, Fragments

#: Fragments below both are small: half of the default targets, as in `pennon.maintenance.policy`.
_SMALL_BYTES = Settings.model_fields["maintenance_target_fragment_bytes"].default // 2
_SMALL_ROWS = Settings.model_fields["maintenance_target_fragment_rows"].default // 2
#: Lance's own indices, which no rows are added to.
_SYSTEM = "__lance"
_VECTOR_DETAILS = "VectorIndexDetails"
#: The feature flag of stable row ids.
_STABLE_ROW_IDS = 2
#: What is counted of the indices of one manifest: the fragments in their bitmaps, and those compared with them. Real
#: tables have far fewer, but a manifest of some kilobytes could keep a processor busy for minutes.
_MOST_INDEXED, _MOST_COMPARED = 2**20, 2**23
#: The prefix of the configuration by which Lance removes versions at a commit.
AUTO_CLEANUP = "lance.auto_cleanup."


def measure_fragments(fragments: Fragments, indices: Sequence[Any], config: Mapping[str, str]) -> Statistics:
    """Return the statistics of a manifest's fragments and indices."""
    sizes = [_data_bytes(files) for files in fragments.files]
    deleted = sum(file.num_deleted_rows for file in fragments.deletions.values())
    named = [index for index in indices if not index.name.startswith(_SYSTEM)]
    return Statistics(
        fragments=len(sizes),
        small_fragments=_count_small(sizes, fragments.rows),
        rows=sum(fragments.rows) - deleted,
        deleted_rows=deleted,
        data_bytes=sum(sizes),
        indices=len({index.name for index in named}),
        unindexed_rows=_unindexed_rows(fragments, named),
        has_auto_cleanup=any(key.startswith(AUTO_CLEANUP) for key in config),
    )


def add_fragments(before: Statistics, sizes: Sequence[int], rows: Sequence[int]) -> Statistics:
    """Return the statistics of a version without indices after an append of fragments."""
    return replace(
        before,
        fragments=before.fragments + len(sizes),
        small_fragments=before.small_fragments + _count_small(sizes, rows),
        rows=before.rows + sum(rows),
        data_bytes=before.data_bytes + sum(sizes),
    )


def _count_small(sizes: Sequence[int], rows: Sequence[int]) -> int:
    return sum(size < _SMALL_BYTES and count < _SMALL_ROWS for size, count in zip(sizes, rows, strict=True))


def vector_segments(indices: Sequence[Any]) -> frozenset[bytes]:
    """Return the ids of the segments of vector indices."""
    return frozenset(index.uuid.uuid for index in indices if index.details.type_url.endswith(_VECTOR_DETAILS))


def stale_since(manifest: Manifest, before: Manifest | None, known: int | None, operation: str | None) -> int | None:
    """Return the version that left entries of deleted rows in a vector index; None if no version did.

    With stable row ids, compaction removes the deletion files that hide these entries, but not the entries.
    ``known`` is the answer for the version before; new segments repair the index.
    """
    if before is None or not before.vector_segments & manifest.vector_segments:
        return None
    hides_less = not before.deletion_files <= manifest.deletion_files
    if hides_less and operation == "rewrite" and manifest.reader_flags & _STABLE_ROW_IDS:
        return manifest.version
    return known


def _data_bytes(files: Sequence[DataFileFields]) -> int:
    return files[0].file_size_bytes if len(files) == 1 else sum(file.file_size_bytes for file in files)


def _unindexed_rows(fragments: Fragments, indices: Sequence[Any]) -> int:
    """Return the number of rows outside the index that covers the fewest."""
    covered = _covered_fragments(indices)
    every, most = frozenset(fragments.ids), 0
    if len(covered) * len(every) > _MOST_COMPARED:
        return 0
    for ids in covered:
        left = every - ids
        rows = (
            sum(rows for number, rows in zip(fragments.ids, fragments.rows, strict=True) if number in left)
            if left
            else 0
        )
        deleted = sum(file.num_deleted_rows for number, file in fragments.deletions.items() if number in left)
        most = max(most, rows - deleted)
    return most


def _covered_fragments(indices: Sequence[Any]) -> set[frozenset[int]]:
    """Return the fragments that each index covers; an index counts as complete if they are unknown."""
    segments: dict[str, list[frozenset[int] | None]] = {}
    left = _MOST_INDEXED
    for index in indices:
        is_known = left > 0 and index.HasField("fragment_bitmap")
        found = parse_fragment_bitmap(index.fragment_bitmap) if is_known else None
        left -= len(found or ())
        segments.setdefault(index.name, []).append(found)
    return {
        known[0] if len(known) == 1 else frozenset().union(*known)
        for parts in segments.values()
        if len(known := [part for part in parts if part is not None]) == len(parts)
    }
