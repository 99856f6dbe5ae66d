"""Reading: descriptions, counts, scans, vector and hybrid search, versions."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest
from lancedb.index import FTS
from lancedb.query import ColumnOrdering
from lancedb.rerankers import RRFReranker

from tests.clients.remote.conftest import Run
from tests.clients.remote.data import ids, new_name, rows, vector


def test_schema_version_and_location_are_returned(table: Any) -> None:
    assert table.schema == rows(0).schema
    assert table.version == 1
    assert table.uri
    table.add(rows(100, 101))
    assert table.version == 2


def test_rows_are_counted_also_with_a_filter(table: Any) -> None:
    assert table.count_rows() == 100
    assert table.count_rows("id < 10 AND colour = 'red'") == 4


def test_head_returns_the_first_rows(table: Any) -> None:
    assert ids(table.head(3)) == [0, 1, 2]


def test_a_scan_without_a_limit_returns_all_rows(table: Any) -> None:
    assert ids(table.search().to_arrow()) == list(range(100))


def test_a_scan_takes_a_limit_an_offset_and_a_filter(table: Any) -> None:
    assert ids(table.search().limit(5).to_arrow()) == [0, 1, 2, 3, 4]
    assert ids(table.search().limit(3).offset(10).to_arrow()) == [10, 11, 12]
    assert ids(table.search().where("id % 50 = 7").to_arrow()) == [7, 57]


def test_columns_are_selected_by_name_and_by_expression(table: Any) -> None:
    by_name = table.search().select(["colour", "id"]).limit(1).to_arrow()
    assert by_name.to_pylist() == [{"colour": "red", "id": 0}]
    computed = table.search().select({"double": "id * 2", "shout": "upper(colour)"}).limit(2).to_arrow()
    assert computed.to_pylist() == [{"double": 0, "shout": "RED"}, {"double": 2, "shout": "GREEN"}]


def test_the_nearest_vectors_come_first_with_their_distance(table: Any) -> None:
    found = table.search(vector(41.2)).limit(3).to_arrow()
    assert ids(found) == [41, 42, 40]
    assert found["_distance"].to_pylist() == pytest.approx([8 * 0.04, 8 * 0.64, 8 * 1.44], rel=1e-4)


@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
def test_the_distance_type_is_chosen_by_the_query(table: Any, metric: str) -> None:
    found = table.search(vector(10)).distance_type(metric).limit(1).to_arrow()
    expected = {"l2": 0.0, "cosine": 0.0, "dot": 1.0 - 8 * 99.0 * 10}[metric]
    assert found["_distance"].to_pylist() == pytest.approx([expected], abs=1e-4)


def test_a_filter_applies_before_the_search_or_after_it(table: Any) -> None:
    before = table.search(vector(10)).where("id >= 50", prefilter=True).limit(2).to_arrow()
    after = table.search(vector(10)).where("id >= 50", prefilter=False).limit(2).to_arrow()
    assert (ids(before), ids(after)) == ([50, 51], [])


def test_a_search_takes_offset_and_distance_bounds(table: Any) -> None:
    assert ids(table.search(vector(20.1)).limit(2).offset(1).to_arrow()) == [21, 19]
    bounded = table.search(vector(20)).distance_range(7.0, 40.0).limit(10).to_arrow()
    assert sorted(ids(bounded)) == [18, 19, 21, 22]


def test_a_search_selects_columns_and_row_ids(table: Any) -> None:
    found = table.search(vector(3)).select(["id"]).with_row_id(True).limit(1).to_arrow()
    assert found.schema.names[0] == "id"
    assert {"_rowid", "_distance"} <= set(found.schema.names)


def test_several_vectors_are_searched_at_once_and_numbered(run: Run) -> None:
    async def work(db: Any) -> None:
        table = await db.create_table(new_name(), rows(100))
        query = table.query().nearest_to([vector(7), vector(90), vector(33)]).limit(2)
        found = await query.select(["id"]).to_arrow()
        assert sorted(zip(found["query_index"].to_pylist(), ids(found), strict=True))[::2] == [(0, 6), (1, 89), (2, 32)]
        assert found.schema.field("query_index").type == pa.int32()
        assert found.num_rows == 6

    run(work)


def test_a_named_vector_column_is_searched_when_there_are_two(db: Any) -> None:
    data = rows(50).append_column("other", rows(50, 100)["vector"])
    table = db.create_table(new_name(), data)
    found = table.search(vector(60), vector_column_name="other").limit(1).to_arrow()
    assert ids(found) == [10]


def test_rows_are_taken_by_row_id_and_by_offset(table: Any) -> None:
    all_rows = table.search().with_row_id(True).to_arrow()
    row_ids = all_rows["_rowid"].to_pylist()
    taken = table.take_row_ids([row_ids[4], row_ids[90]]).to_arrow()
    assert sorted(ids(taken)) == [4, 90]
    assert sorted(ids(table.take_offsets([3, 50, 7]).to_arrow())) == [3, 7, 50]
    table.delete("id = 3")
    assert ids(table.take_offsets([3]).to_arrow()) == [4]


def test_plans_are_explained_and_analysed(table: Any) -> None:
    plan = table.search(vector(3)).where("id > 5").limit(2).explain_plan(True)
    assert "KNN" in plan
    analysed = table.search(vector(3)).limit(2).analyze_plan()
    assert "output_rows" in analysed


def test_hybrid_search_joins_both_rankings(db: Any) -> None:
    table = db.create_table(new_name(), rows(100))
    table.create_index("text", config=FTS())
    found = (
        table.search(query_type="hybrid")
        .vector(vector(31))
        .text("green")
        .rerank(RRFReranker())
        .select(["id", "colour"])
        .limit(10)
        .to_arrow()
    )
    assert 31 in ids(found)[:3]
    assert "_relevance_score" in found.schema.names
    assert "green" in found["colour"].to_pylist()


def test_versions_are_listed_and_read_by_number_and_by_tag(db: Any, table: Any) -> None:
    table.add(rows(100, 110))
    table.delete("id < 5")
    listed = table.list_versions()
    assert [version["version"] for version in listed] == [1, 2, 3]
    assert all(isinstance(version["timestamp"], datetime) for version in listed)
    table.tags.create("full", 2)
    reader = db.open_table(table.name)
    for wanted, expected in ((1, 100), ("full", 110), (3, 105)):
        reader.checkout(wanted)
        assert reader.count_rows() == expected
        assert len(ids(reader.search().to_arrow())) == expected
    reader.checkout(1)
    table.delete("true")
    assert reader.count_rows() == 100
    reader.checkout_latest()
    assert reader.count_rows() == 0


def test_a_table_is_opened_at_a_version(db: Any, table: Any) -> None:
    table.add(rows(100, 110))
    assert db.open_table(table.name, version=1).count_rows() == 100


def test_a_handle_at_an_old_version_cannot_write(table: Any) -> None:
    table.add(rows(100, 110))
    table.checkout(1)
    with pytest.raises(Exception, match=r"checkout|version"):
        table.add(rows(3))
    table.checkout_latest()
    assert table.count_rows() == 110


def test_versions_and_tags_that_do_not_exist_are_refused(table: Any) -> None:
    with pytest.raises(Exception, match="version"):
        table.checkout(99)
    with pytest.raises(Exception, match="tag"):
        table.checkout("nothing")


def test_statistics_count_live_rows(table: Any) -> None:
    table.add(rows(100, 150))
    table.delete("id >= 140")
    stats = table.stats()
    assert (stats["num_rows"], stats["num_indices"]) == (140, 0)
    assert stats["total_bytes"] > 0
    assert stats["fragment_stats"]["num_fragments"] == 2
    assert stats["fragment_stats"]["lengths"]["max"] == 100


def test_rows_are_ordered_by_columns(run: Run) -> None:
    async def work(db: Any) -> None:
        table = await db.create_table(new_name(), rows(9))
        order = [ColumnOrdering(column_name="colour"), ColumnOrdering(column_name="id", ascending=False)]
        assert ids(await table.query().order_by(order).to_arrow()) == [8, 5, 2, 7, 4, 1, 6, 3, 0]

    run(work)


def test_the_asynchronous_client_reads_the_same(run: Run) -> None:
    async def work(db: Any) -> None:
        table = await db.create_table(new_name(), rows(100))
        assert await table.schema() == rows(0).schema
        assert await table.version() == 1
        assert await table.count_rows("id < 10") == 10
        assert (await table.to_arrow()).equals(rows(100))
        assert ids(await table.query().where("id > 95").select(["id"]).to_arrow()) == [96, 97, 98, 99]
        assert ids(await table.vector_search(vector(5.4)).limit(2).to_arrow()) == [5, 6]
        assert sorted(ids(await table.take_offsets([9, 1]).to_arrow())) == [1, 9]
        assert "id" in await table.query().limit(1).explain_plan()
        batches = [batch async for batch in await table.query().to_batches()]
        assert sum(batch.num_rows for batch in batches) == 100
        assert (await table.stats())["num_rows"] == 100
        await table.add(rows(100, 101))
        assert [version["version"] for version in await table.list_versions()] == [1, 2]
        await table.checkout(1)
        assert await table.count_rows() == 100

    run(work)
