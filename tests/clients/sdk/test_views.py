"""Views through Pennon's client, without workers: creation, descriptions and refusals; nothing is computed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidInputError, InvalidTableStateError

import pennon
from pennon.client import View
from tests.clients.remote.data import new_name

if TYPE_CHECKING:
    from pennon.client import Connection, Table


class Word(NamedTuple):
    """A row that a chunker makes."""

    word: str


@pennon.chunker
def words(text: str) -> Iterator[Word]:
    """Split a text."""
    return (Word(word) for word in text.split())


@pennon.udf
def length(text: str) -> int:
    """Count the characters of a text."""
    return len(text)


@pennon.udtf(output_schema=pa.schema([("count", pa.int64())]))
def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Count all rows."""
    yield pa.table({"count": [sum(batch.num_rows for batch in batches)]})


@pytest.fixture
def texts(db: Connection) -> Table:
    """A table of texts."""
    return db.create_table(new_name(), pa.table({"id": [1, 2], "text": ["one two", "three"], "lang": ["en", "de"]}))


def test_a_query_is_built_step_by_step() -> None:
    query = pennon.query("ns.t").select("id", {"twice": "2 * id"}).where("id > 1").limit(5).offset(1).at("stable")
    assert query.to_json() == {
        "source": "ns.t",
        "version": "stable",
        "columns": {"id": "`id`", "twice": "2 * id"},
        "where": "id > 1",
        "limit": 5,
        "offset": 1,
    }
    assert pennon.query("t").select(["a", "b"]).to_json() == {"source": "t", "columns": ["a", "b"]}
    with pytest.raises(TypeError, match="must be an SQL expression or a UDF"):
        pennon.query("t").select({"a": 5})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="must be the name of a table or an open table"):
        pennon.query(5)  # type: ignore[arg-type]


def test_a_view_is_a_table_at_once(db: Connection, texts: Table) -> None:
    query = pennon.query(texts).select({"id": "id", "size": length}).where("lang = 'en'")
    view = db.create_materialized_view(new_name(), query, with_no_data=True)
    assert isinstance(view, View)
    assert view.schema.names == ["__source_row_id", "id", "size"]
    assert len(view) == 0
    assert view.freshness().state == "empty"
    plan = view.plan()
    assert plan.mode == "rebuild"
    assert plan.rows_to_add == 1
    assert plan.udf_calls == 1
    assert "rebuild" in repr(plan)
    with pytest.raises(Exception, match="is a materialized view"):
        view.add([{"id": 5}])


def test_a_view_shows_a_table_as_lancedb_says_it(db: Connection, texts: Table) -> None:
    view = db.create_materialized_view(new_name(), texts.name, select=["id"], where="id > 1", with_no_data=True)
    assert view.schema.names == ["__source_row_id", "id"]
    with pytest.raises(TypeError, match="can only be combined with a table"):
        db.create_materialized_view(new_name(), pennon.query("t"), where="id > 1")
    with pytest.raises(TypeError, match="exactly one of them"):
        db.create_materialized_view(new_name())


def test_a_view_of_sql_says_why_it_is_computed_as_a_whole(db: Connection, texts: Table) -> None:
    sql = f"SELECT lang, count(*) AS n FROM {texts.name} GROUP BY lang"
    view = db.create_materialized_view(new_name(), sql=sql, with_no_data=True)
    assert view.schema.names == ["lang", "n"]
    freshness = view.freshness()
    assert not freshness.incremental
    assert "GROUP BY" in str(freshness.rebuild_reason)


def test_views_of_functions(db: Connection, texts: Table) -> None:
    chunks = db.create_chunk_view(new_name(), texts, words, columns=["id"], with_no_data=True)
    assert chunks.schema.names == ["__source_row_id", "__child_index", "id", "word"]
    counted = db.create_udtf_view(new_name(), texts, count, columns=["lang"], partition_by="lang", with_no_data=True)
    assert counted.schema.names == ["count"]
    with pytest.raises(TypeError, match=r"a function declared with pennon\.chunker"):
        db.create_chunk_view(new_name(), texts, count)


def test_a_view_is_opened_listed_altered_and_dropped(db: Connection, texts: Table) -> None:
    name = new_name()
    db.create_materialized_view(name, texts, schedule="0 3 * * *", with_no_data=True)
    assert name in db.list_materialized_views()
    view = db.open_view(name)
    assert view.describe()["schedule"] == "0 3 * * *"
    view.alter(schedule=None, auto_refresh=True)
    described = view.describe()
    assert (described.get("schedule"), described["auto_refresh"]) == (None, True)
    with pytest.raises(TypeError, match="Unknown option 'rhythm' of a view"):
        view.alter(rhythm="daily")  # type: ignore[call-arg]
    with pytest.raises(InvalidInputError, match="is a table, not a materialized view"):
        db.open_view(texts.name)
    view.drop()
    assert name not in db.list_materialized_views()


def test_a_refresh_is_a_job(db: Connection, texts: Table) -> None:
    view = db.create_materialized_view(new_name(), texts, with_no_data=True)
    job = view.refresh(wait=False, full=True, priority=3)
    assert (job.kind, job.table, job.state) == ("refresh", view.name, "pending")
    assert view.freshness().active_job == job.id
    assert job.cancel() == "cancelled"
    with pytest.raises(InvalidInputError, match="concurrency"):
        view.refresh(concurrency=0)
    with pytest.raises(TypeError, match="Unknown option 'speed' of a refresh"):
        view.refresh(speed=5)  # type: ignore[call-arg]


def test_objects_that_a_view_needs_can_only_be_dropped_with_it(db: Connection, texts: Table) -> None:
    view = db.create_materialized_view(new_name(), pennon.query(texts).select("text"), with_no_data=True)
    with pytest.raises(Exception, match=f"is needed by view '{view.name}'"):
        texts.drop_columns(["text"])
    texts.alter_columns({"path": "text", "rename": "content"}, cascade=True)
    assert view.describe()["sources"][0]["columns"] == ["content"]
    view_of_view = db.create_materialized_view(new_name(), view, with_no_data=True)
    with pytest.raises(InvalidTableStateError, match="is needed by view"):
        view.drop()
    view.drop(cascade=True)
    assert view_of_view.name not in db.list_materialized_views()
    texts.drop_columns(["content"], cascade=True)
    db.drop_table(texts.name, cascade=True)
    assert texts.name not in db.list_tables().tables


def test_views_live_in_namespaces(db: Connection) -> None:
    space = new_name()
    db.create_namespace([space])
    table = db.create_table("t", pa.table({"a": [1]}), namespace_path=[space])
    view = db.create_materialized_view("v", f"{space}.t", namespace_path=[space], with_no_data=True)
    assert view.describe()["sources"][0]["table"] == f"{space}.t"
    assert db.list_materialized_views([space]) == ["v"]
    assert db.open_view("v", namespace_path=[space]).path == (space, "v")
    assert pennon.query(table).to_json()["source"] == [space, "t"]
