"""Comparing a branch with main, and bringing what it adds over; comparing versions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from lance_namespace.errors import ConcurrentModificationError

from pennon.tables.arrow_json import type_to_json
from pennon.tables.blobs import holds_blobs
from pennon.tables.field_files import files_digest, leaves_of
from pennon.tables.indexes import describe_indices

Json = dict[str, Any]


@dataclass(frozen=True)
class Comparison:
    """What a branch has that main has not, and the other way round."""

    branch: str
    parent_version: int
    main: Any
    other: Any
    added: list[pa.Field] = field(default_factory=list)
    removed: list[pa.Field] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    new_on_main: int = 0
    new_on_branch: int = 0
    changed_on_branch: int = 0
    deleted_on_branch: int = 0
    exact: bool = False

    @property
    def base_moved(self) -> bool:
        """Whether main has gone on since the branch was made."""
        return bool(self.main.version != self.parent_version)

    @property
    def obstacles(self) -> list[Json]:
        """Why the branch cannot be brought over, if it cannot."""
        found = []
        if self.base_moved:
            found.append({"code": "baseMoved", "message": "main has advanced since the branch was made"})
        if self.removed:
            found.append({"code": "columnRemoved", "message": "the branch removed columns of main"})
        if self.changed:
            found.append({"code": "columnChanged", "message": "the branch changed columns of main"})
        if self.changed_on_branch or self.deleted_on_branch:
            found.append({"code": "rowsChanged", "message": "the branch changed or deleted rows of main"})
        if not self.exact:
            found.append({"code": "noStableRowIds", "message": "the table has no stable row ids to match rows by"})
        return found

    def as_json(self) -> Json:
        """Return the comparison as LanceDB's client reads it."""
        return {
            "fromBranch": self.branch,
            "parentVersion": self.parent_version,
            "mainVersion": self.main.version,
            "branchVersion": self.other.version,
            "baseMoved": self.base_moved,
            "rowCountMain": self.main.count_rows(),
            "rowCountBranch": self.other.count_rows(),
            "rowSummary": {
                "unchanged": self.other.count_rows() - self.new_on_branch - self.changed_on_branch,
                "newOnBase": self.new_on_main,
                "newOnBranch": self.new_on_branch,
                "staleRecompute": 0,
                "inputsChanged": 0,
                "deltaAvailable": self.exact,
            },
            "addedColumns": [_column(item) for item in self.added],
            "removedColumns": [_column(item) for item in self.removed],
            "changedColumns": [self._change(name) for name in self.changed],
            "addedIndexes": _more_indexes(self.other, self.main),
            "removedIndexes": _more_indexes(self.main, self.other),
            "errors": self.obstacles,
        }

    def _change(self, name: str) -> Json:
        main, branch = (_column(dataset.schema.field(name)) for dataset in (self.main, self.other))
        return {"name": name, "main": main, "branch": branch}


def compare(main: Any, other: Any, branch: str, parent_version: int, open_main: Callable[[int], Any]) -> Comparison:
    """Compare a branch with main; rows are told apart by their stable ids where the table has them."""
    ours, theirs = main.schema, other.schema
    added = [item for item in theirs if item.name not in ours.names]
    removed = [item for item in ours if item.name not in theirs.names]
    changed = [item.name for item in ours if item.name in theirs.names and theirs.field(item.name).type != item.type]
    exact = bool(main.has_stable_row_ids and other.has_stable_row_ids)
    deleted = _delta(other, parent_version).get_deleted_row_ids() if exact else []
    return Comparison(
        branch=branch,
        parent_version=parent_version,
        main=main,
        other=other,
        added=added,
        removed=removed,
        changed=changed,
        new_on_main=_count(_delta(main, parent_version).get_inserted_rows()) if exact else 0,
        new_on_branch=_count(_delta(other, parent_version).get_inserted_rows()) if exact else 0,
        changed_on_branch=_count_changed(open_main(parent_version), other) if exact else 0,
        deleted_on_branch=_count(deleted),
        exact=exact,
    )


