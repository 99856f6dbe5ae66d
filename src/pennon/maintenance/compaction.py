"""Compaction: planning by bytes, rewriting a group of fragments with bounded memory, and committing what fits.

Lance plans by rows, so it would rewrite a table of large rows again and again. The tasks here are made from its plan,
but grouped by `pennon.maintenance.tiers`, without the fragments that `pennon.maintenance.guard` holds back.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from lance.fragment import FragmentMetadata
from lance.optimize import Compaction, CompactionTask, RewriteResult

from pennon.maintenance.tiers import FragmentSize, group_fragments
from pennon.tables.blobs import has_blobs
from pennon.tables.query.row_sizes import row_sizes_of

if TYPE_CHECKING:
    from lance import LanceDataset

    from pennon.maintenance.policy import MaintenancePolicy

#: Returns the size of the blobs that belong to a data file, by the file's name.
BlobBytes: TypeAlias = Callable[[str], int]
#: A fragment as Lance's plans and results describe it in JSON.
FragmentJson: TypeAlias = dict[str, Any]

#: What a task decodes at a time, and what it reads ahead. With rows of 1 MB, Lance's own values take 1.2 GB.
_BATCH_BYTES = 8 * 1024**2
_IO_BUFFER_BYTES = 32 * 1024**2
_MAX_BATCH_ROWS = 8192
#: Rows this large are copied without decoding them, if Lance can: 83 MB of memory instead of 230 to 500 for 1 MB rows.
_BINARY_COPY_ROW_BYTES = 64 * 1024
#: Output files may exceed the target by this factor, so that a group becomes one file.
_FILE_SLACK = 1.25
#: A task makes at most this many files, however small the targets of a policy: else each row could become a file.
_MAX_OUTPUT_FILES = 1024
#: A plan in which every fragment is part of a task.
_EVERY_FRAGMENT: Any = {"target_rows_per_fragment": 2**40, "materialize_deletions_threshold": -1.0}
#: Indexes that lose the fragments of a compaction, so they do not restrict it, and are folded again after it.
UNMAPPED_TYPES = frozenset({"ZONEMAP", "BLOOMFILTER", "FM"})
#: Prefix of the names of indexes that Lance keeps for itself.
SYSTEM_INDEX_PREFIX = "__lance"


@dataclass(frozen=True)
class RewriteTask:
    """A group of fragments to rewrite."""

    fragment_ids: tuple[int, ...]
    rows: int
    bytes: int
    #: Lance's task.
    text: str


@dataclass(frozen=True)
class Rewritten:
    """A group of fragments that was rewritten, but not committed."""

    task: RewriteTask
    #: Lance's result.
    text: str

    @property
    def new_fragments(self) -> list[FragmentMetadata]:
        """The fragments that replace the group."""
        return [FragmentMetadata.from_json(json.dumps(each)) for each in json.loads(self.text)["new_fragments"]]

    def fits(self, current: Mapping[int, FragmentMetadata]) -> bool:
        """Return whether the group is unchanged in a newer version."""
        return all(_is_same(each, current.get(each["id"])) for each in json.loads(self.text)["original_fragments"])


def is_system_index(name: str) -> bool:
    """Return whether Lance keeps an index for itself."""
    return name.startswith(SYSTEM_INDEX_PREFIX)


def fragment_sizes(dataset: LanceDataset, blob_bytes: BlobBytes | None = None) -> list[FragmentSize]:
    """Return the sizes of the fragments of a version; without ``blob_bytes``, blobs outside data files do not count."""
    blobs = blob_bytes if blob_bytes is not None and any(has_blobs(each) for each in dataset.schema) else None
    covering: dict[int, set[str]] = defaultdict(set)
    for index in dataset.describe_indices():
        is_wall = not is_system_index(index.name) and str(index.index_type).upper() not in UNMAPPED_TYPES
        for segment in index.segments if is_wall else ():
            for fragment_id in segment.fragment_ids:
                covering[fragment_id].add(str(segment.uuid))
    found = []
    for fragment in dataset.get_fragments():
        metadata = fragment.metadata
        size = sum(file.file_size_bytes or 0 for file in metadata.files)
        if blobs is not None:
            size += sum(blobs(file.path) for file in metadata.files if file.base_id is None)
        found.append(
            FragmentSize(
                id=metadata.id,
                rows=metadata.physical_rows,
                deleted=metadata.num_deletions,
                bytes=size,
                segments=frozenset(covering[metadata.id]),
                is_shared=any(file.base_id is not None for file in metadata.files),
            )
        )
    return found


def plan(
    dataset: LanceDataset,
    policy: MaintenancePolicy,
    sizes: Sequence[FragmentSize],
    blocked: frozenset[int],
    *,
    all_small: bool = False,
) -> list[RewriteTask]:
    """Return the groups of fragments to rewrite, without the blocked fragments."""
    usable = [replace(each, is_blocked=each.id in blocked) for each in sizes]
    groups = group_fragments(usable, policy, all_small=all_small)
    if not groups:
        return []
    planned: dict[str, Any] = json.loads(_json(Compaction.plan(dataset, _EVERY_FRAGMENT)))
    fragments = {each["id"]: each for task in planned["tasks"] for each in task["fragments"]}
    row_bytes = row_sizes_of(dataset).row_bytes
    tasks = []
    for group in groups:
        if any(each.id not in fragments for each in group):
            continue  # Lance does not rewrite it
        document = {
            "task": {"fragments": [fragments[each.id] for each in group]},
            "read_version": planned["read_version"],
            "options": planned["options"] | _options(group, policy, row_bytes),
        }
        ids = tuple(each.id for each in group)
        rows, size = sum(each.live_rows for each in group), sum(each.bytes for each in group)
        tasks.append(RewriteTask(ids, rows, size, json.dumps(document)))
    return tasks


def execute(task: str, dataset: LanceDataset) -> str:
    """Rewrite a group of fragments, and return Lance's result."""
    return _json(_from_json(CompactionTask, task).execute(dataset))


