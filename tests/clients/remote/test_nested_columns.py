"""Columns inside structs: searched, indexed and, where they hold blobs, read, as in a local table."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import lancedb
import pyarrow as pa
import pytest
from lancedb.index import FTS, BTree, IvfFlat
from lancedb.query import MatchQuery

from tests.clients.remote.data import ids, new_name, vector
from tests.clients.remote.data import rows as flat_rows

if TYPE_CHECKING:
    from tests.support.rest import RestClient

SOON = timedelta(seconds=60)
CONTENTS: list[bytes | None] = [b"tea", None, b"", b"0123456789" * 10]


def rows(count: int) -> pa.Table:
    """Return rows whose only vectors and texts are inside a struct."""
    flat = flat_rows(count)
    parts = [flat["vector"].combine_chunks(), flat["text"].combine_chunks(), flat["id"].combine_chunks()]
    return pa.table({"id": flat["id"], "info": pa.StructArray.from_arrays(parts, ["embedding", "text", "number"])})


def blob_rows() -> pa.Table:
    blob = pa.field("blob", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    fields = [blob, pa.field("size", pa.int64())]
    numbers = pa.array(range(len(CONTENTS)), pa.int64())
    info = pa.StructArray.from_arrays([pa.array(CONTENTS, pa.large_binary()), numbers], fields=fields)
    return pa.table(
        [numbers, info], schema=pa.schema([pa.field("id", pa.int64()), pa.field("info", pa.struct(fields))])
    )


def row_ids(table: Any) -> list[int]:
    return list(table.search().select(["id"]).with_row_id(True).to_arrow()["_rowid"].to_pylist())


def test_nested_columns_are_indexed_and_searched_as_in_a_local_table(db: Any, tmp_path: Path) -> None:
    local = lancedb.connect(tmp_path).create_table("nested", rows(300))
    remote = db.create_table(new_name(), rows(300))
    assert ids(remote.search(vector(100)).limit(3).to_arrow())[0] == 100  # no column named, and no index yet
    for table in (local, remote):
        waits = {"wait_timeout": SOON} if table is remote else {}
        table.create_index("info.embedding", config=IvfFlat(num_partitions=2), **waits)
        table.create_index("info.number", config=BTree(), **waits)
        table.create_index("info.text", config=FTS(), **waits)
        assert ids(table.search(vector(100)).nprobes(2).limit(1).to_arrow()) == [100]
        assert ids(table.search(vector(7), vector_column_name="info.embedding").nprobes(2).limit(1).to_arrow()) == [7]
        assert "ANN" in table.search(vector(100)).limit(1).explain_plan()
        assert "info.number_idx" in table.search().where("info.number = 7").explain_plan()
        assert ids(table.search("17", query_type="fts").to_arrow()) == [17]
        assert ids(table.search("17", query_type="fts", fts_columns="info.text").to_arrow()) == [17]
        assert ids(table.search(MatchQuery("17", "info.text"), query_type="fts").to_arrow()) == [17]
        found = table.search(query_type="hybrid").vector(vector(17)).text("17").limit(1).to_arrow()
        assert ids(found) == [17]
    names = [[(index.name, list(index.columns)) for index in table.list_indices()] for table in (local, remote)]
    assert sorted(names[0]) == sorted(names[1])


def test_a_query_among_several_vector_columns_must_name_one(db: Any) -> None:
    table = db.create_table(new_name(), rows(3).append_column("other", flat_rows(3)["vector"]))
    with pytest.raises(Exception, match=r"info\.embedding, other"):
        table.search(vector(1)).to_arrow()
    assert ids(table.search(vector(1), vector_column_name="info.embedding").limit(1).to_arrow()) == [1]


def test_the_vector_column_is_found_by_its_width_as_in_a_local_table(db: Any, tmp_path: Path) -> None:
    wide = pa.FixedSizeListArray.from_arrays(
        pa.array([float(n) for n in range(300) for _ in range(24)], pa.float32()), 24
    )
    data = rows(300).append_column("vector", wide)
    for table in (lancedb.connect(tmp_path).create_table("t", data), db.create_table(new_name(), data)):
        assert ids(table.search(vector(9)).limit(1).to_arrow()) == [9]
        assert ids(table.search([9.0] * 24).limit(1).to_arrow()) == [9]
    found = db.open_table(table.name).search([vector(9), vector(10)]).limit(1).to_arrow()
    assert sorted(ids(found)) == [9, 10]


def test_a_name_with_a_dot_inside_a_struct_is_quoted(db: Any, tmp_path: Path) -> None:
    flat = flat_rows(300)
    info = pa.StructArray.from_arrays([flat["vector"].combine_chunks()], ["x.y"])
    data = pa.table({"id": flat["id"], "info": info})
    table = db.create_table(new_name(), flat.select(["id"]))
    lance.write_dataset(data, table.uri, mode="overwrite")
    table = db.open_table(table.name)
    assert ids(table.search(vector(9)).limit(1).to_arrow()) == [9]
    table.create_index("info.`x.y`", config=IvfFlat(num_partitions=2))
    assert [(index.name, list(index.columns)) for index in table.list_indices()] == [
        ("info.`x.y`_idx", ["info.`x.y`"]),
    ]
    assert ids(table.search(vector(9), vector_column_name="`info`.`x.y`").nprobes(2).limit(1).to_arrow()) == [9]


def test_nested_blobs_are_fetched_and_read_as_files(db: Any) -> None:
    table = db.create_table(new_name(), blob_rows())
    assert table.blob_columns() == ["info.blob"]
    wanted = row_ids(table)
    assert table.fetch_blobs("info.blob", wanted).to_pylist() == CONTENTS
    assert [file and file.read() for file in table.fetch_blob_files("info.blob", wanted)] == CONTENTS
    file = table.fetch_blob_files("info.blob", wanted)[3]
    file.seek(95)
    assert file.read() == b"56789"


@pytest.mark.parametrize("path", ["info.blob", "info%2Eblob", "%60info%60.blob", "%60info%60%2E%60blob%60"])
def test_the_bytes_of_a_nested_blob_have_a_route(db: Any, http: RestClient, path: str) -> None:
    table = db.create_table(new_name(), blob_rows())
    answer = http.raw.get(
        f"/v1/table/{table.name}/blob/{path}/{row_ids(table)[0]}/bytes", headers={"range": "bytes=1-"}
    )
    assert (answer.status_code, answer.content) == (206, b"ea")


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("info.nothing", 404, 12),
        ("info.blob.more", 404, 12),
        ("info.size", 400, 13),
        ("info", 400, 13),
        ("info..blob", 400, 13),
        ("%60info.blob", 400, 13),
        ("info%2Fblob", 404, 12),
        ("x" * 300, 404, 12),
    ],
)
def test_a_path_of_no_blob_column_is_refused(db: Any, http: RestClient, path: str, status: int, code: int) -> None:
    table = db.create_table(new_name(), blob_rows())
    answer = http.raw.get(f"/v1/table/{table.name}/blob/{path}/0/bytes")
    assert (answer.status_code, answer.json()["code"]) == (status, code)
