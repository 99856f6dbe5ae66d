"""Indices of every type: made, waited for, listed, measured, used and dropped."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from lancedb.index import FTS, Bitmap, BTree, Fm, HnswFlat, HnswSq, IvfFlat, IvfPq, IvfRq, IvfSq, LabelList

from tests.clients.remote.conftest import Run
from tests.clients.remote.data import ids, new_name, rows, vector

SOON = timedelta(seconds=60)
VECTORS: dict[str, Any] = {
    "IvfFlat": IvfFlat(distance_type="l2", num_partitions=2),
    "IvfSq": IvfSq(distance_type="l2", num_partitions=2),
    "IvfPq": IvfPq(distance_type="l2", num_partitions=2, num_sub_vectors=2, num_bits=4),
    "IvfRq": IvfRq(distance_type="l2", num_partitions=2),
    "IvfHnswSq": HnswSq(distance_type="l2", num_partitions=1, m=8, ef_construction=40),
    "IvfHnswFlat": HnswFlat(distance_type="l2", num_partitions=1, m=8, ef_construction=40),
}
SCALARS: dict[str, tuple[str, Any, str]] = {
    "BTree": ("id", BTree(), "id = 7"),
    "Bitmap": ("colour", Bitmap(), "colour = 'green' AND id = 7"),
    "LabelList": ("tags", LabelList(), "array_has_any(tags, ['green']) AND id = 7"),
    "Fm": ("text", Fm(), "contains(text, 'house number 7') AND id < 70"),
}


def kind_of(name: str) -> str:
    return name.replace("_", "").lower()


@pytest.mark.parametrize("kind", VECTORS)
def test_a_vector_index_is_built_listed_and_used(db: Any, kind: str) -> None:
    table = db.create_table(new_name(), rows(300))
    table.create_index("vector", config=VECTORS[kind], wait_timeout=SOON)
    (index,) = table.list_indices()
    assert (index.name, list(index.columns)) == ("vector_idx", ["vector"])
    assert kind_of(index.index_type) == kind_of(kind)
    stats = table.index_stats("vector_idx")
    assert (stats.num_indexed_rows, stats.num_unindexed_rows) == (300, 0)
    assert kind_of(stats.index_type) == kind_of(kind)
    assert stats.distance_type == "l2"
    search = table.search(vector(100)).limit(5).nprobes(2).refine_factor(10).select(["id"])
    assert "ANN" in search.explain_plan()
    assert 100 in ids(search.to_arrow())
    assert "ANN" not in table.search(vector(100)).limit(5).bypass_vector_index().explain_plan()


def test_an_index_needs_no_options(db: Any) -> None:
    table = db.create_table(new_name(), rows(300))
    for config in (IvfPq(), IvfFlat(), IvfSq(), IvfRq(), HnswSq(), HnswFlat(), Bitmap()):
        column = "colour" if isinstance(config, Bitmap) else "vector"
        job = table.create_index_async(column, config=config, name=type(config).__name__)
        job.wait()
    with pytest.warns(DeprecationWarning, match="create_index"):
        table.create_index("l2", vector_column_name="vector")
    table.wait_for_index(["IvfPq", "vector_idx"], SOON)
    assert len(table.list_indices()) == 8


def test_a_search_takes_how_much_of_an_index_to_look_at(db: Any) -> None:
    table = db.create_table(new_name(), rows(300))
    table.create_index("vector", config=VECTORS["IvfHnswSq"], wait_timeout=SOON)
    search = table.search(vector(100)).limit(5)
    assert "minimum_nprobes=2, maximum_nprobes=Some(9)" in search.minimum_nprobes(2).maximum_nprobes(9).explain_plan()
    assert "k=15," in search.refine_factor(3).explain_plan()
    with pytest.raises(Exception, match="ef must be greater than or equal to k"):
        table.search(vector(100)).limit(5).ef(4).to_arrow()


@pytest.mark.parametrize("kind", SCALARS)
def test_a_scalar_index_is_built_listed_and_used(table: Any, kind: str) -> None:
    column, config, where = SCALARS[kind]
    table.create_index(column, config=config, wait_timeout=SOON)
    (index,) = table.list_indices()
    assert (index.name, kind_of(index.index_type)) == (f"{column}_idx", kind_of(kind))
    assert table.index_stats(f"{column}_idx").num_indexed_rows == 100
    assert "ScalarIndexQuery" in table.search().where(where).explain_plan()
    assert ids(table.search().where(where).to_arrow()) == [7]


def test_a_full_text_index_is_listed_as_one(table: Any) -> None:
    table.create_index("text", config=FTS(with_position=True), wait_timeout=SOON)
    (index,) = table.list_indices()
    assert (index.name, index.index_type) == ("text_idx", "FTS")
    assert table.index_stats("text_idx").num_unindexed_rows == 0
    assert [token.text for token in table.tokenize("the Red houses", column="text")] == ["red", "hous"]


def test_the_older_calls_build_the_same_indices(table: Any) -> None:
    with pytest.warns(DeprecationWarning, match="create_index"):
        table.create_scalar_index("id", index_type="BTREE", wait_timeout=SOON)
    with pytest.warns(DeprecationWarning, match="create_index"):
        table.create_scalar_index("colour", index_type="BITMAP", wait_timeout=SOON)
    with pytest.warns(DeprecationWarning, match="create_index"):
        table.create_fts_index("text", wait_timeout=SOON)
    assert sorted(index.name for index in table.list_indices()) == ["colour_idx", "id_idx", "text_idx"]


def test_an_index_has_the_name_it_was_given(table: Any) -> None:
    table.create_index("id", config=BTree(), name="my ids/all")
    table.wait_for_index(["my ids/all"], SOON)
    assert [index.name for index in table.list_indices()] == ["my ids/all"]
    assert table.index_stats("my ids/all").num_indexed_rows == 100
    table.drop_index("my ids/all")
    assert table.list_indices() == []


def test_an_index_is_replaced_unless_that_is_refused(table: Any) -> None:
    table.create_index("id", config=BTree(), wait_timeout=SOON)
    table.create_index("id", config=Bitmap(), wait_timeout=SOON)
    assert [kind_of(index.index_type) for index in table.list_indices()] == ["bitmap"]
    with pytest.raises(Exception, match="already has an index 'id_idx'"):
        table.create_index("id", config=BTree(), replace=False)


def test_rows_added_later_are_counted_as_not_indexed_and_still_found(db: Any) -> None:
    table = db.create_table(new_name(), rows(300))
    table.create_index("vector", config=VECTORS["IvfFlat"], wait_timeout=SOON)
    table.add(rows(300, 310))
    stats = table.index_stats("vector_idx")
    assert (stats.num_indexed_rows, stats.num_unindexed_rows) == (300, 10)
    assert ids(table.search(vector(305)).limit(1).to_arrow()) == [305]
    assert ids(table.search(vector(305), fast_search=True).limit(1).to_arrow()) == [299]


def test_an_index_that_does_not_exist_has_no_statistics_and_cannot_be_dropped(table: Any) -> None:
    assert table.index_stats("nothing") is None
    with pytest.raises(Exception, match=r"(?i)index.*nothing|nothing.*index"):
        table.drop_index("nothing")


def test_an_index_that_cannot_be_built_says_why_at_once(table: Any) -> None:
    with pytest.raises(Exception, match="colour"):
        table.create_index("colour", config=VECTORS["IvfFlat"])
    with pytest.raises(Exception, match="nothing"):
        table.create_index("nothing", config=BTree())
    assert table.list_indices() == []


def test_statistics_count_the_indices(table: Any) -> None:
    table.create_index("id", config=BTree(), wait_timeout=SOON)
    assert table.stats()["num_indices"] == 1


def test_the_asynchronous_client_builds_indices_too(run: Run) -> None:
    async def work(db: Any) -> None:
        table = await db.create_table(new_name(), rows(300))
        await table.create_index("vector", config=VECTORS["IvfFlat"])
        await table.create_index("id", config=BTree())
        await table.wait_for_index(["vector_idx", "id_idx"], SOON)
        assert sorted(index.name for index in await table.list_indices()) == ["id_idx", "vector_idx"]
        stats = await table.index_stats("id_idx")
        assert stats.num_indexed_rows == 300
        assert ids(await table.query().where("id = 9").to_arrow()) == [9]
        await table.drop_index("id_idx")
        assert [index.name for index in await table.list_indices()] == ["vector_idx"]

    run(work)
