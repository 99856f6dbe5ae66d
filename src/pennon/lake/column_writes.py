"""Which columns of which fragments a commit wrote in place.

Lance marks the rows of such a commit as written if it merges or replaces columns, and leaves them unmarked if it is an
update by columns. A compaction then erases the traces of either. So the data files of each version are compared with
those of the version before it: by the commit authority, which records the difference, and for tables that Pennon does
not manage by whoever needs to know, as long as the manifests are there.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pennon.lake.manifest import Manifest, read_fragments

if TYPE_CHECKING:
    from pennon.lake.fills import FragmentFill

#: Operations that give no existing fragment a new file.
_WRITE_NO_COLUMN = frozenset(
    {"append", "delete", "overwrite", "create_index", "rewrite", "reserve_fragments", "project", "clone"}
    | {"update_config", "update_bases", "update_mem_wal_state"}
)
#: Operations after which every row of a fragment they wrote to bears the number of their version.
_MARKING = frozenset({"merge", "data_replacement"})


@dataclass(frozen=True)
class ColumnWrite:
    """What one version wrote to fragments that the version before it had, too; no field at all stands for a restore."""

    version: int
    #: Whether Lance marked all rows of these fragments as written at this version.
    marks_rows: bool
    #: The ids of the fields that were written, by fragment.
    fields: Mapping[int, frozenset[int]]
    #: How many rows of each of the fragments were deleted then.
    deleted: Mapping[int, int] = field(default_factory=dict)
    #: Whether this version, or one before it, may have written any field of any fragment: it could not be compared.
    anything: bool = False

    @classmethod
    def unknown(cls, version: int) -> ColumnWrite:
        """Return that nobody knows what was written up to a version."""
        return cls(version, marks_rows=False, fields={}, anything=True)

    def encode(self) -> bytes:
        """Return it as the catalog stores it; fragments with the same fields together."""
        if self.anything:
            return zlib.compress(json.dumps([self.marks_rows, None]).encode())
        groups: dict[frozenset[int], list[tuple[int, int]]] = {}
        for fragment_id, fields in self.fields.items():
            groups.setdefault(fields, []).append((fragment_id, self.deleted.get(fragment_id, 0)))
        stored = [self.marks_rows, [[sorted(fields), fragments] for fields, fragments in groups.items()]]
        return zlib.compress(json.dumps(stored).encode())

    @classmethod
    def decode(cls, version: int, state: bytes) -> ColumnWrite:
        """Return what the catalog stored."""
        marks_rows, groups = json.loads(zlib.decompress(state))
        if groups is None:
            return cls.unknown(version)
        fields: dict[int, frozenset[int]] = {}
        deleted: dict[int, int] = {}
        for written, fragments in groups:
            shared = frozenset(written)
            for fragment_id, rows in fragments:
                fields[fragment_id], deleted[fragment_id] = shared, rows
        return cls(version, marks_rows, fields, deleted)


def find_column_write(
    content: bytes, before: Manifest | None, version: int, operation: str | None
) -> ColumnWrite | None:
    """Return what the manifest of a version writes in place to fragments of the version before it; None if nothing."""
    if operation in _WRITE_NO_COLUMN:
        return None
    if operation == "restore":
        return ColumnWrite(version, marks_rows=False, fields={})
    if before is None:
        return ColumnWrite.unknown(version)
    fields: dict[int, frozenset[int]] = {}
    deleted: dict[int, int] = {}
    for fragment in read_fragments(content):
        if fragment.id not in before.fragment_ids:
            continue
        new = [file for file in fragment.files if not file.HasField("base_id") and file.path not in before.data_files]
        if new:
            fields[fragment.id] = frozenset(number for file in new for number in file.fields if number >= 0)
            deleted[fragment.id] = fragment.deletion_file.num_deleted_rows
    return ColumnWrite(version, operation in _MARKING, fields, deleted) if fields else None


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
