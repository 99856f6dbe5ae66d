"""Views through Pennon's client, with a worker: made, filled, brought up to date, and kept so by themselves."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pytest

import pennon
from tests.clients.remote.data import new_name
from tests.integration.backfill.calls import CallLog, note

if TYPE_CHECKING:
    from pathlib import Path

    from pennon.client import Connection, Table, View
    from tests.support.server import PennonProcess

SECONDS = 120.0


class Word(NamedTuple):
    """A row that a chunker makes."""

    word: str
    size: int


@pytest.fixture
def db(spark_server: PennonProcess) -> Connection:
    """A connection to the server with a worker."""
    return pennon.connect(spark_server.url)


@pytest.fixture
def texts(db: Connection) -> Table:
    """A table of texts."""
    return db.create_table(new_name(), pa.table({"id": [1, 2, 3], "text": ["a b", "", "c"], "lang": ["x", "y", "x"]}))


def rows(view: Table, *columns: str) -> list[tuple[Any, ...]]:
    """Return the rows of a view in order."""
    found = view.search().select(list(columns)).limit(1000).to_arrow()
    return sorted(zip(*(found[name].to_pylist() for name in columns), strict=True))


def test_a_view_of_a_query_follows_its_source(db: Connection, texts: Table) -> None:
    @pennon.udf
    def size(text: str) -> int:
        return len(text)

    query = pennon.query(texts).select({"id": "id", "size": size}).where("lang = 'x'")
    view = db.create_materialized_view(new_name(), query, progress=False)
    assert rows(view, "id", "size") == [(1, 3), (3, 1)]
    assert view.freshness().fresh
    texts.add([{"id": 4, "text": "dddd", "lang": "x"}])
    texts.update(where="id = 1", values={"text": "aa"})
    texts.delete("id = 3")
    assert not view.freshness().fresh
    plan = view.plan()
    assert (plan.mode, plan.rows_to_add, plan.rows_to_update, plan.rows_to_remove) == ("incremental", 1, 1, 1)
    result = view.refresh(progress=False).result
    assert result is not None
    assert (result["mode"], result["rows_added"], result["rows_updated"], result["rows_removed"]) == (
        ("incremental", 1, 1, 1)
    )
    assert rows(view, "id", "size") == [(1, 2), (4, 4)]
    version = view.version
    again = view.refresh(progress=False).result
    assert again is not None
    assert again["mode"] == "no_op"
    assert view.version == version
    renamed = {"path": "text", "rename": "content"}
    texts.alter_columns(renamed, cascade=True)
    texts.add([{"id": 5, "content": "eeeee", "lang": "x"}])
    after = view.refresh(progress=False).result
    assert after is not None
    assert after["mode"] == "incremental"
    assert rows(view, "id", "size") == [(1, 2), (4, 4), (5, 5)]


def test_views_of_functions_are_filled(db: Connection, texts: Table) -> None:
    @pennon.chunker
    def words(text: str) -> Iterator[Word]:
        for word in text.split():
            yield Word(word, len(word))

    @pennon.udtf(output_schema=pa.schema([("lang", pa.string()), ("count", pa.int64())]), partition_by="lang")
    def count(table: pa.Table) -> pa.Table:
        return pa.table({"lang": table["lang"][:1], "count": [table.num_rows]})

    chunks = db.create_chunk_view(new_name(), texts, words, columns=["id"], progress=False)
    assert rows(chunks, "id", "word", "size") == [(1, "a", 1), (1, "b", 1), (3, "c", 1)]
    counted = db.create_udtf_view(new_name(), texts, count, progress=False)
    assert rows(counted, "lang", "count") == [("x", 2), ("y", 1)]
    with pytest.raises(Exception, match="is a materialized view"):
        chunks.delete("id = 1")


def test_a_feature_column_of_a_view_is_filled_only_for_new_rows(db: Connection, texts: Table, tmp_path: Path) -> None:
    log = CallLog(tmp_path / "calls")

    @pennon.chunker
    def word(text: str) -> Iterator[str]:
        yield from text.split()

    @pennon.udf
    def size(word: str) -> int:
        note(log.path, len(word))
        return len(word)

    words = db.create_chunk_view(new_name(), texts, word, columns=["id"], progress=False)
    words.add_columns({"size": size})
    words.backfill("size", progress=False)
    above = db.create_materialized_view(new_name(), pennon.query(words).select("word", "size"), progress=False)
    assert rows(above, "word", "size") == [("a", 1), ("b", 1), ("c", 1)]
    assert log.new() == [1, 1, 1]
    assert (words.refresh(progress=False).result or {})["mode"] == "no_op"  # a fill is no change of the source
    texts.update(where="id = 1", values={"text": "dd"})
    assert (words.refresh(progress=False).result or {})["mode"] == "incremental"
    state = words.column_state("size")
    assert (state.computed, state.missing, state.rows) == (1, 1, 2)
    words.backfill("size", progress=False)
    assert log.new() == [2]
    above.refresh(progress=False)
    assert rows(above, "word", "size") == [("c", 1), ("dd", 2)]


def test_a_chain_of_views_keeps_itself_up_to_date(db: Connection, texts: Table) -> None:
    low = db.create_materialized_view(new_name(), pennon.query(texts).select("id", "lang"), auto_refresh=True)
    sql = f"SELECT lang, count(*) AS n FROM {low.name} GROUP BY lang"
    high = db.create_materialized_view(new_name(), sql=sql, auto_refresh=True, progress=False)
    assert rows(high, "lang", "n") == [("x", 2), ("y", 1)]
    texts.add([{"id": 4, "text": "d", "lang": "y"}])
    wait_for(high, [("x", 2), ("y", 2)])
    assert {job.state for job in db.jobs(table=high.name)} == {"done"}


def test_a_view_is_refreshed_when_its_time_comes(db: Connection, texts: Table) -> None:
    counted = f"SELECT lang, count(*) AS n FROM {texts.name} GROUP BY lang"
    view = db.create_materialized_view(new_name(), sql=counted, schedule="* * * * * *", progress=False)
    texts.add([{"id": 4, "text": "d", "lang": "y"}])
    wait_for(view, [("x", 2), ("y", 2)])
    view.alter(schedule=None)


def test_a_refresh_that_fails_keeps_what_there_was(db: Connection, texts: Table) -> None:
    @pennon.udf
    def careful(text: str) -> int:
        if text == "bad":
            raise ValueError("it is bad")
        return len(text)

    view = db.create_materialized_view(new_name(), pennon.query(texts).select("id", {"size": careful}), progress=False)
    texts.add([{"id": 4, "text": "bad", "lang": "x"}])
    with pytest.raises(pennon.client.JobFailedError, match="it is bad"):
        view.refresh(progress=False)
    assert rows(view, "size") == [(0,), (1,), (3,)]
    freshness = view.freshness()
    assert freshness.state == "failed"
    assert "it is bad" in str(freshness.reason)


def wait_for(view: View, wanted: list[tuple[Any, ...]]) -> None:
    """Wait until a view that follows its sources has some rows."""
    deadline = time.monotonic() + SECONDS
    while (found := rows(view, "lang", "n")) != wanted:
        assert time.monotonic() < deadline, found
        time.sleep(0.2)
        view.checkout_latest()
