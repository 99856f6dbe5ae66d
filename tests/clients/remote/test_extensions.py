"""What the client knows beyond the specification: clones, uploads in parts, blobs, comparing branches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from lancedb import LsmWriteSpec
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
    table.tags.create("first", 1)
    assert db.clone_table(new_name("clone"), table.uri, source_tag="first").count_rows() == 100
    copy = db.clone_table(new_name("clone"), table.uri, is_shallow=False)
    assert copy.count_rows() == 110


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


def test_a_branch_is_brought_over_to_main_once(db: Any, table: Any) -> None:
    table.branches.create("dev")
    branch = db.open_table(table.name, branch="dev")
    branch.add(rows(100, 105))
    branch.add_columns({"double": "id * 2"})
    planned = table.branches.cherry_pick("dev", dry_run=True)
    assert (planned["status"], planned["preview"]["promotedColumns"]) == ("ready", ["double"])
    assert table.count_rows() == 100
    done = table.branches.cherry_pick("dev")
    assert done["status"] == "cherryPicked"
    assert table.search().where("id >= 99").select(["double"]).to_arrow()["double"].to_pylist()[0] == 198
    main = db.open_table(table.name)
    assert (main.version, main.count_rows()) == (done["mainVersionAfter"], 105)
    failed = table.branches.cherry_pick("dev")
    assert (failed["status"], failed["diff"]["errors"][0]["code"]) == ("failed", "baseMoved")


def test_a_branch_that_changed_rows_of_main_is_not_brought_over(db: Any, table: Any) -> None:
    table.branches.create("dev")
    branch = db.open_table(table.name, branch="dev")
    branch.add_columns({"double": "id * 2"})
    branch.update(where="id = 7", values_sql={"double": "0"})
    assert table.branches.cherry_pick("dev", dry_run=True)["status"] == "ready"
    branch.update(where="id < 3", values_sql={"id": "id + 1000"})
    found = table.branches.cherry_pick("dev")
    assert (found["status"], found["diff"]["errors"][0]["code"]) == ("failed", "rowsChanged")
    assert found["diff"]["rowSummary"]["unchanged"] == 97
    assert table.count_rows("id >= 1000") == 0


CONTENTS = [b"a" * 100_000, None, b"", b"\x00\xffend"]


@pytest.fixture
def blobs(db: Any) -> Any:
    """A table with a column of blobs."""
    return db.create_table(new_name(), blob_rows(CONTENTS))


def blob_rows(contents: list[bytes | None]) -> pa.Table:
    blob = pa.field("blob", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    schema = pa.schema([pa.field("id", pa.int64()), blob])
    return pa.table({"id": list(range(len(contents))), "blob": contents}, schema=schema)


def row_ids(table: Any) -> list[int]:
    found = table.search().select(["id"]).with_row_id(True).to_arrow().sort_by("id")
    return list(found["_rowid"].to_pylist())


def test_blobs_are_fetched_by_row_id(blobs: Any) -> None:
    assert blobs.blob_columns() == ["blob"]
    assert blobs.fetch_blobs("blob", row_ids(blobs)).to_pylist() == CONTENTS
    last, first = row_ids(blobs)[3], row_ids(blobs)[0]
    assert blobs.fetch_blobs("blob", [last, first, last]).to_pylist() == [CONTENTS[3], CONTENTS[0], CONTENTS[3]]


def test_blobs_are_read_as_files_and_by_ranges(blobs: Any) -> None:
    files = blobs.fetch_blob_files("blob", row_ids(blobs))
    assert [None if file is None else file.size() for file in files] == [100_000, None, 0, 5]
    assert [None if file is None else file.read() for file in files] == CONTENTS
    file = blobs.fetch_blob_files("blob", row_ids(blobs))[3]
    assert file.read_range(1, 3) == b"\xffen"
    file.seek(2)
    assert file.read(2) == b"en"
    blobs.delete("true")  # a file stays what it was when it was opened
    assert file.read_range(2, 3) == b"end"


def test_blobs_of_a_branch_are_those_of_the_branch(db: Any, blobs: Any) -> None:
    blobs.branches.create("dev")
    branch = db.open_table(blobs.name, branch="dev")
    branch.add(blob_rows([b"of the branch"]), mode="overwrite")
    assert branch.fetch_blobs("blob", row_ids(branch)).to_pylist() == [b"of the branch"]
    assert [file.read() for file in branch.fetch_blob_files("blob", row_ids(branch))] == [b"of the branch"]
    assert blobs.fetch_blobs("blob", row_ids(blobs)).to_pylist() == CONTENTS


def test_rows_are_added_to_a_branch_in_parts(db: Any, table: Any) -> None:
    table.branches.create("dev")
    branch = db.open_table(table.name, branch="dev")
    branch.add(rows(100, 2100), write_parallelism=2)
    assert (branch.count_rows(), table.count_rows()) == (2100, 100)


def test_missing_extras_of_a_table_are_empty(table: Any) -> None:
    assert table.get_lsm_write_spec() is None
    assert table.get_lsm_stats() is None
    assert list(table.function_errors().records) == []


NOT_OFFERED: dict[str, Callable[[Any, Any], Any]] = {
    "CreateSecret": lambda db, _: db.create_secret("a", "b"),
    "AlterSecret": lambda db, _: db.alter_secret("a", "b"),
    "DescribeSecret": lambda db, _: db.describe_secret("a"),
    "DropSecret": lambda db, _: db.drop_secret("a"),
    "ListSecrets": lambda db, _: db.list_secrets(),
    "CreateView": lambda db, _: db.create_view("v", "SELECT 1"),
    "DescribeView": lambda db, _: db.describe_view("v"),
    "DropView": lambda db, _: db.drop_view("v"),
    "ListViews": lambda db, _: db.list_views(),
    "ListFunctions": lambda db, _: db.list_functions(),
    "DescribeFunction": lambda db, _: db.get_function("f", version="1"),
    "DropFunction": lambda db, _: db.drop_function("f", version="1"),
    "SetWriteBuffer": lambda _, table: table.set_lsm_write_spec(LsmWriteSpec.unsharded()),
    "UnsetWriteBuffer": lambda _, table: table.unset_lsm_write_spec(),
    "FlushWriteBuffer": lambda _, table: table.flush_lsm(),
    "CompactWriteBuffer": lambda _, table: table.compact_lsm(),
}


def test_unsupported_operations_have_a_typed_error(db: Any, table: Any) -> None:
    for operation, call in NOT_OFFERED.items():
        with pytest.raises(Exception, match=f"(?s)406.*{operation} is not supported"):
            call(db, table)
