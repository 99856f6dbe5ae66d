"""Column writes: which columns of which fragments a commit wrote in place.

Lance marks the rows of such a commit as written if it merges or replaces columns, but not if it updates columns. A
compaction then erases the difference. So the data files of each version are compared with those of the previous
version: by the commit authority, which records the result, and for unmanaged tables on demand, while their manifests
exist.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from pennon.commits.manifest import Manifest, read_fragments

#: Operations that add no file to an existing fragment.
_WRITE_NO_COLUMN = frozenset(
    {"append", "delete", "overwrite", "create_index", "rewrite", "reserve_fragments", "project", "clone"}
    | {"update_config", "update_bases", "update_mem_wal_state"}
)
#: Operations that set the updated-at version of every row in the fragments they write to.
_MARKING = frozenset({"merge", "data_replacement"})


@dataclass(frozen=True)
class ColumnWrite:
    """What one version wrote to fragments of the previous version; without any field, it is a restore."""

    version: int
    #: Whether Lance marked all rows of these fragments as updated at this version.
    marks_rows: bool
    #: The ids of the written fields, by fragment.
    fields: Mapping[int, frozenset[int]]
    #: The number of deleted rows, by fragment.
    deleted: Mapping[int, int] = field(default_factory=dict)
    #: Whether this version or an earlier one could not be compared, and may have written any field of any fragment.
    is_unknown: bool = False

    @classmethod
    def unknown(cls, version: int) -> ColumnWrite:
        """Return an unknown write: any field may have been written up to a version."""
        return cls(version, marks_rows=False, fields={}, is_unknown=True)

    def encode(self) -> bytes:
        """Encode for the catalog; fragments with the same fields are grouped."""
        if self.is_unknown:
            return zlib.compress(json.dumps([self.marks_rows, None]).encode())
        groups: dict[frozenset[int], list[tuple[int, int]]] = {}
        for fragment_id, fields in self.fields.items():
            groups.setdefault(fields, []).append((fragment_id, self.deleted.get(fragment_id, 0)))
        stored = [self.marks_rows, [[sorted(fields), fragments] for fields, fragments in groups.items()]]
        return zlib.compress(json.dumps(stored).encode())

    @classmethod
    def decode(cls, version: int, state: bytes) -> ColumnWrite:
        """Decode the record of the catalog."""
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
    """Return what a manifest writes in place to fragments of the previous version; None if nothing."""
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
