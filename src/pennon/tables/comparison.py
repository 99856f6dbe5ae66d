"""Comparison of a branch with main, and of versions; merging the additions of a branch into main."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias, cast

import pyarrow as pa
from lance_namespace.errors import ConcurrentModificationError

from pennon.tables.arrow_json import type_to_json
from pennon.tables.blobs import has_blobs
from pennon.tables.field_files import field_ids_of, files_digest
from pennon.tables.indexes import describe_indices
from pennon.tables.query.row_sizes import batch_rows_for, row_sizes_of

if TYPE_CHECKING:
    from lance import LanceDataset
    from lance.dataset import DatasetDelta
    from lance.fragment import LanceFragment

    from pennon.core.arrow_typing import AnyField

Json: TypeAlias = dict[str, object]


@dataclass(frozen=True)
class Comparison:
    """The differences between a branch and main."""

    branch: str
    parent_version: int
    main: LanceDataset
    other: LanceDataset
    added: list[AnyField] = field(default_factory=list)
    removed: list[AnyField] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    new_on_main: int = 0
    new_on_branch: int = 0
    changed_on_branch: int = 0
    deleted_on_branch: int = 0
    #: Whether rows were compared, which needs stable row ids.
    has_row_ids: bool = False

    @property
    def base_moved(self) -> bool:
        """Whether main has new versions since the branch was created."""
        return bool(self.main.version != self.parent_version)

    @property
    def blockers(self) -> list[Json]:
        """The reasons why the branch cannot be merged; empty if it can."""
        found: list[Json] = []
        if self.base_moved:
            found.append({"code": "baseMoved", "message": "main has advanced since the branch was created"})
        if self.removed:
            found.append({"code": "columnRemoved", "message": "the branch removed columns of main"})
        if self.changed:
            found.append({"code": "columnChanged", "message": "the branch changed columns of main"})
        if self.changed_on_branch or self.deleted_on_branch:
            found.append({"code": "rowsChanged", "message": "the branch changed or deleted rows of main"})
        if not self.has_row_ids:
            found.append({"code": "noStableRowIds", "message": "the table has no stable row ids to match rows by"})
        return found

    def to_json(self) -> Json:
        """Return the comparison in the form of LanceDB's client."""
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
                "deltaAvailable": self.has_row_ids,
            },
            "addedColumns": [_column(item) for item in self.added],
            "removedColumns": [_column(item) for item in self.removed],
            "changedColumns": [self._change(name) for name in self.changed],
            "addedIndexes": _more_indexes(self.other, self.main),
            "removedIndexes": _more_indexes(self.main, self.other),
            "errors": self.blockers,
        }

    def _change(self, name: str) -> Json:
        main, branch = (_column(dataset.schema.field(name)) for dataset in (self.main, self.other))
        return {"name": name, "main": main, "branch": branch}


def compare(
    main: LanceDataset, other: LanceDataset, branch: str, parent_version: int, open_main: Callable[[int], LanceDataset]
) -> Comparison:
    """Compare a branch with main, including rows if the table has stable row ids."""
    ours, theirs = main.schema, other.schema
    added = [item for item in theirs if item.name not in ours.names]
    removed = [item for item in ours if item.name not in theirs.names]
    changed = [item.name for item in ours if item.name in theirs.names and theirs.field(item.name).type != item.type]
    has_row_ids = bool(main.has_stable_row_ids and other.has_stable_row_ids)
    return Comparison(
        branch=branch,
        parent_version=parent_version,
        main=main,
        other=other,
        added=added,
        removed=removed,
        changed=changed,
        new_on_main=_count(_delta(main, parent_version).get_inserted_rows()) if has_row_ids else 0,
        new_on_branch=_count(_delta(other, parent_version).get_inserted_rows()) if has_row_ids else 0,
        changed_on_branch=_count_changed(open_main(parent_version), other) if has_row_ids else 0,
        deleted_on_branch=_count(_delta(other, parent_version).get_deleted_row_ids()) if has_row_ids else 0,
        has_row_ids=has_row_ids,
    )


