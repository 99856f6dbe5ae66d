"""Branches: every operation that takes one works on it, and on nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from pennon.server.operations.table import OPERATIONS
from tests.integration.data.tables import DataTable, error, rows, vector

MERGE = {"on": "id", "when_matched_update_all": "true", "when_not_matched_insert_all": "true"}
INDEX = {"column": "id", "index_type": "BTREE", "name": "ids"}

Change = Callable[[DataTable, str | None], Any]
Read = Callable[[DataTable, str | None], Any]


def named(branch: str | None) -> dict[str, str]:
    return {} if branch is None else {"branch": branch}


def restore(table: DataTable, branch: str | None) -> None:
    first = table.versions(branch)[0]
    table.do("delete", {"predicate": "id < 50", **named(branch)})
    table.do("restore", {"version": first, **named(branch)})


def make_index(table: DataTable, branch: str | None) -> None:
    table.do("create_index", {**INDEX, **named(branch)})
    table.wait_for_index("ids", branch)


def drop_index(table: DataTable, branch: str | None) -> None:
    make_index(table, branch)
    table.do("index/ids/drop", **named(branch))


CHANGES: dict[str, Change] = {
    "InsertIntoTable": lambda t, b: t.put("insert", rows(100, 110), **named(b)),
    "InsertIntoTable, overwriting": lambda t, b: t.put("insert", rows(3), mode="overwrite", **named(b)),
    "InsertIntoTable, large": lambda t, b: t.put("insert", rows(300_000), **named(b)),
    "MergeInsertIntoTable": lambda t, b: t.put("merge_insert", rows(95, 105), **MERGE, **named(b)),
    "UpdateTable": lambda t, b: t.do("update", {"updates": [["word", "'x'"]], **named(b)}),
    "DeleteFromTable": lambda t, b: t.do("delete", {"predicate": "id < 50", **named(b)}),
    "AlterTableAddColumns": lambda t, b: t.do(
        "add_columns", {"new_columns": [{"name": "x", "expression": "id * 2"}], **named(b)}
    ),
    "AlterTableAddColumns, by Arrow": lambda t, b: t.put(
        "add_columns", pa.schema([pa.field("x", pa.int32())]).empty_table(), **named(b)
    ),
    "AlterTableAlterColumns": lambda t, b: t.do(
        "alter_columns", {"alterations": [{"path": "word", "rename": "term"}], **named(b)}
    ),
    "AlterTableDropColumns": lambda t, b: t.do("drop_columns", {"columns": ["word"], **named(b)}),
    "UpdateFieldMetadata": lambda t, b: t.do(
        "update_field_metadata", {"updates": [{"path": "id", "metadata": {"a": "b"}}], **named(b)}
    ),
    "UpdateTableSchemaMetadata": lambda t, b: t.do("schema_metadata/update", {"a": "b"}, **named(b)),
    "RestoreTable": restore,
    "CreateTableIndex": make_index,
    "CreateTableScalarIndex": lambda t, b: t.do("create_scalar_index", {**INDEX, **named(b)}),
    "DropTableIndex": drop_index,
}
READS: dict[str, Read] = {
    "QueryTable": lambda t, b: t.ids(**named(b)),
    "QueryTable, by vector": lambda t, b: t.ids(vector=vector(0), k=3, **named(b)),
    "CountTableRows": lambda t, b: t.count(**named(b)),
    "GetTableStats": lambda t, b: t.do("stats", named(b))["num_rows"],
    "DescribeTable": lambda t, b: t.do("describe", {"load_detailed_metadata": True, **named(b)})["stats"],
    "ListTableVersions": lambda t, b: t.versions(b),
    "DescribeTableVersion": lambda t, b: t.do("version/describe", named(b))["version"]["version"],
    "ExplainTableQueryPlan": lambda t, b: t.do(
        "explain_plan", {"query": {"k": 1, "vector": {}, "filter": "id > 1"}, **named(b)}
    ),
    "AnalyzeTableQueryPlan": lambda t, b: "rows=50" in t.do("analyze_plan", {"k": 1000, "vector": {}, **named(b)}),
}


@pytest.fixture
def branched(table: DataTable) -> DataTable:
    """A table with a branch ``dev`` of the same rows."""
    table.do("branches/create", {"name": "dev"})
    return table


def state(table: DataTable, branch: str | None) -> dict[str, Any]:
    """Return all that can be seen of a branch."""
    described = table.do("describe", {"load_detailed_metadata": True, **named(branch)})
    return {
        "versions": table.versions(branch),
        "schema": described["schema"],
        "rows": table.query(**named(branch)).to_pylist(),
        "stats": table.do("stats", named(branch))["num_rows"],
        "indices": [index["index_name"] for index in table.do("index/list", named(branch))["indexes"]],
    }


@pytest.mark.parametrize(("target", "other"), [("dev", None), (None, "dev")], ids=["on the branch", "on main"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_reaches_its_branch_and_no_other(
    branched: DataTable, change: str, target: str | None, other: str | None
) -> None:
    assert change.split(",", maxsplit=1)[0] in {row.id for row in OPERATIONS}
    untouched, before = state(branched, other), branched.versions(target)
    CHANGES[change](branched, target)
    assert state(branched, other) == untouched
    assert branched.versions(target)[-1] > before[-1]


@pytest.mark.parametrize("read", READS)
def test_a_read_sees_its_branch_and_no_other(branched: DataTable, read: str) -> None:
    on_main = READS[read](branched, None)
    branched.do("delete", {"predicate": "id < 50", "branch": "dev"})
    assert READS[read](branched, None) == on_main
    assert READS[read](branched, "dev") != on_main


def test_main_may_be_named_as_a_branch(branched: DataTable) -> None:
    branched.put("insert", rows(100, 110), branch="main")
    assert branched.count(branch="main") == 110
    assert branched.count() == 110
    assert branched.count(branch="dev") == 100


def test_a_query_to_be_explained_may_name_its_branch_inside_or_outside(branched: DataTable) -> None:
    branched.do("add_columns", {"new_columns": [{"name": "x", "expression": "id"}], "branch": "dev"})
    query = {"k": 1, "vector": {}, "columns": {"column_names": ["x"]}}
    assert branched.do("explain_plan", {"query": {**query, "branch": "dev"}})
    assert branched.do("explain_plan", {"query": query, "branch": "dev"})
    assert error(branched.ask("explain_plan", {"query": query})) == (404, 12)


def test_a_branch_is_read_at_its_versions(branched: DataTable) -> None:
    first = branched.versions("dev")[-1]
    branched.put("insert", rows(100, 110), branch="dev")
    assert branched.count(branch="dev", version=first) == 100
    assert branched.count(branch="dev", version=first + 1) == 110


def test_a_branch_that_a_tag_or_a_branch_needs_is_not_deleted(branched: DataTable) -> None:
    branched.put("insert", rows(100, 110), branch="dev")
    version = branched.versions("dev")[-1]
    branched.do("tags/create", {"tag": "keep", "version": version, "branch": "dev"})
    answer = branched.ask("branches/delete", {"name": "dev"})
    assert error(answer) == (409, 19)
    assert "keep" in answer.json()["error"]
    branched.do("tags/delete", {"tag": "keep"})
    branched.do("branches/create", {"name": "child", "from_branch": "dev"})
    assert error(branched.ask("branches/delete", {"name": "dev"})) == (409, 19)
    assert branched.count(branch="child") == 110
    branched.do("branches/delete", {"name": "child"})
    branched.do("branches/delete", {"name": "dev"})
    assert error(branched.ask("count_rows", {"branch": "dev"})) == (404, 22)


def test_a_deleted_branch_leaves_nothing_to_the_next_of_its_name(branched: DataTable) -> None:
    branched.put("insert", rows(100, 110), branch="dev")
    branched.do("branches/delete", {"name": "dev"})
    branched.do("branches/create", {"name": "dev"})
    assert branched.ids(branch="dev") == list(range(100))
    branched.put("insert", rows(200, 201), branch="dev")
    assert branched.count(branch="dev") == 101


def test_tags_point_into_branches(branched: DataTable) -> None:
    branched.put("insert", rows(100, 110), branch="dev")
    version = branched.versions("dev")[-1]
    branched.do("tags/create", {"tag": "there", "version": version, "branch": "dev"})
    assert branched.do("tags/version", {"tag": "there"}) == {"version": version, "branch": "dev"}
    assert branched.do("tags/list")["tags"]["there"]["branch"] == "dev"
    assert branched.do("describe", {"tag": "there"})["version"] == version


def test_tags_and_branches_are_listed_in_pages(table: DataTable) -> None:
    for name in ("a", "b", "c"):
        table.do("tags/create", {"tag": name, "version": 1})
        table.do("branches/create", {"name": name})
    for noun, key in (("tags", "tags"), ("branches", "branches")):
        first = table.do(f"{noun}/list", limit=2)
        assert list(first[key]) == ["a", "b"]
        table.do(f"{noun}/delete", {"tag": "b", "name": "b"})  # the one that the token stands on
        rest = table.do(f"{noun}/list", limit=2, page_token=first["page_token"])
        assert list(rest[key]) == ["c"]
        assert "page_token" not in rest
        assert error(table.ask(f"{noun}/list", page_token="b")) == (400, 13)


def test_a_deleted_branch_is_gone_also_when_the_name_of_another_begins_with_its_own(table: DataTable) -> None:
    for name in ("dev", "dev/x"):
        table.do("branches/create", {"name": name})
        table.put("insert", rows(500, 503), branch=name)
    table.do("branches/delete", {"name": "dev"})
    assert error(table.ask("count_rows", {"branch": "dev"})) == (404, 22)
    table.do("branches/create", {"name": "dev"})
    assert (table.count(branch="dev"), table.count(branch="dev/x")) == (100, 103)


def test_a_name_that_lance_refuses_is_refused(table: DataTable) -> None:
    for name in ("dev.lock", "a/b.lock", "..", "a//b", "/a", "a/"):
        assert error(table.ask("branches/create", {"name": name})) == (400, 13)
