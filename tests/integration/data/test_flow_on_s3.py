"""The main flows once on object storage, with the catalog in PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from tests.clients.remote.conftest import connect
from tests.conftest import StartPennon
from tests.integration.data.tables import DataTable, error, rows, stream_of, vector
from tests.integration.data.test_streams import chunks
from tests.support.rest import RestClient
from tests.support.s3 import S3Root, S3Server


@pytest.fixture
def on_s3(start_pennon: StartPennon, postgres_url: str, s3_root: S3Root) -> Iterator[RestClient]:
    """A server whose tables are in a bucket."""
    options = json.dumps(s3_root.options)
    server = start_pennon("--database", postgres_url, "--root", s3_root.url, "--storage-options", options)
    with RestClient(server.url) as client:
        yield client


def test_a_table_lives_its_life_on_object_storage(on_s3: RestClient, s3_server: S3Server, s3_root: S3Root) -> None:
    table = DataTable(on_s3).create(rows(300))
    table.put("insert", rows(300, 310))
    table.put("insert", stream_of(rows(1000, 301_000), batch_rows=100_000))
    table.do("delete", {"predicate": "id >= 1000"})
    upsert = {"on": "id", "when_matched_update_all": "true", "when_not_matched_insert_all": "true"}
    assert table.put("merge_insert", rows(305, 315), **upsert)["num_inserted_rows"] == 5
    table.do("update", {"updates": [["word", "'x'"]], "predicate": "id = 0"})
    table.do("add_columns", {"new_columns": [{"name": "double", "expression": "id * 2"}]})
    table.do("create_index", {"column": "vector", "index_type": "IVF_FLAT", "num_partitions": 2})
    table.wait_for_index("vector_idx")
    assert table.ids(vector=vector(77), k=1) == [77]
    assert table.count(version=1) == 300
    assert table.count() == 315
    table.do("tags/create", {"tag": "now", "version": table.versions()[-1]})
    table.do("branches/create", {"name": "dev"})
    table.put("insert", rows(1), branch="dev")
    assert (table.count(branch="dev"), table.count()) == (316, 315)
    assert error(table.send("insert", stream_of(rows(50))[:-8])) == (400, 13)
    table.do("restore", {"version": 1})
    assert table.count() == 300
    table.do("drop")
    table.create(rows(3))
    assert table.ids() == [0, 1, 2]
    assert table.do("tags/list")["tags"] == {}
    assert table.do("branches/list")["branches"] == {}


def test_a_cut_stream_leaves_no_object(on_s3: RestClient, s3_server: S3Server, s3_root: S3Root) -> None:
    table, other = DataTable(on_s3, "here").create(pa.table({"id": [1]})), DataTable(on_s3, "nowhere")
    # More than fits into one object, and into a part of one: some of each are there by the time that the stream ends.
    content = stream_of(pa.table({"id": np.arange(2_500_000)}), batch_rows=50_000)
    for target, verb, kept in ((table, "insert", 1), (other, "create", 0)):
        assert error(target.send(verb, chunks(content[:-100]))) == (400, 13)
        assert len(s3_server.keys(s3_root, f"{target.names[0]}.lance/data")) == kept


def test_the_remote_client_works_on_object_storage(on_s3: RestClient) -> None:
    db = connect(str(on_s3.raw.base_url).rstrip("/"))
    table = db.create_table("flow", rows(100))
    table.add(rows(100, 110))
    table.merge_insert("id").when_not_matched_insert_all().execute(rows(105, 120))
    table.delete("id < 10")
    assert table.count_rows() == 110
    assert table.search([5.0] * 4).limit(1).to_arrow()["id"].to_pylist() == [10]
    assert list(db.list_tables().tables) == ["flow"]
    db.drop_table("flow")
    assert list(db.list_tables().tables) == []
