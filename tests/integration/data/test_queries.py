"""Queries: limits, columns, order, filters, vectors, and versions that do not move."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.integration.data.tables import WIDTH, DataTable, error, rows, vector


def test_no_rows_are_returned_for_a_k_of_zero(table: DataTable) -> None:
    empty = table.query(k=0)
    assert empty.num_rows == 0
    assert empty.schema.names == ["id", "word", "vector"]
    assert table.query(k=0, vector=vector(1)).num_rows == 0


def test_all_rows_are_returned_without_a_limit(table: DataTable) -> None:
    assert table.query(k=2**63 - 1).num_rows == 100
    assert table.query(k=2**63 - 1, vector=vector(1)).num_rows == 100
    answer = table.ask("query", {"vector": {}})
    assert answer.status_code == 200


def test_a_k_that_is_not_a_number_of_rows_is_refused(table: DataTable) -> None:
    for k in (-1, 1.5, "three", True):
        assert error(table.ask("query", {"k": k})) == (400, 13), k


def test_columns_are_chosen_by_name_in_order(table: DataTable) -> None:
    assert table.query(k=1, columns={"column_names": ["word", "id"]}).schema.names == ["word", "id"]


def test_columns_are_computed_under_other_names(table: DataTable) -> None:
    found = table.query(k=2, columns={"column_aliases": {"n": "id + 1", "w": "upper(word)"}})
    assert found.to_pylist() == [{"n": 1, "w": "RED"}, {"n": 2, "w": "GREEN"}]


def test_names_and_aliases_do_not_go_together(table: DataTable) -> None:
    columns = {"column_names": ["id"], "column_aliases": {"n": "id"}}
    assert error(table.ask("query", {"k": 1, "columns": columns})) == (400, 13)


def test_rows_are_ordered(table: DataTable) -> None:
    order = [{"column_name": "word", "ascending": False}, {"column_name": "id", "ascending": True}]
    assert table.ids(k=3, order_by=order) == [0, 3, 6]
    assert table.ids(k=2, offset=1, order_by=[{"column_name": "id", "ascending": False}]) == [98, 97]


@pytest.mark.parametrize("indexed", [False, True])
def test_rows_are_ordered_by_columns_that_the_answer_lacks(table: DataTable, indexed: bool) -> None:
    if indexed:
        table.do("create_index", {"column": "id", "index_type": "BTREE"})
        table.wait_for_index("id_idx")
    order = [{"column_name": "id", "ascending": False}]
    for more in ({}, {"filter": "id < 200"}):
        found = table.query(k=2, offset=1, order_by=order, columns={"column_names": ["word"]}, **more)
        assert found.to_pylist() == [{"word": "blue"}, {"word": "green"}]
        found = table.query(k=2, order_by=order, columns={"column_aliases": {"n": "id + 1"}}, **more)
        assert found.to_pylist() == [{"n": 100}, {"n": 99}]
    found = table.query(k=1, order_by=order, columns={"column_names": ["word"]}, with_row_id=True)
    assert found.column_names == ["word", "_rowid"]


def test_nulls_come_first_or_last_as_asked(new: DataTable) -> None:
    new.create(pa.table({"id": pa.array([1, None, 3], pa.int64())}))

    def first(*, nulls_first: bool) -> Any:
        order = [{"column_name": "id", "ascending": True, "nulls_first": nulls_first}]
        return new.query(order_by=order)["id"].to_pylist()

    assert first(nulls_first=True) == [None, 1, 3]
    assert first(nulls_first=False) == [1, 3, None]


def test_several_vectors_are_answered_each_with_its_number(table: DataTable) -> None:
    vectors = {"multi_vector": [[float(number)] * WIDTH for number in (3, 50, 97)]}
    found = table.query(vector=vectors, k=2)
    pairs = sorted(zip(found["query_index"].to_pylist(), found["id"].to_pylist(), strict=True))
    assert pairs == [(0, 2), (0, 3), (1, 49), (1, 50), (2, 96), (2, 97)]


@pytest.mark.parametrize("indexed", [False, True])
def test_an_offset_skips_rows_of_the_answer_to_each_vector(table: DataTable, indexed: bool) -> None:
    if indexed:
        table.do("create_index", {"column": "vector", "index_type": "IVF_FLAT", "num_partitions": 1})
        table.wait_for_index("vector_idx")
    found = table.query(vector={"multi_vector": [[3.1] * WIDTH, [50.1] * WIDTH]}, k=2, offset=1)
    assert found["query_index"].to_pylist() == [0, 0, 1, 1]
    assert found["id"].to_pylist() == [4, 2, 51, 49]


def test_rows_of_several_vectors_are_one_answer_to_several(new: DataTable) -> None:
    rows_of_two = pa.array([[[1.0, 0.0], [0.0, 1.0]], [[-1.0, 0.0]]], pa.list_(pa.list_(pa.float32(), 2)))
    new.create(pa.table({"id": [0, 1], "vectors": rows_of_two}))
    asked = {"vector": {"multi_vector": [[1.0, 0.0], [0.0, 1.0]]}, "distance_type": "cosine"}
    assert new.ids(k=2, **asked) == [0, 1]
    assert new.ids(k=1, offset=1, **asked) == [1]


def test_a_vector_column_of_any_name_is_found_when_it_is_the_only_one(new: DataTable) -> None:
    new.create(rows(10).rename_columns(["id", "word", "embedding"]))
    assert new.ids(vector=vector(4), k=1) == [4]


def test_a_vector_column_must_be_named_when_there_are_several(new: DataTable) -> None:
    data = rows(10).rename_columns(["id", "word", "a"])
    new.create(data.append_column("b", data["a"]))
    assert error(new.ask("query", {"vector": vector(1), "k": 1})) == (400, 13)
    assert new.ids(vector=vector(4), vector_column="b", k=1) == [4]


@pytest.mark.parametrize("kind", [pa.float16(), pa.float64(), pa.uint8()], ids=str)
def test_vectors_of_other_numbers_are_searched(new: DataTable, kind: pa.DataType) -> None:
    flat = pa.array([number for number in range(20) for _ in range(WIDTH)], pa.float32()).cast(kind)
    vectors = pa.FixedSizeListArray.from_arrays(flat, WIDTH)
    new.create(pa.table({"id": list(range(20)), "vector": vectors}))
    assert new.ids(vector=vector(7), k=1) == [7]


def test_row_ids_are_returned_and_filtered_by(table: DataTable) -> None:
    found = table.query(filter="id IN (5, 9)", with_row_id=True)
    wanted = ", ".join(str(number) for number in found["_rowid"].to_pylist())
    assert table.ids(filter=f"_rowid IN ({wanted})") == [5, 9]
    assert table.ids(filter="_rowoffset IN (0, 99)") == [0, 99]


def test_vectors_of_bits_are_searched_by_how_many_differ(new: DataTable) -> None:
    vectors = pa.array([[0, 0], [1, 1], [255, 0]], pa.list_(pa.uint8(), 2))
    new.create(pa.table({"id": [0, 1, 2], "vector": vectors}))
    found = new.query(vector={"single_vector": [1, 1]}, distance_type="hamming", k=3)
    assert (found["id"].to_pylist(), found["_distance"].to_pylist()) == ([1, 0, 2], [0.0, 2.0, 8.0])


@pytest.fixture
def graphed(new: DataTable) -> DataTable:
    """A table whose vectors have an index with graphs."""
    new.create(rows(100))
    new.do("create_index", {"column": "vector", "index_type": "IVF_HNSW_SQ", "num_partitions": 1})
    new.wait_for_index("vector_idx")
    return new


def test_a_search_takes_how_much_of_an_index_to_look_at(graphed: DataTable) -> None:
    def plan(**options: Any) -> str:
        return str(graphed.do("explain_plan", {"query": {"vector": vector(3), "k": 4, **options}}))

    assert "k=4," in plan()
    assert "k=12," in plan(refine_factor=3)
    assert "minimum_nprobes=7, maximum_nprobes=Some(7)" in plan(nprobes=7)
    assert "minimum_nprobes=2, maximum_nprobes=Some(9)" in plan(minimum_nprobes=2, maximum_nprobes=9)
    assert "minimum_nprobes=2, maximum_nprobes=None" in plan(nprobes=2, minimum_nprobes=2, maximum_nprobes=0)
    too_few = graphed.ask("query", {"vector": vector(3), "k": 4, "ef": 3})
    assert error(too_few) == (400, 13)
    assert too_few.json()["error"] == "ef must be greater than or equal to k"
    assert graphed.query(vector=vector(3), k=4, ef=4).num_rows == 4


def test_fields_inside_of_others_are_named_by_their_paths(new: DataTable) -> None:
    kind = pa.struct({"x": pa.int64(), "d.e": pa.string(), "b`t": pa.int64(), "near": pa.list_(pa.float32(), 2)})
    inner = [{"x": n, "d.e": f"word{n}", "b`t": -n, "near": [n, n]} for n in range(5)]
    new.create(pa.table({"id": list(range(5)), "s": pa.array(inner, kind)}))
    paths = ["s.x", "s.`d.e`", "s.`b``t`"]
    assert new.query(k=1, offset=3, columns={"column_names": paths}).to_pylist() == [
        dict(zip(paths, (3, "word3", -3), strict=True))
    ]
    assert new.query(k=1, columns={"column_aliases": {"q": "s.`d.e`"}}).to_pylist() == [{"q": "word0"}]
    assert new.ids(filter="s.`d.e` = 'word2' AND s.`b``t` < 0") == [2]
    assert new.ids(order_by=[{"column_name": "s.`b``t`"}], columns={"column_names": ["id"]}) == [4, 3, 2, 1, 0]
    assert new.ids(vector={"single_vector": [4, 4]}, vector_column="s.near", k=1) == [4]
    for column, kind_of_index in (("s.`d.e`", "FTS"), ("s.`b``t`", "BTREE"), ("s.near", "IVF_FLAT")):
        new.do("create_index", {"column": column, "index_type": kind_of_index, "name": kind_of_index})
        new.wait_for_index(kind_of_index)
    assert {index["columns"][0] for index in new.do("index/list")["indexes"]} == {"s.`d.e`", "s.`b``t`", "s.near"}
    for query in ({"query": "word1"}, {"query": "word1", "columns": ["s.`d.e`"]}):
        assert new.ids(full_text_query={"string_query": query}) == [1]
    missing = new.ask("query", {"k": 1, "columns": {"column_names": ["s.`d.f`"]}})
    assert error(missing) == (404, 12)
    assert "'s.`d.f`'. Did you mean 'd.e'?" in missing.json()["error"]


def test_filters_apply_before_or_after_the_search(table: DataTable) -> None:
    assert table.ids(vector=vector(10), k=2, filter="id >= 50", prefilter=True) == [50, 51]
    assert table.ids(vector=vector(10), k=2, filter="id >= 50", prefilter=False) == []


def test_distances_are_bounded(table: DataTable) -> None:
    assert sorted(table.ids(vector=vector(20), k=10, lower_bound=3.0, upper_bound=17.0)) == [18, 19, 21, 22]


def test_full_text_queries_are_strings_or_structured(table: DataTable) -> None:
    table.do("create_index", {"column": "word", "index_type": "FTS", "with_position": True})
    table.wait_for_index("word_idx")
    text = {"string_query": {"query": "green", "columns": ["word"]}}
    match = {"structured_query": {"query": {"match": {"terms": "green", "column": "word"}}}}
    phrase = {"structured_query": {"query": {"phrase": {"terms": "green", "column": "word"}}}}
    excluded = {"structured_query": {"query": {"boolean": {
        "must": [{"match": {"terms": "green", "column": "word"}}],
        "should": [],
        "must_not": [{"match": {"terms": "red", "column": "word"}}],
    }}}}  # fmt: skip
    several = {"structured_query": {"query": {"multi_match": {"match_queries": [{"terms": "green"}]}}}}
    plain = {"terms": "green", "column": "word", "boost": None, "fuzziness": None, "operator": None}
    spelled = {"structured_query": {"query": {"match": None, "multi_match": {"match_queries": [
        {**plain, "max_expansions": None, "prefix_length": None}, {"terms": "none such", "column": "word"},
    ]}}}}  # fmt: skip
    for query in (text, match, phrase, excluded, several, spelled):
        assert sorted(table.ids(full_text_query=query)) == list(range(1, 100, 3))
    demoted = {"structured_query": {"query": {"boost": {
        "positive": {"match": {"terms": "green blue"}}, "negative": {"match": {"terms": "green"}},
    }}}}  # fmt: skip
    found = table.ids(full_text_query=demoted)
    assert {number % 3 for number in found[:33]} == {2}
    assert {number % 3 for number in found[33:]} == {1}
    assert "_score" in table.query(full_text_query=text, k=1).schema.names


def test_a_read_of_a_version_never_moves(table: DataTable) -> None:
    before = table.query(version=1)
    table.put("insert", rows(100, 110))
    table.do("update", {"updates": [["word", "'x'"]]})
    table.do("delete", {"predicate": "id < 90"})
    table.do("drop_columns", {"columns": ["vector"]})
    table.put("insert", pa.table({"other": [1]}), mode="overwrite")
    assert table.query(version=1).equals(before)
    assert table.count(version=1) == 100
    assert table.count(version=4) == 20
    assert table.do("describe", {"version": 1, "load_detailed_metadata": True})["version"] == 1


def test_a_table_made_again_shows_nothing_of_the_one_before(http: Any, new: DataTable) -> None:
    for round_number in range(5):
        new.create(rows(round_number * 10, round_number * 10 + 3))
        assert new.ids() == [round_number * 10 + offset for offset in range(3)]
        assert new.count(version=1) == 3
        assert new.versions() == [1]
        assert new.do("tags/list")["tags"] == {}
        new.do("tags/create", {"tag": "old", "version": 1})
        new.do("create_index", {"column": "id", "index_type": "BTREE"})
        new.wait_for_index("id_idx")
        new.do("drop")
        assert error(new.ask("query", {"k": 1})) == (404, 4)


def test_a_renamed_table_is_read_and_written_under_its_new_name(new: DataTable) -> None:
    new.create(rows(3))
    renamed = DataTable(new.http)
    new.do("rename", {"new_table_name": renamed.names[0]})
    renamed.put("insert", rows(3, 5))
    assert renamed.ids() == [0, 1, 2, 3, 4]
    assert error(new.ask("count_rows")) == (404, 4)


def test_statistics_count_only_rows_that_live(table: DataTable) -> None:
    table.put("insert", rows(100, 150))
    table.do("delete", {"predicate": "id % 2 = 0"})
    stats = table.do("stats")
    assert stats["num_rows"] == table.count() == 75
    assert stats["fragment_stats"]["num_fragments"] == 2
    assert stats["fragment_stats"]["lengths"]["max"] == 50
    assert stats["total_bytes"] > 0


def test_an_index_is_listed_while_it_is_built_and_covers_all_rows_then(new: DataTable) -> None:
    new.create(rows(20_000))
    new.do("create_index", {"column": "vector", "index_type": "IVF_FLAT", "num_partitions": 8})
    (index,) = new.do("index/list")["indexes"]
    assert index["index_name"] == "vector_idx"
    assert index["num_indexed_rows"] + index["num_unindexed_rows"] == 20_000
    assert new.wait_for_index("vector_idx")["num_indexed_rows"] == 20_000
    (index,) = new.do("index/list")["indexes"]
    assert (index["index_type"], index["num_unindexed_rows"]) == ("IVF_FLAT", 0)
    new.do("delete", {"predicate": "id < 5000"})
    assert new.do("index/vector_idx/stats")["num_indexed_rows"] == 15_000
