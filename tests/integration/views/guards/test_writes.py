"""The rows of a view come from its sources: direct writes are refused, and maintenance is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lance_namespace as ln
import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidTableStateError

from pennon.tables.arrow_stream import source_of
from tests.integration.views.guards.services import ViewLake, stream_of

ROWS = pa.table({"__source_row_id": pa.array([9], pa.int64()), "a": [9], "text": ["nine"]})
REFUSED = "'v' is a materialized view"

WRITES: dict[str, Callable[[ViewLake], Any]] = {
    "insert": lambda lake: lake("InsertIntoTable", "v", data=ROWS),
    "insert that overwrites": lambda lake: lake("InsertIntoTable", "v", data=ROWS, mode="overwrite"),
    "insert into a branch": lambda lake: lake("InsertIntoTable", "v", data=ROWS, branch="b"),
    "create that overwrites": lambda lake: lake("CreateTable", "v", data=ROWS, mode="overwrite"),
    "merge": lambda lake: lake("MergeInsertIntoTable", "v", data=ROWS, on=["a"], when_not_matched_insert_all=True),
    "update": lambda lake: lake("UpdateTable", "v", updates=[["a", "a + 1"]]),
    "delete": lambda lake: lake("DeleteFromTable", "v", predicate="a = 1"),
    "restore": lambda lake: lake("RestoreTable", "v", version=1),
    "upload": lambda lake: lake.ns.uploads.begin_upload(("v",), None),
    "part of an upload": lambda lake: lake.ns.uploads.add_part(("v",), "x", "1", source_of(stream_of(ROWS)), "append"),
    "end of an upload": lambda lake: lake.ns.uploads.complete_upload(("v",), "x"),
    "cherry-pick": lambda lake: lake.ns.branches.cherry_pick(("v",), "b", dry_run=False),
    "append by Lance": lambda lake: lake.write("v", ROWS, mode="append"),
    "overwrite by Lance": lambda lake: lake.write("v", ROWS, mode="overwrite"),
    "delete by Lance": lambda lake: lake.open("v").delete("a = 1"),
    "update by Lance": lambda lake: lake.open("v").update({"a": "0"}),
    "merge by Lance": lambda lake: lake.open("v").merge_insert("a").when_not_matched_insert_all().execute(ROWS),
    "restore by Lance": lambda lake: lake.open("v", version=1).restore(),
    "drop of its column by Lance": lambda lake: lake.open("v").drop_columns(["text"]),
    "drop of its column": lambda lake: lake("AlterTableDropColumns", "v", columns=["text"]),
    "drop of a hidden column": lambda lake: lake("AlterTableDropColumns", "v", columns=["__source_row_id"]),
    "new name of its column": lambda lake: lake(
        "AlterTableAlterColumns", "v", alterations=[{"path": "text", "rename": "other"}]
    ),
    "deregistration": lambda lake: lake("DeregisterTable", "v"),
}


def test_a_view_is_not_written_directly(lake: ViewLake) -> None:
    lake("CreateTableIndex", "v", column="a", index_type="BTREE", name="i")  # a second version, to restore the first
    lake("CreateTableBranch", "v", name="b")
    before = lake.open("v").to_table()
    # One lake for all of them: none may change anything, so each finds the view as it was.
    for name, write in WRITES.items():
        with pytest.raises((InvalidTableStateError, OSError, RuntimeError)) as refusal:
            write(lake)
        # Lance tells of a refused commit in words of its own.
        assert name.endswith("by Lance") or REFUSED in str(refusal.value), name
        assert lake.open("v").to_table() == before, name


def test_a_staged_commit_is_refused_alone_and_in_batches(lake: ViewLake) -> None:
    staged = lake.stage("v", ROWS)
    entry: dict[str, Any] = {"id": ["v"], **staged.request}
    batch = ln.BatchCommitTablesRequest.model_validate({"operations": [{"create_table_version": entry}]})
    entries = ln.BatchCreateTableVersionsRequest.model_validate({"entries": [entry]})
    for commit in (
        lambda: lake.commit("v", staged),
        lambda: lake.ns.batch_create_table_versions(entries),
        lambda: lake.ns.batch_commit_tables(batch),
    ):
        with pytest.raises(InvalidTableStateError, match=REFUSED):
            commit()
    assert lake.numbers("v") == [1]


def test_a_view_is_maintained_and_read_like_any_table(lake: ViewLake) -> None:
    view = lake.open("v")
    view.create_scalar_index("a", "BTREE")
    view.update_config({"lance.purpose": "test"})
    lake("CreateTableTag", "v", tag="first", version=1)
    lake("CreateTableBranch", "v", name="work")
    lake("UpdateTableSchemaMetadata", "v", metadata={"of": "views"})
    lake("AlterTableAddColumns", "v", new_columns=[{"name": "double", "expression": "a * 2"}])
    assert lake.open("v").to_table(columns=["double"])["double"].to_pylist() == [2, 4, 6]


def test_columns_that_were_added_to_a_view_can_be_changed_and_dropped(lake: ViewLake) -> None:
    lake("AlterTableAddColumns", "v", new_columns=[{"name": "double", "expression": "a * 2"}])
    lake("AlterTableAlterColumns", "v", alterations=[{"path": "double", "rename": "twice"}])
    lake("AlterTableDropColumns", "v", columns=["twice"])
    assert lake.open("v").schema.names == ["__source_row_id", "a", "text"]


def test_lance_compacts_a_view(lake: ViewLake) -> None:
    view = lake.ns.find_table(("v",))

    def append(dataset: Any) -> None:
        dataset.insert(ROWS)

    lake.ns.services.writer.change(view, "", lambda _: "", append)  # as a refresh commits
    metrics = lake.open("v").optimize.compact_files(target_rows_per_fragment=100)
    assert metrics.fragments_removed == 2
    assert lake.open("v").count_rows() == 4
