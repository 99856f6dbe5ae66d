"""What views and feature columns need is not taken from them unawares; with cascade, they go with it or follow it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidTableStateError, PermissionDeniedError

import pennon
from pennon.catalog import views
from pennon.catalog.views import Watermark
from pennon.client.columns import column_entries
from pennon.columns.feature_columns import find_feature_column
from pennon.core.caller import Caller, Grant, Principal, Role, set_caller
from pennon.tables.arrow_stream import source_of
from tests.integration.views.guards.services import stream_of

if TYPE_CHECKING:
    from tests.integration.views.guards.services import ViewLake


def rename(lake: ViewLake, old: str, new: str, table: str = "t", **more: Any) -> None:
    lake("AlterTableAlterColumns", table, alterations=[{"path": old, "rename": new}], **more)


def retype(lake: ViewLake, column: str, kind: str, **more: Any) -> None:
    lake("AlterTableAlterColumns", "t", alterations=[{"path": column, "data_type": {"type": kind}}], **more)


def test_a_table_is_not_dropped_while_views_read_it(lake: ViewLake) -> None:
    lake.view("above", "v", {"a": "a"})
    with pytest.raises(InvalidTableStateError, match=r"Table 't' is needed by view 'above', view 'v'.*cascade"):
        lake("DropTable", "t")
    with pytest.raises(InvalidTableStateError, match="Table 't' is needed by"):
        lake("DeregisterTable", "t")
    assert lake.tables() == {"t", "v", "above"}


def test_views_are_dropped_with_their_source_when_that_is_asked_for(lake: ViewLake) -> None:
    lake.view("above", "v", {"a": "a"})
    folders = [lake.folder(name) for name in ("t", "v", "above")]
    lake("DropTable", "t", cascade=True)
    assert lake.tables() == set()
    assert not any(folder.exists() for folder in folders)


def test_a_view_is_dropped_without_its_source(lake: ViewLake) -> None:
    lake("DropTable", "v")
    lake("DropTable", "t")
    assert lake.tables() == set()


def test_a_view_keeps_its_source_when_that_gets_another_name(lake: ViewLake) -> None:
    lake("RenameTable", "t", new_table_name="renamed")
    with pytest.raises(InvalidTableStateError, match="Table 'renamed' is needed by view 'v'"):
        lake("DropTable", "renamed")


def test_a_namespace_keeps_what_views_elsewhere_read(lake: ViewLake) -> None:
    lake("CreateNamespace", "n")
    lake("CreateTable", "n$t", data=pa.table({"a": [1]}))
    lake.view("n$inside", "n$t", {"a": "a"})
    lake.view("outside", "n$inside", {"a": "a"})
    with pytest.raises(InvalidTableStateError, match="Namespace 'n' is needed by view 'outside'"):
        lake("DropNamespace", "n", behavior="cascade")
    with pytest.raises(InvalidTableStateError, match="Namespace 'n' is needed by view 'outside'"):
        lake("CreateNamespace", "n", mode="overwrite")
    lake("DropNamespace", "n", behavior="cascade", cascade=True)
    assert lake.tables() == {"t", "v"}


def test_a_column_is_not_taken_away_while_views_read_it(lake: ViewLake) -> None:
    for change in (
        lambda: lake("AlterTableDropColumns", "t", columns=["b"]),
        lambda: rename(lake, "b", "text"),
        lambda: retype(lake, "a", "int32"),
    ):
        with pytest.raises(InvalidTableStateError, match=r"Column '[ab]' is needed by view 'v'"):
            change()
    assert lake.open("t").schema.names == ["a", "b", "c"]


@pytest.mark.parametrize("operation", ["InsertIntoTable", "CreateTable"])
def test_a_table_is_not_replaced_by_one_without_the_columns_that_views_read(lake: ViewLake, operation: str) -> None:
    rows = lake.open("t").to_table()
    for others in (rows.drop_columns(["b"]), rows.set_column(0, "a", rows["a"].cast(pa.int32()))):
        with pytest.raises(InvalidTableStateError, match=r"Column '[ab]' is needed by view 'v' as"):
            lake(operation, "t", data=others, mode="overwrite")
        upload = lake.ns.uploads.begin_upload(("t",), None).upload_id
        with pytest.raises(InvalidTableStateError, match=r"Column '[ab]' is needed by view 'v' as"):
            lake.ns.uploads.add_part(("t",), upload, "1", source_of(stream_of(others)), "overwrite")
    assert lake.latest("t") == 1
    lake(operation, "t", data=rows.drop_columns(["c"]), mode="overwrite")
    assert lake.open("t").schema.names == ["a", "b"]


def test_columns_that_no_view_reads_are_changed_freely(lake: ViewLake) -> None:
    retype(lake, "c", "float32")
    rename(lake, "c", "d")
    lake("AlterTableDropColumns", "t", columns=["d"])
    assert lake.open("t").schema.names == ["a", "b"]


def test_columns_of_a_branch_are_nothing_to_views(lake: ViewLake) -> None:
    lake("CreateTableBranch", "t", name="work")
    lake("AlterTableDropColumns", "t", columns=["b"], branch="work")
    lake("InsertIntoTable", "t", data=pa.table({"c": [0.5]}), mode="overwrite", branch="work")
    assert "v" in lake.tables()


def test_views_are_dropped_with_the_column_they_read(lake: ViewLake) -> None:
    lake.view("above", "v", {"a": "a"})
    lake.view("other", "t", {"c": "c"})
    folder = lake.folder("above")
    lake("AlterTableDropColumns", "t", columns=["b"], cascade=True)
    assert lake.open("t").schema.names == ["a", "c"]
    assert lake.tables() == {"t", "other"}
    assert not folder.exists()


@pytest.mark.parametrize("path", ["b", "`b`"])
def test_a_view_follows_a_column_to_its_new_name(lake: ViewLake, path: str) -> None:
    where = "b <> 'b' AND length(b) > 0 AND `b` LIKE '%'"
    view_id = lake.view("w", "t", {"a": "a", "text": "b"}, where=where)
    source_id = lake.ns.find_table(("t",)).id
    mark = Watermark({source_id: 1}, fields={source_id: {"a": 0, "b": 1}})
    lake.ns.services.database.write(lambda c: views.advance(c, view_id, None, mark, 1, 0))
    rename(lake, path, "new name", cascade=True)
    view = lake.view_of(view_id)
    assert view is not None
    assert view.stale_reason is None
    assert view.definition["where"] == "`new name` <> 'b' AND length(`new name`) > 0 AND `new name` LIKE '%'"
    assert view.definition["columns"][1] == {"name": "text", "expression": "`new name`"}
    assert view.definition["sources"][0]["columns"] == ["a", "new name"]
    assert view.watermark == Watermark({source_id: 1}, fields={source_id: {"a": 0, "new name": 1}})
    with pytest.raises(InvalidTableStateError, match="Column 'new name' is needed by view 'v', view 'w'"):
        lake("AlterTableDropColumns", "t", columns=["new name"])


def test_a_view_that_cannot_be_refreshed_is_reported_as_outdated(lake: ViewLake) -> None:
    spark = lake.view("s", "t", {"b": "b"}, engine="spark")
    rename(lake, "b", "bb", cascade=True)
    found = lake.view_of(spark)
    assert found is not None
    assert found.stale_reason == "Column 'b' of 't' was renamed to 'bb'."


def test_a_view_is_out_of_date_when_a_column_gets_another_type(lake: ViewLake) -> None:
    view_id = lake.view("w", "t", {"a": "a"})
    retype(lake, "a", "int32", cascade=True)
    found = lake.view_of(view_id)
    assert found is not None
    assert found.stale_reason == "Column 'a' of 't' has another type."
    assert lake.open("t").schema.field("a").type == pa.int32()


def test_computed_columns_keep_their_inputs(lake: ViewLake) -> None:
    lake("AlterTableAddColumns", "t", new_columns=[{"name": "half", "computed": "c / 2"}])
    lake("AlterTableAddColumns", "t", new_columns=[{"name": "quarter", "computed": "half / 2"}])
    with pytest.raises(InvalidTableStateError, match="Column 'c' is needed by column 'half', column 'quarter'"):
        lake("AlterTableDropColumns", "t", columns=["c"])
    with pytest.raises(InvalidTableStateError, match=r"Column 'c' is needed by column 'half'\."):
        rename(lake, "c", "d")
    rename(lake, "`c`", "d", cascade=True)
    metadata = lake.open("t").schema.field("half").metadata
    assert metadata[b"computed_column.expression"] == b"`d` / 2"
    lake("AlterTableDropColumns", "t", columns=["d"], cascade=True)
    assert lake.open("t").schema.names == ["a", "b"]


def test_functions_follow_a_column_to_its_new_name_also_with_what_is_inside(lake: ViewLake) -> None:
    lake("CreateTable", "nested", data=pa.table({"meta": [{"text": "x"}]}))
    copied = pennon.udf(input_columns=["meta.text"], data_type=pa.string())(lambda text: text)
    lake("AlterTableAddColumns", "nested", new_columns=column_entries({"copy": copied}))
    rename(lake, "meta", "info", "nested", cascade=True)
    assert find_feature_column(lake.open("nested"), "copy").inputs == ("info.text",)


def test_what_is_dropped_together_needs_nothing_else(lake: ViewLake) -> None:
    lake("AlterTableAddColumns", "t", new_columns=[{"name": "half", "computed": "c / 2"}])
    lake("AlterTableDropColumns", "t", columns=["c", "half"])
    assert lake.open("t").schema.names == ["a", "b"]


def test_views_in_namespaces_of_others_are_neither_named_nor_dropped(lake: ViewLake) -> None:
    lake("CreateNamespace", "mine")
    lake("CreateNamespace", "theirs")
    lake("CreateTable", "mine$t", data=pa.table({"a": [1]}))
    lake.view("theirs$secret", "mine$t", {"a": "a"})
    try:
        set_caller(Caller(Principal("me", (Grant(Role.WRITER, ("mine",)),))))
        with pytest.raises(InvalidTableStateError, match="is needed by 1 that this key may not see"):
            lake("DropTable", "mine$t")
        with pytest.raises(PermissionDeniedError, match="a view that this key may not drop"):
            lake("DropTable", "mine$t", cascade=True)
        with pytest.raises(PermissionDeniedError, match="a view that this key may not drop"):
            lake("AlterTableDropColumns", "mine$t", columns=["a"], cascade=True)
    finally:
        set_caller(Caller())
    assert lake.tables("theirs") == {"secret"}
