"""What a commit wrote in place, from its manifest and the one before it; and what becomes of what was known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from pennon.columns.row_states import RowStates, Segment
from pennon.columns.write_effects import apply_column_writes
from pennon.commits.column_writes import ColumnWrite
from pennon.commits.manifest import parse_manifest
from pennon.commits.staging import column_write_of
from pennon.storage.layout import manifest_name
from pennon.storage.local import LocalFileIO

Work = Callable[[lance.LanceDataset], Any]


def _updated(dataset: lance.LanceDataset) -> tuple[Any, list[int]]:
    changed = pa.table({"id": [6], "a": [100]})
    updated: tuple[Any, list[int]] = dataset.get_fragments()[1].update_columns(changed, left_on="id", right_on="id")
    return updated


def _commit(dataset: lance.LanceDataset, operation: Any) -> None:
    lance.LanceDataset.commit(dataset, operation, read_version=dataset.version)


def update_in_place(dataset: lance.LanceDataset) -> None:
    metadata, _ = _updated(dataset)
    _commit(dataset, lance.LanceOperation.Update(updated_fragments=[metadata]))


def replace_data(dataset: lance.LanceDataset) -> None:
    (file,) = (each for each in _updated(dataset)[0].files if list(each.fields) == [1])
    group = lance.LanceOperation.DataReplacementGroup(1, file)
    _commit(dataset, lance.LanceOperation.DataReplacement([group]))


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        (update_in_place, ({1: {1}}, False, {1: 1})),
        (replace_data, ({1: {1}}, True, {1: 1})),
        (lambda dataset: dataset.add_columns({"c": "a + 1"}), ({0: {2}, 1: {2}}, True, {0: 0, 1: 1})),
        (lambda dataset: dataset.checkout_version(1).restore(), ({}, False, {})),
        (lambda dataset: dataset.add_columns(pa.field("c", pa.int64())), None),
        (lambda dataset: dataset.insert(pa.table({"id": [10], "a": [10]})), None),
        (lambda dataset: dataset.update({"a": "9"}, where="id = 2"), None),
        (lambda dataset: dataset.delete("id = 2"), None),
        (lambda dataset: dataset.optimize.compact_files(), None),
        (lambda dataset: dataset.create_scalar_index("id", "BTREE"), None),
    ],
)
def test_columns_written_in_place_are_found(tmp_path: Path, work: Work, expected: Any) -> None:
    path = tmp_path / "table.lance"
    rows = pa.table({"id": range(10), "a": range(10)})
    lance.write_dataset(rows, path, enable_stable_row_ids=True, max_rows_per_file=5, enable_v2_manifest_paths=True)
    lance.dataset(path).delete("id = 7")
    work(lance.dataset(path))
    newest = lance.dataset(path).version
    contents = [(path / "_versions" / manifest_name(number, "V2")).read_bytes() for number in (newest - 1, newest)]
    before, after = (parse_manifest(content) for content in contents)
    found = column_write_of(LocalFileIO(str(path)), "", contents[1], after, before)
    if found is not None:
        found = ColumnWrite.decode(found.version, found.encode())
        assert found.version == newest
    assert (found and (found.fields, found.marks_rows, found.deleted)) == expected


def test_a_commit_that_cannot_be_compared_may_have_written_anything(tmp_path: Path) -> None:
    path = tmp_path / "table.lance"
    rows = pa.table({"id": range(10), "a": range(10)})
    lance.write_dataset(rows, path, max_rows_per_file=5, enable_v2_manifest_paths=True)
    update_in_place(lance.dataset(path))
    lance.dataset(path).insert(pa.table({"id": [10], "a": [10]}))
    found = []
    for number in (1, 2, 3):
        content = (path / "_versions" / manifest_name(number, "V2")).read_bytes()
        found.append(column_write_of(LocalFileIO(str(path)), "", content, parse_manifest(content), None))
    assert found == [None, ColumnWrite.unknown(2), None]
    assert ColumnWrite.decode(2, ColumnWrite.unknown(2).encode()) == ColumnWrite.unknown(2)


def _states(valid_at: int, deleted: int = 0) -> RowStates:
    ids = ((0, 10 - deleted), *([(-1, deleted)] if deleted else []))
    return RowStates((Segment("f", 2, valid_at, ((0, 10 - deleted),)),), ids)


def _write(version: int, fragment: int, field: int, *, marks_rows: bool = True, deleted: int = 0) -> ColumnWrite:
    return ColumnWrite(version, marks_rows, {fragment: frozenset({field})}, {fragment: deleted})


RESTORE = ColumnWrite(6, marks_rows=False, fields={})
#: The field of the input is 1.
FIELD_IDS = frozenset({1, 5})


@pytest.mark.parametrize(
    ("writes", "outcome"),
    [
        ([], ("done", 4)),
        ([_write(7, 0, 1, marks_rows=False)], ("stale", 4)),
        ([_write(3, 0, 1, marks_rows=False)], ("done", 4)),  # before it was computed
        ([_write(7, 3, 1)], ("stale", 4)),  # of a fragment to which the rows may have moved
        ([_write(7, 1, 1)], ("done", 4)),  # of another one that is known
        ([_write(7, 0, 2)], ("done", 7)),  # of another column
        ([_write(7, 0, 2, marks_rows=False)], ("done", 4)),
        ([_write(7, 0, 2, deleted=1)], ("done", 4)),  # a row has left the fragment
        ([RESTORE, _write(7, 0, 2)], ("done", 4)),
        ([_write(7, 0, 2), _write(8, 0, 1)], ("stale", 7)),
        ([ColumnWrite.unknown(7)], ("stale", 4)),
        ([ColumnWrite.unknown(4)], ("done", 4)),
    ],
)
def test_what_is_known_follows_what_was_written(writes: list[ColumnWrite], outcome: tuple[str, int]) -> None:
    (_, state), _ = apply_column_writes([(0, _states(4)), (1, _states(8))], writes, FIELD_IDS)
    (segment,) = state.segments
    assert ("stale" if segment.stale else "done", segment.valid_at) == outcome
