"""Writing: add, overwrite, merge insert, update, delete, restore and tags."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.clients.remote.conftest import Run
from tests.clients.remote.data import ids, new_name, rows, vector


def changed(*bounds: int) -> pa.Table:
    """Return rows of a range whose text tells that they are new."""
    data = rows(*bounds)
    return data.set_column(2, "text", pa.array(["new"] * data.num_rows, pa.string()))


def texts(table: Any, where: str) -> set[str]:
    return set(table.search().where(where).select(["text"]).to_arrow()["text"].to_pylist())


def all_ids(table: Any) -> list[int]:
    return sorted(ids(table.search().select(["id"]).to_arrow()))


def test_rows_are_added_and_the_version_returned(table: Any) -> None:
    assert table.add(rows(100, 103)).version == 2
    assert table.add([{**rows(103, 104).to_pylist()[0]}]).version == 3
    assert all_ids(table) == list(range(104))


def test_rows_are_added_batch_by_batch(table: Any) -> None:
    batches = [batch for start in (100, 110, 120) for batch in rows(start, start + 10).to_batches()]
    table.add(pa.RecordBatchReader.from_batches(rows(0).schema, iter(batches)))
    assert table.count_rows() == 130


def test_adding_nothing_changes_no_row(table: Any) -> None:
    table.add(rows(0))
    assert table.count_rows() == 100


def test_all_rows_are_replaced(table: Any) -> None:
    table.add(rows(5, 8), mode="overwrite")
    assert all_ids(table) == [5, 6, 7]
    table.checkout(1)
    assert table.count_rows() == 100


def test_columns_left_out_are_null(table: Any) -> None:
    table.add(pa.table({"id": pa.array([500], pa.int64()), "vector": rows(1)["vector"]}))
    assert table.search().where("id = 500").to_arrow()["text"].to_pylist() == [None]


def test_matching_rows_are_updated_and_others_inserted(table: Any) -> None:
    merge = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    result = merge.execute(changed(90, 110))
    assert (result.num_updated_rows, result.num_inserted_rows, result.num_deleted_rows) == (10, 10, 0)
    assert result.version == 2
    assert all_ids(table) == list(range(110))
    assert texts(table, "id >= 90") == {"new"}
    assert "new" not in texts(table, "id < 90")


def test_only_missing_rows_are_inserted(table: Any) -> None:
    result = table.merge_insert("id").when_not_matched_insert_all().execute(changed(95, 105))
    assert (result.num_updated_rows, result.num_inserted_rows) == (0, 5)
    assert texts(table, "id >= 100") == {"new"}
    assert "new" not in texts(table, "id < 100")


def test_matching_rows_are_updated_on_a_condition(table: Any) -> None:
    merge = table.merge_insert("id").when_matched_update_all(where="target.id >= 98")
    assert merge.execute(changed(90, 110)).num_updated_rows == 2
    assert all_ids(table) == list(range(100))
    assert pc.sum(pc.equal(table.search().to_arrow()["text"], "new")).as_py() == 2


def test_rows_the_source_lacks_are_deleted(table: Any) -> None:
    merge = table.merge_insert("id").when_not_matched_insert_all().when_not_matched_by_source_delete()
    assert merge.execute(rows(50, 60)).num_deleted_rows == 90
    assert all_ids(table) == list(range(50, 60))


def test_rows_the_source_lacks_are_deleted_on_a_condition(table: Any) -> None:
    merge = table.merge_insert("id").when_matched_update_all().when_not_matched_by_source_delete("id < 10")
    assert merge.execute(rows(5, 6)).num_deleted_rows == 9
    assert all_ids(table) == [5, *range(10, 100)]


def test_rows_are_matched_by_several_columns(db: Any) -> None:
    def data(pairs: list[tuple[int, str]], value: int) -> pa.Table:
        return pa.table({"a": [a for a, _ in pairs], "b": [b for _, b in pairs], "value": [value] * len(pairs)})

    table = db.create_table(new_name(), data([(1, "x"), (1, "y"), (2, "x")], 0))
    merge = table.merge_insert(["a", "b"]).when_matched_update_all().when_not_matched_insert_all()
    merge.execute(data([(1, "y"), (2, "y")], 9))
    found = table.search().to_arrow().sort_by([("a", "ascending"), ("b", "ascending")])
    assert found["value"].to_pylist() == [0, 9, 0, 9]


def test_a_merge_can_do_without_an_index(table: Any) -> None:
    merge = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().use_index(False)
    assert merge.execute(changed(99, 101)).num_inserted_rows == 1


def test_a_merge_that_takes_too_long_says_that_it_timed_out(table: Any) -> None:
    merge = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    with pytest.raises(Exception, match="timed out"):
        merge.execute(changed(0, 100), timeout=timedelta(0))
    assert table.count_rows() == 100
    assert texts(table, "true") == set(rows(100)["text"].to_pylist())


def test_a_merge_in_time_succeeds(table: Any) -> None:
    merge = table.merge_insert("id").when_not_matched_insert_all()
    assert merge.execute(rows(100, 101), timeout=timedelta(seconds=120)).num_inserted_rows == 1


def test_rows_are_updated_by_values_and_by_expressions(table: Any) -> None:
    result = table.update(where="id < 3", values={"text": 'it\'s "new"', "vector": vector(7)})
    assert (result.rows_updated, result.version) == (3, 2)
    assert texts(table, "id < 3") == {'it\'s "new"'}
    assert table.update(values_sql={"id": "id + 1000"}).rows_updated == 100
    assert all_ids(table)[0] == 1000


def test_rows_are_deleted(table: Any) -> None:
    result = table.delete("id >= 10")
    assert (result.version, result.num_deleted_rows) == (2, 90)
    assert all_ids(table) == list(range(10))
    table.delete("id > 1000")
    assert table.count_rows() == 10


def test_an_earlier_version_is_restored(table: Any) -> None:
    table.delete("true")
    table.restore(1)
    assert (table.version, table.count_rows()) == (3, 100)
    table.checkout(2)
    table.restore()
    assert (table.version, table.count_rows()) == (4, 0)


def test_tags_are_made_moved_listed_and_removed(table: Any) -> None:
    table.add(rows(100, 101))
    table.tags.create("first", 1)
    table.tags.create("second", 2)
    assert table.tags.get_version("first") == 1
    assert {name: tag["version"] for name, tag in table.tags.list().items()} == {"first": 1, "second": 2}
    table.tags.update("first", 2)
    assert table.tags.get_version("first") == 2
    table.tags.delete("first")
    assert list(table.tags.list()) == ["second"]
    with pytest.raises(Exception, match="already exists"):
        table.tags.create("second", 1)
    for missing in (table.tags.get_version, table.tags.delete):
        with pytest.raises(Exception, match=r"no tag 'secnd'. Did you mean 'second'"):
            missing("secnd")
    with pytest.raises(Exception, match="no version 77"):
        table.tags.create("third", 77)


def test_the_asynchronous_client_writes_the_same(run: Run) -> None:
    async def work(db: Any) -> None:
        table = await db.create_table(new_name(), rows(100))
        assert (await table.add(rows(100, 110))).version == 2
        merge = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        assert (await merge.execute(changed(105, 120))).num_inserted_rows == 10
        assert (await table.update({"text": "x"}, where="id < 5")).rows_updated == 5
        assert (await table.delete("id >= 115")).version == 5
        await table.tags.create("here", 5)
        await table.restore(1)
        assert await table.count_rows() == 100
        await table.add(rows(3), mode="overwrite")
        assert await table.count_rows() == 3

    run(work)