def merge_branch(target: LanceDataset, found: Comparison) -> None:
    """Add the columns and rows of the branch to main."""
    if target.version != found.main.version:
        raise ConcurrentModificationError("main has advanced since the comparison; compare again.")
    if found.added:
        names = [item.name for item in found.added]
        batch_rows = batch_rows_for(row_sizes_of(found.other).selected_bytes(names))
        columns = found.other.scanner(columns=names, with_row_id=True, batch_size=batch_rows).to_reader()
        target.merge(columns, left_on="_rowid", right_on="_rowid")
    if found.new_on_branch:
        inserted = _delta(found.other, found.parent_version).get_inserted_rows()
        names = target.schema.names
        batches = (batch.select(names) for batch in inserted)
        target.insert(pa.RecordBatchReader.from_batches(target.schema, batches))


def compare_schemas(older: LanceDataset, newer: LanceDataset) -> Json:
    """Return the differences in columns and indexes between two versions."""
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


def _delta(dataset: LanceDataset, version: int) -> DatasetDelta:
    return dataset.delta(compared_against=version)


def _count(batches: Iterable[pa.RecordBatch]) -> int:
    return sum(batch.num_rows for batch in batches)


def _count_changed(base: LanceDataset, other: LanceDataset) -> int:
    """Count the rows of a base that have different values in a later version.

    The version of their last write is not enough: a new column rewrites rows without a change of other values.
    """
    names = [item.name for item in base.schema if _type_in(other.schema, item.name) == item.type]
    fragments = _rewritten(base, other, names)
    if not fragments:
        return 0
    # Blobs are compared by their location, which differs after a rewrite: their rows count as changed.
    compared = [] if any(has_blobs(base.schema.field(name)) for name in names) else names
    written = f"_row_created_at_version <= {base.version} AND _row_last_updated_at_version > {base.version}"
    # Twice, because the rows of the base are read as well.
    batch_rows = batch_rows_for(2 * row_sizes_of(other).selected_bytes(compared))
    scanner = other.scanner(compared, written, fragments=fragments, with_row_id=True, batch_size=batch_rows)
    return sum(_count_differing(base, batch, compared) for batch in scanner.to_batches())


def _count_differing(base: LanceDataset, batch: pa.RecordBatch, names: list[str]) -> int:
    if not names:
        return int(batch.num_rows)
    row_ids = cast("list[int]", batch.column("_rowid").to_pylist())
    before = base._take_rows(row_ids, columns=names)  # noqa: SLF001 (no public one)
    after = pa.Table.from_batches([batch]).select(names)
    if before.equals(after):
        return 0
    # By their representation: NaN equals NaN.
    return sum(repr(old) != repr(new) for old, new in zip(before.to_pylist(), after.to_pylist(), strict=True))


def _rewritten(base: LanceDataset, other: LanceDataset, names: list[str]) -> list[LanceFragment]:
    """Return the fragments of a later version whose files for some columns differ from those of a base."""
    shared = [item for item in base.lance_schema.fields() if item.name() in names]
    field_ids = frozenset(leaf for item in shared for leaf in field_ids_of(item))
    known = {fragment.fragment_id: files_digest(fragment.metadata, field_ids) for fragment in base.get_fragments()}
    found = [(fragment, files_digest(fragment.metadata, field_ids)) for fragment in other.get_fragments()]
    return [fragment for fragment, digest in found if known.get(fragment.fragment_id) != digest]


def _type_in(schema: pa.Schema, name: str) -> pa.DataType | None:
    return schema.field(name).type if name in schema.names else None


def _column(item: AnyField) -> Json:
    return {"name": item.name, "dataType": _type_name(item), "nullable": item.nullable}


def _type_name(item: AnyField) -> str:
    return str(type_to_json(item.type)["type"])


def _more_indexes(dataset: LanceDataset, other: LanceDataset) -> list[Json]:
    """Return the indexes that only the first of two datasets has."""
    known = _index_names(other)
    return [
        {"indexName": index.index_name, "indexType": index.index_type, "columns": index.columns, "status": index.status}
        for index in describe_indices(dataset)
        if index.index_name not in known
    ]


def _index_names(dataset: LanceDataset) -> set[str]:
    return {index.name for index in dataset.describe_indices()}
