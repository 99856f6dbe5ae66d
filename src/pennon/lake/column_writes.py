"""Which columns of which fragments a commit wrote in place.

Lance marks the rows of such a commit as written if it merges or replaces columns, and leaves them unmarked if it is an
update by columns. A compaction then erases the traces of either. So the commit authority, which sees the manifest of
every commit and of the version before it, compares their data files and records the difference.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from pennon.catalog.column_writes import MOST_KEPT
from pennon.lake.manifest import Manifest, read_fragments

#: Operations that give no existing fragment a new file.
WRITE_NO_COLUMN = frozenset(
    {"append", "delete", "overwrite", "create_index", "rewrite", "restore", "reserve_fragments", "project", "clone"}
    | {"update_config", "update_bases", "update_mem_wal_state"}
)
#: Operations after which every row of a fragment they wrote to bears the number of their version.
_MARKING = frozenset({"merge", "data_replacement"})


@dataclass(frozen=True)
class ColumnWrite:
    """What one version wrote to fragments that the version before it had, too."""

    version: int
    #: Whether Lance marked all rows of these fragments as written at this version.
    marks_rows: bool
    #: The ids of the fields that were written, by fragment.
    fields: Mapping[int, frozenset[int]]
    #: How many rows of each of the fragments were deleted then.
    deleted: Mapping[int, int] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Return it as the catalog stores it; fragments with the same fields together."""
        groups: dict[frozenset[int], list[tuple[int, int]]] = {}
        for fragment_id, fields in self.fields.items():
            groups.setdefault(fields, []).append((fragment_id, self.deleted.get(fragment_id, 0)))
        stored = [self.marks_rows, [[sorted(fields), fragments] for fields, fragments in groups.items()]]
        return zlib.compress(json.dumps(stored).encode())

    @classmethod
    def decode(cls, version: int, state: bytes) -> ColumnWrite:
        """Return what the catalog stored."""
        marks_rows, groups = json.loads(zlib.decompress(state))
        fields: dict[int, frozenset[int]] = {}
        deleted: dict[int, int] = {}
        for written, fragments in groups:
            shared = frozenset(written)
            for fragment_id, rows in fragments:
                fields[fragment_id], deleted[fragment_id] = shared, rows
        return cls(version, marks_rows, fields, deleted)


def find_column_write(
    content: bytes, manifest: Manifest, before: Manifest, operation: str | None
) -> ColumnWrite | None:
    """Return what a manifest writes in place to fragments of the version before it; None if nothing."""
    if operation in WRITE_NO_COLUMN:
        return None
    fields: dict[int, frozenset[int]] = {}
    deleted: dict[int, int] = {}
    for fragment in read_fragments(content):
        if fragment.id not in before.fragment_ids:
            continue
        new = [file for file in fragment.files if not file.HasField("base_id") and file.path not in before.data_files]
        if new:
            fields[fragment.id] = frozenset(number for file in new for number in file.fields if number >= 0)
            deleted[fragment.id] = fragment.deletion_file.num_deleted_rows
    return ColumnWrite(manifest.version, operation in _MARKING, fields, deleted) if fields else None


def first_reliable(writes: list[ColumnWrite]) -> int:
    """Return the version from which on all writes are recorded: the oldest record if older ones were deleted."""
    return writes[0].version if len(writes) >= MOST_KEPT else 0
