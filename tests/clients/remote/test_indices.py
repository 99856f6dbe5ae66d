"""Indices of every type: made, waited for, listed, measured, used and dropped."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import lancedb
import pyarrow as pa
import pytest
from lancedb.index import FTS, Bitmap, BTree, Fm, HnswFlat, HnswSq, IvfFlat, IvfPq, IvfRq, IvfSq, LabelList

from tests.clients.remote.conftest import Run
from tests.clients.remote.data import ids, new_name, rows, vector

if TYPE_CHECKING:
    from tests.support.rest import RestClient

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


#: Every type of index, with options that are not the default where it has some.
DESCRIBED: dict[str, tuple[str, Any]] = {
    **{name: ("vector", config) for name, config in VECTORS.items()},
    **{name: (column, config) for name, (column, config, _) in SCALARS.items()},
    "IvfPq of 4 bits": ("vector", IvfPq(num_partitions=2, num_bits=4, max_iterations=7)),
    "IvfFlat by cosine": ("vector", IvfFlat(distance_type="cosine", num_partitions=2, sample_rate=99)),
    "FTS": ("text", FTS()),
    "FTS of phrases": ("text", FTS(with_position=True, language="German", custom_stop_words=["eins", "zwei"])),
    "FTS of whole words": ("text", FTS(base_tokenizer="whitespace", stem=False, lower_case=False, max_token_length=9)),
    "FTS of long words": ("text", FTS(max_token_length=None, ascii_folding=False, remove_stop_words=False)),
    "FTS of ngrams": ("text", FTS(base_tokenizer="ngram", ngram_min_length=2, ngram_max_length=4, prefix_only=True)),
}
#: What differs between any two builds of the same index.
OF_ONE_BUILD = {"index_uuid", "created_at", "size_bytes"}


def described(table: Any) -> dict[str, dict[str, Any]]:
    """Return what the client shows of each index, by its name."""
    return {
        index.name: {
            name: getattr(index, name)
            for name in dir(index)
            if not name.startswith("_") and name not in OF_ONE_BUILD and not callable(getattr(index, name))
        }
        for index in table.list_indices()
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


def test_an_index_is_described_as_in_a_local_table(db: Any, tmp_path: Path) -> None:
    local = lancedb.connect(tmp_path).create_table("described", rows(300))
    remote = db.create_table(new_name(), rows(300))
    for name, (column, config) in DESCRIBED.items():
        local.create_index(column, config=config, name=name)
        remote.create_index(column, config=config, name=name)
    remote.wait_for_index(list(DESCRIBED), SOON)
    shown, expected = described(remote), described(local)
    # As the storage holds it: the library in the client may write another version of a format than the server's.
    stored = {index.name: index for index in lance.dataset(remote.uri).describe_indices()}
    for name in DESCRIBED:
        assert shown[name].pop("index_version") == stored[name].segments[0].index_version
        assert expected[name].pop("index_version") is not None
        assert shown[name] == expected[name]
        assert remote.index_stats(name) == local.index_stats(name)


@pytest.mark.parametrize("width", [2, 8, 24, 1000])
def test_codes_of_four_bits_need_no_number_of_sub_vectors(db: Any, width: int) -> None:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array([i % 97 / 7 for i in range(width * 20)], pa.float32()), width)
    table = db.create_table(new_name(), pa.table({"vector": vectors}))
    table.create_index("vector", config=IvfPq(num_bits=4, num_partitions=1), wait_timeout=SOON)
    compression = table.list_indices()[0].index_details["compression"]
    assert compression["num_bits"] == 4
    assert width % compression["num_sub_vectors"] == 0


OUTSIDE = [
    "jieba/../../x",
    "jieba//etc",
    "lindera/../../../etc",
    "lindera/ipadic/..",
    "/etc/passwd",
    "icu/../x",
    "",
    "x",
]


@pytest.mark.parametrize("name", [*OUTSIDE, "jieba", "lindera/ipadic"])
def test_a_tokenizer_is_one_that_is_known_and_here(table: Any, name: str) -> None:
    with pytest.raises(Exception, match="base_tokenizer") as raised:
        table.create_index("text", config=FTS(base_tokenizer=name))
    assert "language_models" not in str(raised.value)  # where the server keeps them
    assert table.list_indices() == []


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("IVF_FLAT", {"num_partitions": "/etc/passwd"}),
        ("IVF_FLAT", {"max_iterations": [1]}),
        ("IVF_PQ", {"num_bits": True}),
        ("IVF_HNSW_SQ", {"m": -1}),
        ("IVF_HNSW_SQ", {"ef_construction": 2**40}),
        ("FTS", {"lance_tokenizer": "jieba/../../x"}),
        ("FTS", {"custom_stop_words": "/etc/passwd"}),
        ("FTS", {"custom_stop_words": ["a", 1]}),
        ("FTS", {"with_position": "yes"}),
    ],
)
def test_an_option_of_another_type_is_refused(table: Any, http: RestClient, kind: str, options: dict[str, Any]) -> None:
    body = {"column": "text" if kind == "FTS" else "vector", "index_type": kind, **options}
    answer = http.post(f"/v1/table/{table.name}/create_index", body, expect=400)
    assert (answer["code"], next(iter(options)) in answer["error"]) == (13, True)


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


def test_an_index_replaces_one_of_its_kind_or_its_name_as_in_a_local_table(db: Any, tmp_path: Path) -> None:
    listed = []
    for table in (lancedb.connect(tmp_path).create_table("t", rows(300)), db.create_table(new_name(), rows(300))):
        table.create_index("vector", config=VECTORS["IvfFlat"])
        table.create_index("vector", config=VECTORS["IvfPq"])
        table.create_index("text", config=FTS())
        table.create_index("text", config=Bitmap())  # which leaves the other there, under a name of its own
        table.create_index("text", config=FTS(with_position=True))
        table.create_index("text", config=Bitmap())
        with pytest.raises(Exception, match="'text_idx_2' already exists"):
            table.create_index("text", config=Bitmap(), replace=False)
        with pytest.raises(Exception, match="'text_idx' already exists"):
            table.create_index("id", config=BTree(), name="text_idx")
        table.create_index("id", config=BTree())
        table.create_index("id", config=Bitmap(), name="id_idx")
        indices = table.list_indices()
        listed.append(sorted((index.name, kind_of(index.index_type), list(index.columns)) for index in indices))
        assert ids(table.search("17", query_type="fts").to_arrow()) == [17]
    assert listed[0] == listed[1]
    assert [name for name, _, _ in listed[0]] == ["id_idx", "text_idx", "text_idx_2", "vector_idx"]


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
