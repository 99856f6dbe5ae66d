"""Changes between two versions of a table, found from its metadata and row ids."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from pennon.storage.local import LocalFileIO
from pennon.views.refresh.changes import NotComparableError, compare, field_ids, new_columns
from pennon.views.refresh.freshness import is_unchanged


def table(start: int, stop: int) -> pa.Table:
    ids = range(start, stop)
    return pa.table({"id": pa.array(ids), "a": pa.array([i % 5 for i in ids]), "b": [f"b{i}" for i in ids]})


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A table of four fragments with ten rows each."""
    place = str(tmp_path / "table.lance")
    lance.write_dataset(table(0, 40), place, enable_stable_row_ids=True, max_rows_per_file=10)
    return place


def happen(path: str, *works: Callable[[Any], Any]) -> tuple[Any, Any]:
    """Do things to a table, and return it before and after."""
    old = lance.dataset(path)
    for work in works:
        work(lance.dataset(path))
    return old, lance.dataset(path)


def append(start: int, stop: int) -> Callable[[Any], Any]:
    return lambda dataset: lance.write_dataset(table(start, stop), dataset.uri, mode="append")


def changes_between(old: Any, new: Any, columns: list[str] | None = None) -> dict[str, list[int]]:
    """Return what changed by the values of id: of the newer version, and of the older one for what is gone."""
    changes = compare(old, new, columns or ["id", "a"])
    read_from_files = compare(old, new, columns or ["id", "a"], LocalFileIO(new.uri))
    assert read_from_files.added.tolist() == changes.added.tolist()
    assert read_from_files.changed.tolist() == changes.changed.tolist()
    assert read_from_files.removed.tolist() == changes.removed.tolist()

    def ids(dataset: Any, rows: Any) -> list[int]:
        found = dataset._take_rows(pa.array(rows, pa.uint64()), columns=["id"])
        return sorted(found.column("id").to_pylist())

    return {
        "added": ids(new, changes.added),
        "changed": ids(new, changes.changed),
        "gone": ids(old, changes.removed),
    }


NOTHING: dict[str, list[int]] = {"added": [], "changed": [], "gone": []}


def test_rows_that_come_change_and_go(path: str) -> None:
    old, new = happen(
        path,
        append(40, 43),
        lambda dataset: dataset.update({"a": "99"}, where="id in (7, 41)"),
        lambda dataset: dataset.delete("id in (3, 12, 42)"),
    )
    assert changes_between(old, new) == {"added": [40, 41], "changed": [7], "gone": [3, 12]}


def test_upsert_distinguishes_new_from_existing_rows(path: str) -> None:
    def upsert(dataset: Any) -> None:
        merge = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        merge.execute(table(38, 42))

    assert changes_between(*happen(path, upsert)) == {"added": [40, 41], "changed": [38, 39], "gone": []}


def test_compaction_and_indexes_change_nothing(path: str) -> None:
    def compact(dataset: Any) -> None:
        dataset.optimize.compact_files(target_rows_per_fragment=1000)

    old, new = happen(path, compact, lambda dataset: dataset.create_scalar_index("id", "BTREE"))
    assert changes_between(old, new) == NOTHING
    old, new = happen(path, lambda dataset: dataset.delete("id < 5"), compact, append(40, 41), compact)
    assert changes_between(old, new) == {"added": [40], "changed": [], "gone": [0, 1, 2, 3, 4]}


def test_whole_fragments_that_go_are_gone(path: str) -> None:
    old, new = happen(path, lambda dataset: dataset.delete("id >= 10 AND id < 20"))
    assert changes_between(old, new)["gone"] == list(range(10, 20))


def test_restore_gives_back_what_was(path: str) -> None:
    def restore(dataset: Any) -> None:
        dataset.checkout_version(1).restore()

    changing = [lambda dataset: dataset.delete("id = 4"), lambda dataset: dataset.update({"a": "9"}, where="id = 8")]
    happen(path, *changing, append(40, 42))
    old, new = happen(path, restore)
    assert changes_between(old, new) == {"added": [4], "changed": [8], "gone": [40, 41]}


def test_overwrite_replaces_every_row(path: str) -> None:
    old, new = happen(path, lambda dataset: lance.write_dataset(table(0, 3), dataset.uri, mode="overwrite"))
    assert changes_between(old, new) == {"added": [0, 1, 2], "changed": [], "gone": list(range(40))}


def test_columns_that_are_not_read_do_not_matter(path: str) -> None:
    old, new = happen(path, lambda dataset: dataset.add_columns({"c": "a + 1"}), _replace_column("c"))
    assert changes_between(old, new) == NOTHING
    assert changes_between(old, new, ["id"]) == NOTHING
    assert new_columns(old, new) == ["c"]


def test_column_that_is_read_and_written_in_place_changes_its_rows(path: str) -> None:
    happen(path, lambda dataset: dataset.add_columns({"c": "a + 1"}))
    old, new = happen(path, _replace_column("c"))
    assert changes_between(old, new, ["id", "c"])["changed"] == list(range(10))
    assert changes_between(old, new, ["id", "a"]) == NOTHING


