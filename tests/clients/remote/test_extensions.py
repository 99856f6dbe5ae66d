"""What the client knows beyond the specification: clones, uploads in parts, blobs, comparing branches."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from lancedb.index import BTree

from tests.clients.remote.data import ids, new_name, rows


def test_rows_are_added_in_parts_and_appear_together(table: Any) -> None:
    result = table.add(rows(100, 5100), write_parallelism=3)
    assert (result.version, table.count_rows()) == (2, 5100)
    table.add(rows(10), mode="overwrite", write_parallelism=2)
    assert sorted(ids(table.search().to_arrow())) == list(range(10))


def test_a_table_is_cloned_and_goes_its_own_way(db: Any, table: Any) -> None:
    table.add(rows(100, 110))
    clone = db.clone_table(new_name("clone"), table.uri)
    earlier = db.clone_table(new_name("clone"), table.uri, source_version=1)
    assert (clone.count_rows(), earlier.count_rows()) == (110, 100)
    clone.delete("id < 50")
    assert (clone.count_rows(), table.count_rows()) == (60, 110)


def test_an_index_is_loaded_ahead_and_one_that_is_missing_is_named(table: Any) -> None:
    table.create_index("id", config=BTree())
    table.prewarm_index("id_idx")
    table.prewarm_data(["id"])
    with pytest.raises(Exception, match=r"(?i)index"):
        table.prewarm_index("nothing")


def test_a_branch_is_compared_with_main(db: Any, table: Any) -> None:
    table.branches.create("dev")
    branch = db.open_table(table.name, branch="dev")
    branch.add(rows(100, 105))
    branch.alter_columns({"path": "id", "data_type": pa.int32()})
    table.create_index("id", config=BTree())
    found = table.branches.diff("dev")
    assert found["rowSummary"]["newOnBranch"] == 5
    assert found["changedColumns"][0]["branch"]["dataType"] == "int32"
    assert found["removedIndexes"][0]["indexName"] == "id_idx"


def test_blobs_are_fetched_by_row_id(db: Any) -> None:
    blob = pa.field("blob", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    contents = [b"a" * 100_000, b"\x00\xff", b"end"]
    schema = pa.schema([pa.field("id", pa.int64()), blob])
    table = db.create_table(new_name(), pa.table({"id": [0, 1, 2], "blob": contents}, schema=schema))
    found = table.search().select(["id"]).with_row_id(True).to_arrow()
    fetched = table.fetch_blobs("blob", found["_rowid"].to_pylist())
    assert fetched.to_pylist() == contents