def commit_what_fits(dataset: LanceDataset, results: Sequence[Rewritten]) -> list[Rewritten]:
    """Commit the groups that no other commit has changed since, to the newest version; return them."""
    current = {fragment.fragment_id: fragment.metadata for fragment in dataset.get_fragments()}
    fitting = [result for result in results if result.fits(current)]
    if fitting:
        Compaction.commit(dataset, [_from_json(RewriteResult, result.text) for result in fitting])
    return fitting


def _json(lance_object: Any) -> str:
    """Return a plan, a task or a result as JSON; pylance's types do not declare this."""
    text: str = lance_object.json()
    return text


def _from_json(kind: Any, text: str) -> Any:
    return kind.from_json(text)


def _options(group: Sequence[FragmentSize], policy: MaintenancePolicy, row_bytes: int) -> dict[str, object]:
    rows, data_bytes = sum(each.rows for each in group), sum(each.bytes for each in group)
    # The largest rows of a group decide: they may be in one fragment, beside others of small rows.
    size = max(*(each.bytes // max(each.rows, 1) for each in group), row_bytes, 1)
    options: dict[str, object] = {
        "target_rows_per_fragment": max(policy.target_fragment_rows, rows // _MAX_OUTPUT_FILES + 1),
        "max_bytes_per_file": max(int(policy.target_fragment_bytes * _FILE_SLACK), data_bytes // _MAX_OUTPUT_FILES + 1),
        "batch_size": min(max(_BATCH_BYTES // size, 1), _MAX_BATCH_ROWS),
        "io_buffer_size": _IO_BUFFER_BYTES,
    }
    if size >= _BINARY_COPY_ROW_BYTES:
        options["compaction_mode"] = "TryBinaryCopy"
    return options


def _is_same(old: FragmentJson, new: FragmentMetadata | None) -> bool:
    if new is None or [file["path"] for file in old["files"]] != [file.path for file in new.files]:
        return False
    before, after = old.get("deletion_file"), new.deletion_file
    if before is None or after is None:
        return before is None and after is None
    return (before["read_version"], before["id"]) == (after.read_version, after.id)