def bring_over(target: Any, found: Comparison) -> None:
    """Add to main the columns and rows that only the branch has."""
    if target.version != found.main.version:
        raise ConcurrentModificationError("main has advanced; compare again.")
    if found.added:
        names = [item.name for item in found.added]
        columns = found.other.scanner(columns=names, with_row_id=True).to_reader()
        target.merge(columns, left_on="_rowid", right_on="_rowid")
    if found.new_on_branch:
        fresh = _delta(found.other, found.parent_version).get_inserted_rows()
        names = target.schema.names
        batches = (batch.select(names) for batch in fresh)
        target.insert(pa.RecordBatchReader.from_batches(target.schema, batches))


def compare_schemas(older: Any, newer: Any) -> Json:
    """Tell which columns and indexes one version has that another has not."""
    ours, theirs = older.schema, newer.schema
    return {
        "added_columns": [_column(item) for item in theirs if item.name not in ours.names],
        "removed_columns": [_column(item) for item in ours if item.name not in theirs.names],
        "changed_columns": [
            {"name": item.name, "from": _type_name(item), "to": _type_name(theirs.field(item.name))}
            for item in ours
            if item.name in theirs.names and theirs.field(item.name).type != item.type
        ],
        "added_indexes": sorted(_index_names(newer) - _index_names(older)),
        "removed_indexes": sorted(_index_names(older) - _index_names(newer)),
    }


def _delta(dataset: Any, version: int) -> Any:
    return dataset.delta(compared_against=version)


def _count(batches: Any) -> int:
    return sum(batch.num_rows for batch in batches)


def _count_changed(base: Any, other: Any) -> int:
    """Count the rows of a base that have other values in a later version.

    That they were written since does not tell: to fill a new column writes rows that stay as they are.
    """
    names = [item.name for item in base.schema if _type_in(other.schema, item.name) == item.type]
    fragments = _rewritten(base, other, names)
    if not fragments:
        return 0
    # Blobs are told by where they are, which is another place then: their rows count as changed.
    compared = [] if any(holds_blobs(base.schema.field(name)) for name in names) else names
    written = f"_row_created_at_version <= {base.version} AND _row_last_updated_at_version > {base.version}"
    scanner = other.scanner(columns=compared, fragments=fragments, filter=written, with_row_id=True)
    return sum(_count_differing(base, batch, compared) for batch in scanner.to_batches())


def _count_differing(base: Any, batch: pa.RecordBatch, names: list[str]) -> int:
    if not names:
        return int(batch.num_rows)
    before = base._take_rows(batch.column("_rowid").to_pylist(), columns=names)  # noqa: SLF001 (no public one)
    after = pa.Table.from_batches([batch]).select(names)
    if before.equals(after):
        return 0
    # As they are written, NaN is NaN.
    return sum(repr(was) != repr(now) for was, now in zip(before.to_pylist(), after.to_pylist(), strict=True))


def _rewritten(base: Any, other: Any, names: list[str]) -> list[Any]:
    """Return the fragments of a later version that have other files than in a base for columns they share."""
    shared = [item for item in base.lance_schema.fields() if item.name() in names]
    leaves = frozenset(leaf for item in shared for leaf in leaves_of(item))
    known = {fragment.fragment_id: files_digest(fragment.metadata, leaves) for fragment in base.get_fragments()}
    found = [(fragment, files_digest(fragment.metadata, leaves)) for fragment in other.get_fragments()]
    return [fragment for fragment, digest in found if known.get(fragment.fragment_id) != digest]


def _type_in(schema: pa.Schema, name: str) -> pa.DataType | None:
    return schema.field(name).type if name in schema.names else None


def _column(item: pa.Field) -> Json:
    return {"name": item.name, "dataType": _type_name(item), "nullable": item.nullable}


def _type_name(item: pa.Field) -> str:
    return str(type_to_json(item.type)["type"])


def _more_indexes(dataset: Any, other: Any) -> list[Json]:
    """Return the indexes that only the first of two datasets has."""
    known = _index_names(other)
    return [
        {"indexName": index.index_name, "indexType": index.index_type, "columns": index.columns, "status": index.status}
        for index in describe_indices(dataset)
        if index.index_name not in known
    ]


def _index_names(dataset: Any) -> set[str]:
    return {index.name for index in dataset.describe_indices()}