def _update_column(*, named: bool) -> Callable[[Any], Any]:
    """Write a column of the second fragment in place, as pylance's ``update_columns`` does."""

    def update(dataset: Any) -> None:
        changed = pa.table({"id": [12], "a": pa.array([5], dataset.schema.field("a").type)})
        metadata, fields = dataset.get_fragments()[1].update_columns(changed, left_on="id", right_on="id")
        operation = lance.LanceOperation.Update(updated_fragments=[metadata], fields_modified=fields if named else [])
        lance.LanceDataset.commit(dataset, operation, read_version=dataset.version)

    return update


@pytest.mark.parametrize("named", [True, False])
def test_update_in_place_changes_the_rows_of_its_fragments(path: str, *, named: bool) -> None:
    old, new = happen(path, append(40, 42), _update_column(named=named), lambda dataset: dataset.delete("id = 30"))
    assert changes_between(old, new) == {"added": [40, 41], "changed": list(range(10, 20)), "gone": [30]}
    assert changes_between(old, new, ["id"])["changed"] == []
    assert not untouched(path, _update_column(named=named))


def test_update_in_place_is_known_after_a_compaction(path: str) -> None:
    old, new = happen(path, append(40, 41), _update_column(named=True), compact)
    assert 12 in changes_between(old, new)["changed"]
    assert changes_between(old, new, ["id"]) == {"added": [40], "changed": [], "gone": []}


def test_column_that_is_dropped_and_made_again_changes_all_rows(path: str) -> None:
    """The new one may have the id of the old one, and the rows do not tell that they changed."""
    happen(path, lambda dataset: dataset.add_columns({"c": "a + 1"}))
    old, new = happen(
        path,
        lambda dataset: dataset.drop_columns(["c"]),
        lambda dataset: dataset.add_columns(pa.field("c", pa.int64())),
    )
    assert changes_between(old, new, ["id", "c"])["changed"] == list(range(40)) or field_ids(old, ["c"]) != field_ids(
        new, ["c"]
    )
    assert changes_between(old, new, ["id", "a"]) == NOTHING


def test_the_same_version_is_not_looked_at(path: str) -> None:
    dataset = lance.dataset(path)
    assert compare(dataset, dataset, ["no such column"]).is_empty


def test_tables_without_stable_row_ids_cannot_be_compared(tmp_path: Path) -> None:
    place = str(tmp_path / "plain.lance")
    lance.write_dataset(table(0, 5), place)
    old, new = happen(place, append(5, 6))
    with pytest.raises(NotComparableError, match="without stable row ids"):
        compare(old, new, ["id"])
    old, new = happen(place, lambda dataset: dataset.create_scalar_index("id", "BTREE"))
    assert compare(old, new, ["id"]).is_empty


def _replace_column(name: str) -> Callable[[Any], Any]:
    """Rewrite a column of the first fragment, as a backfill does."""

    def replace(dataset: Any) -> None:
        from lance.file import LanceFileWriter
        from lance.fragment import DataFile

        schema = pa.schema([dataset.schema.field(name)])
        file = "replaced.lance"
        with LanceFileWriter(f"{dataset.uri}/data/{file}", schema, version=dataset.data_storage_version) as writer:
            writer.write_batch(pa.record_batch([pa.array([77] * 10, pa.int64())], schema=schema))
        group = lance.LanceOperation.DataReplacementGroup(0, DataFile.create(dataset, file))
        lance.LanceDataset.commit(dataset, lance.LanceOperation.DataReplacement([group]), read_version=dataset.version)

    return replace


# What metadata alone tells.


def untouched(path: str, *works: Callable[[Any], Any], follows_columns: bool = False) -> bool:
    old, new = happen(path, *works)
    return is_unchanged(
        lambda version: lance.dataset(path, version=version),
        old.version,
        new.version,
        ["id", "a"],
        follows_columns=follows_columns,
    )


def index(dataset: Any) -> None:
    dataset.create_scalar_index("id", "BTREE")


def compact(dataset: Any) -> None:
    dataset.optimize.compact_files()


def configure(dataset: Any) -> None:
    dataset.update_config({"key": "value"})


def widen(dataset: Any) -> None:
    dataset.add_columns({"more": "id + 1"})


def add_other(dataset: Any) -> None:
    dataset.add_columns(pa.field("other", pa.int64()))


@pytest.mark.parametrize(
    "works", [(index,), (compact,), (configure,), (widen,), (compact, add_other), (index, compact, configure, widen)]
)
def test_nothing_is_new_after_what_changes_no_row(path: str, works: tuple[Callable[[Any], Any], ...]) -> None:
    assert untouched(path, *works)


@pytest.mark.parametrize(
    "work",
    [
        append(40, 41),
        lambda dataset: dataset.delete("id = 3"),
        lambda dataset: dataset.update({"a": "9"}, where="id = 3"),
        lambda dataset: lance.write_dataset(table(0, 3), dataset.uri, mode="overwrite"),
        lambda dataset: dataset.alter_columns({"path": "a", "data_type": pa.int32()}),
    ],
)
def test_rows_that_come_change_or_go_are_new(path: str, work: Callable[[Any], Any]) -> None:
    assert not untouched(path, index, work, compact)


def test_new_columns_are_new_to_a_view_that_follows_them(path: str) -> None:
    assert not untouched(path, widen, follows_columns=True)
