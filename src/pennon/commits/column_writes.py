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

from pennon.commits.manifest import Manifest, read_fragments

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
