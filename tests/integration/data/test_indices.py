"""Indices: of every type by its name alone, with every option, and while they are built."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance_namespace as ln
import pyarrow as pa
import pytest

from pennon.catalog import index_builds
from pennon.catalog.index_builds import Build
from pennon.core.clock import now_millis
from pennon.namespace import PennonNamespace
from pennon.tables import indexes
from tests.integration.data.tables import DataTable, error, rows, stream_of
from tests.support.waiting import wait_until

KINDS = {
    "IVF_FLAT": "vector",
    "IVF_SQ": "vector",
    "IVF_PQ": "vector",
    "IVF_RQ": "vector",
    "IVF_HNSW_FLAT": "vector",
    "IVF_HNSW_SQ": "vector",
    "IVF_HNSW_PQ": "vector",
    "BTREE": "id",
    "BITMAP": "word",
    "LABEL_LIST": "labels",
    "NGRAM": "word",
    "FM": "word",
    "FTS": "word",
}
TEXT = {
    "base_tokenizer": "ngram",
    "language": "German",
    "with_position": True,
    "max_token_length": 30,
    "lower_case": False,
    "stem": False,
    "remove_stop_words": True,
    "ascii_folding": False,
    "min_ngram_length": 2,
    "max_ngram_length": 4,
    "prefix_only": True,
    "block_size": 256,
}
CODE = {
    "base_tokenizer": "code",
    "split_identifiers": True,
    "split_on_numerics": False,
    "preserve_original": False,
    "index_operators": True,
}


@pytest.mark.parametrize("given", [0, 300], ids=["empty", "filled"])
def test_an_index_of_every_type_needs_nothing_but_a_column(new: DataTable, given: int) -> None:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array([float(n) for n in range(given * 8)], pa.float32()), 8)
    labels = pa.array([["a"]] * given, pa.list_(pa.string()))
    new.create(rows(given).set_column(2, "vector", vectors).append_column("labels", labels))
    for kind, column in KINDS.items():
        new.do("create_index", {"column": column, "index_type": kind, "name": kind})
        assert new.wait_for_index(kind)["index_type"] == kind
    assert {index["index_name"]: index["index_type"] for index in new.do("index/list")["indexes"]} == {
        kind: kind for kind in KINDS
    }


@pytest.mark.parametrize("kind", ["NGRAM", "FM"])
def test_parts_of_words_are_found_by_an_index(table: DataTable, kind: str) -> None:
    table.do("create_index", {"column": "word", "index_type": kind})
    table.wait_for_index("word_idx")
    asked = {"filter": "contains(word, 'ree')"}
    assert "ScalarIndexQuery" in table.do("explain_plan", {"query": {"k": 5, "vector": {}, **asked}})
    assert table.ids(**asked) == list(range(1, 100, 3))


@pytest.mark.parametrize("options", [TEXT, CODE], ids=["text", "code"])
def test_a_full_text_index_is_built_with_the_options_it_is_given(table: DataTable, options: dict[str, Any]) -> None:
    table.do("create_index", {"column": "word", "index_type": "FTS", **options})
    table.wait_for_index("word_idx")
    (index,) = table.do("index/list")["indexes"]
    details = json.loads(index["index_details"])
    assert {name: details[name] for name in options} == options


def test_a_vector_index_is_built_with_the_options_it_is_given(table: DataTable) -> None:
    options = {"distance_type": "cosine", "num_partitions": 2, "num_sub_vectors": 2, "num_bits": 4}
    table.do(
        "create_index", {"column": "vector", "index_type": "IVF_HNSW_PQ", "m": 7, "ef_construction": 33, **options}
    )
    assert table.wait_for_index("vector_idx")["distance_type"] == "cosine"
    details = json.loads(table.do("index/list")["indexes"][0]["index_details"])
    assert (details["hnsw"]["max_connections"], details["hnsw"]["construction_ef"]) == (7, 33)
    assert (details["compression"]["num_bits"], details["compression"]["num_sub_vectors"]) == (4, 2)


def test_an_index_that_cannot_be_replaced_stays_as_it_was(table: DataTable) -> None:
    table.do("create_index", {"column": "vector", "index_type": "IVF_FLAT", "num_partitions": 1})
    table.wait_for_index("vector_idx")
    bad = {"column": "vector", "index_type": "IVF_PQ", "num_sub_vectors": 3, "replace": True}
    assert error(table.ask("create_index", bad)) == (400, 13)
    assert table.do("index/vector_idx/stats")["index_type"] == "IVF_FLAT"
    assert error(table.ask("create_index", {**bad, "name": "other"})) == (400, 13)
    assert error(table.ask("index/other/stats")) == (404, 6)


@pytest.fixture
def namespace(tmp_path: Path) -> Iterator[PennonNamespace]:
    """Pennon in this process, with a table of a hundred rows."""
    opened = PennonNamespace(directory=str(tmp_path))
    opened.create_table(ln.CreateTableRequest(id=["t"]), stream_of(rows(100)))
    yield opened
    opened.close()


def test_an_index_that_another_process_builds_is_listed_with_how_far_it_is(namespace: PennonNamespace) -> None:
    database = namespace.services.database
    build = Build(namespace.find_table(("t",)).id, "", "ids", "id", "BTREE")
    assert database.write(lambda connection: index_builds.begin(connection, build))
    (index,) = namespace.list_table_indices(ln.ListTableIndicesRequest(id=["t"])).indexes
    assert (index.index_name, index.columns, index.index_type, index.status) == ("ids", ["id"], "BTREE", "building")
    asked = ln.DescribeTableIndexStatsRequest(id=["t"], index_name="ids")
    stats = namespace.describe_table_index_stats(asked)
    assert (stats.num_indexed_rows, stats.num_unindexed_rows) == (0, 100)
    with pytest.raises(ln.InvalidTableStateError, match="is being built"):
        namespace.create_table_index(ln.CreateTableIndexRequest(id=["t"], column="id", index_type="BTREE", name="ids"))
    database.write(lambda connection: index_builds.end(connection, build, "no memory"))
    with pytest.raises(ln.InvalidTableStateError, match="'ids' could not be built: no memory"):
        namespace.describe_table_index_stats(asked)
    assert namespace.list_table_indices(ln.ListTableIndicesRequest(id=["t"])).indexes == []


def test_an_index_build_whose_process_died_is_reported_as_failed(
    namespace: PennonNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = Build(namespace.find_table(("t",)).id, "", "ids", "id", "BTREE")
    monkeypatch.setattr(index_builds, "now_millis", lambda: now_millis() - 2 * index_builds.STALE_MILLIS)
    namespace.services.database.write(lambda connection: index_builds.begin(connection, build))
    monkeypatch.undo()
    with pytest.raises(ln.InvalidTableStateError, match="stopped during the build"):
        namespace.describe_table_index_stats(ln.DescribeTableIndexStatsRequest(id=["t"], index_name="ids"))
    namespace.create_table_index(ln.CreateTableIndexRequest(id=["t"], column="id", index_type="BTREE", name="ids"))
    (index,) = namespace.list_table_indices(ln.ListTableIndicesRequest(id=["t"])).indexes
    assert index.index_name == "ids"


def test_a_build_outlives_a_catalog_that_was_away(namespace: PennonNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    build, heard = indexes.build_index, index_builds.heartbeat
    tries: list[int] = []

    def touch(*arguments: Any) -> None:
        tries.append(len(tries))
        if len(tries) == 1:
            raise ln.ServiceUnavailableError("The catalog is away.")
        heard(*arguments)

    def build_slowly(*given: Any) -> None:
        wait_until(lambda: len(tries) > 1)
        build(*given)

    monkeypatch.setattr(indexes, "_HEARTBEAT_SECONDS", 0.01)
    monkeypatch.setattr(index_builds, "heartbeat", touch)
    monkeypatch.setattr(indexes, "build_index", build_slowly)
    namespace.create_table_index(ln.CreateTableIndexRequest(id=["t"], column="id", index_type="BTREE", name="ids"))
    listing = ln.ListTableIndicesRequest(id=["t"])
    wait_until(lambda: [index.status for index in namespace.list_table_indices(listing).indexes] == ["done"])
