"""Full-text search: every kind of query the client can build."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from lancedb.index import FTS
from lancedb.query import BooleanQuery, BoostQuery, FullTextOperator, MatchQuery, MultiMatchQuery, Occur, PhraseQuery

from tests.clients.remote.conftest import Run
from tests.clients.remote.data import ids, new_name

TITLES = ["quick fox", "slow fox", "quick dog", "silver bird"]
BODIES = ["jumps over the lazy dog", "sleeps all day long", "runs over a hill", "a quick flight over the sea"]

Query = Callable[[], Any]


@pytest.fixture
def articles(db: Any) -> Any:
    """Four articles whose titles and bodies can be searched, also for phrases."""
    table = db.create_table(new_name(), pa.table({"id": [0, 1, 2, 3], "title": TITLES, "body": BODIES}))
    for column in ("title", "body"):
        table.create_index(column, config=FTS(with_position=True, remove_stop_words=False, stem=False))
    return table


def search(table: Any, query: Any, **options: Any) -> list[int]:
    return ids(table.search(query, query_type="fts", **options).limit(10).to_arrow())


QUERIES: dict[str, tuple[Query, list[int]]] = {
    "a match in a column": (lambda: MatchQuery("fox", "title"), [0, 1]),
    "a match of all terms": (lambda: MatchQuery("quick dog", "title", operator=FullTextOperator.AND), [2]),
    "a match of any term": (lambda: MatchQuery("quick dog", "title", operator=FullTextOperator.OR), [0, 2]),
    "a fuzzy match": (lambda: MatchQuery("quikc", "title", fuzziness=2), [0, 2]),
    "a fuzzy match after a prefix": (lambda: MatchQuery("slov", "title", fuzziness=1, prefix_length=3), [1]),
    "a phrase": (lambda: PhraseQuery("over the", "body"), [0, 3]),
    "a phrase with slop": (lambda: PhraseQuery("over dog", "body", slop=2), [0]),
    "a match in several columns": (lambda: MultiMatchQuery("quick", ["title", "body"]), [0, 2, 3]),
    "a match with boosts": (lambda: MultiMatchQuery("quick", ["title", "body"], boosts=[1.0, 5.0]), [0, 2, 3]),
    "all of several": (
        lambda: BooleanQuery([(Occur.MUST, MatchQuery("quick", "title")), (Occur.MUST, MatchQuery("dog", "body"))]),
        [0],
    ),
    "any of several": (
        lambda: BooleanQuery([(Occur.SHOULD, MatchQuery("bird", "title")), (Occur.SHOULD, MatchQuery("hill", "body"))]),
        [2, 3],
    ),
    "one without another": (
        lambda: BooleanQuery([(Occur.MUST, MatchQuery("fox", "title")), (Occur.MUST_NOT, MatchQuery("day", "body"))]),
        [0],
    ),
}


@pytest.mark.parametrize("kind", QUERIES)
def test_a_query_finds_what_it_describes(articles: Any, kind: str) -> None:
    make, expected = QUERIES[kind]
    assert sorted(search(articles, make())) == expected


def test_text_is_searched_in_all_indexed_columns(articles: Any) -> None:
    assert sorted(search(articles, "quick")) == [0, 2, 3]
    assert sorted(search(articles, "quick", fts_columns="title")) == [0, 2]
    assert sorted(search(articles, "quick", fts_columns=["body"])) == [3]


def test_results_carry_a_score_and_the_best_come_first(articles: Any) -> None:
    found = articles.search("quick dog", query_type="fts", fts_columns="title").limit(10).to_arrow()
    scores = found["_score"].to_pylist()
    assert ids(found)[0] == 2
    assert scores == sorted(scores, reverse=True)


def test_what_is_demoted_comes_last(articles: Any) -> None:
    query = BoostQuery(MatchQuery("fox", "title"), MatchQuery("quick", "title"), negative_boost=0.1)
    assert search(articles, query) == [1, 0]


def test_a_search_takes_filter_limit_and_columns(articles: Any) -> None:
    found = articles.search("quick", query_type="fts").where("id > 0").select(["id"]).limit(1).to_arrow()
    assert found.num_rows == 1
    assert ids(found)[0] in {2, 3}


def test_rows_added_after_the_index_are_found(articles: Any) -> None:
    articles.add(pa.table({"id": [4], "title": ["quick cat"], "body": ["none"]}))
    assert sorted(search(articles, MatchQuery("quick", "title"))) == [0, 2, 4]


def test_a_search_without_an_index_says_so(db: Any) -> None:
    table = db.create_table(new_name(), pa.table({"id": [1], "title": ["x"]}))
    with pytest.raises(Exception, match="full-text index"):
        search(table, "x")


@pytest.mark.parametrize(
    ("tokenizer", "query", "found"),
    [
        ({"stem": True, "language": "English"}, "houses", True),
        ({"stem": False}, "houses", False),
        ({"stem": False, "lower_case": False}, "house", False),
        ({"stem": False, "base_tokenizer": "raw"}, "house", False),
        ({"stem": False, "base_tokenizer": "whitespace"}, "road,", True),
        ({"stem": False, "base_tokenizer": "ngram", "ngram_min_length": 2, "ngram_max_length": 3}, "ous", True),
        ({"stem": False, "ascii_folding": True}, "cafe", True),
        ({"stem": False, "ascii_folding": False}, "cafe", False),
        ({"stem": False, "remove_stop_words": True, "custom_stop_words": ["road"]}, "road", False),
        ({"stem": False, "max_token_length": 3}, "House", False),
    ],
)
def test_the_tokenizer_is_that_of_the_request(db: Any, tokenizer: dict[str, Any], query: str, found: bool) -> None:
    table = db.create_table(new_name(), pa.table({"id": [1], "text": ["House on the road, café"]}))
    table.create_index("text", config=FTS(**tokenizer))
    assert search(table, query) == ([1] if found else [])


def test_the_asynchronous_client_searches_the_same(run: Run) -> None:
    async def work(db: Any) -> None:
        table = await db.create_table(new_name(), pa.table({"id": [0, 1, 2, 3], "title": TITLES, "body": BODIES}))
        await table.create_index("title", config=FTS(with_position=True))
        found = await table.query().nearest_to_text(MatchQuery("fox", "title")).to_arrow()
        assert sorted(ids(found)) == [0, 1]
        assert ids(await table.query().nearest_to_text(PhraseQuery("silver bird", "title")).to_arrow()) == [3]

    run(work)
