"""Every operation on data, once as the specification has it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from pennon.server.operations.table import OPERATIONS
from tests.integration.data.tables import DataTable, error, rows, vector


def create_table(table: DataTable) -> None:
    other = DataTable(table.http)
    created = other.put("create", rows(3), properties=json.dumps({"owner": "me"}))
    assert created["version"] == 1
    assert created["location"]
    assert created["properties"] == {"owner": "me"}
    assert created["transaction_id"]
    assert other.count() == 3


def insert_into_table(table: DataTable) -> None:
    inserted = table.put("insert", rows(100, 105), mode="append")
    assert (inserted["version"], inserted["num_inserted_rows"]) == (2, 5)
    assert table.count() == 105
    table.put("insert", rows(3), mode="overwrite")
    assert table.ids() == [0, 1, 2]


def merge_insert_into_table(table: DataTable) -> None:
    merged = table.put(
        "merge_insert", rows(95, 110), on="id", when_matched_update_all="true", when_not_matched_insert_all="true"
    )
    assert (merged["num_updated_rows"], merged["num_inserted_rows"], merged["num_deleted_rows"]) == (5, 10, 0)
    assert sorted(table.ids()) == list(range(110))


def update_table(table: DataTable) -> None:
    updated = table.do("update", {"updates": [["word", "'x' || word"]], "predicate": "id < 4"})
    assert (updated["updated_rows"], updated["version"]) == (4, 2)
    assert table.count(predicate="word LIKE 'x%'") == 4


def delete_from_table(table: DataTable) -> None:
    deleted = table.do("delete", {"predicate": "id >= 40"})
    assert deleted["version"] == 2
    assert table.count() == 40


def query_table(table: DataTable) -> None:
    assert table.ids(k=3) == [0, 1, 2]
    assert table.ids(vector=vector(50.4), k=2, columns={"column_names": ["id"]}) == [50, 51]


def count_table_rows(table: DataTable) -> None:
    assert table.do("count_rows", {"predicate": "word = 'red'"}) == 34
    assert table.do("count_rows", {"version": 1}) == 100


def explain_table_query_plan(table: DataTable) -> None:
    plan = table.do("explain_plan", {"query": {"vector": vector(3), "k": 2}, "verbose": True})
    assert "KNN" in plan


def analyze_table_query_plan(table: DataTable) -> None:
    assert "output_rows" in table.do("analyze_plan", {"vector": vector(3), "k": 2})


def alter_table_add_columns(table: DataTable) -> None:
    added = table.do("add_columns", {"new_columns": [{"name": "double", "expression": "id * 2"}]})
    assert added["version"] == 2
    assert table.query(filter="id = 7")["double"].to_pylist() == [14]


def alter_table_alter_columns(table: DataTable) -> None:
    altered = table.do(
        "alter_columns",
        {"alterations": [{"path": "id", "rename": "key"}, {"path": "word", "data_type": {"type": "large_string"}}]},
    )
    assert altered["version"] == table.versions()[-1]
    assert table.schema()["word"]["type"]["type"] == "large_string"
    assert table.query(k=1)["key"].to_pylist() == [0]


def alter_table_drop_columns(table: DataTable) -> None:
    assert table.do("drop_columns", {"columns": ["word"]})["version"] == 2
    assert list(table.schema()) == ["id", "vector"]


def update_field_metadata(table: DataTable) -> None:
    updated = table.do("update_field_metadata", {"updates": [{"path": "id", "metadata": {"unit": "one"}}]})
    assert updated["fields"]["id"] == {"unit": "one"}
    assert table.schema()["id"]["metadata"] == {"unit": "one"}
    twice = [{"path": path, "metadata": {name: "yes"}} for path, name in (("id", "first"), ("`id`", "second"))]
    table.do("update_field_metadata", {"updates": twice})
    assert table.schema()["id"]["metadata"] == {"unit": "one", "first": "yes", "second": "yes"}


def update_table_schema_metadata(table: DataTable) -> None:
    assert table.do("schema_metadata/update", {"a": "b"}) == {"a": "b"}
    given = {"c": "é", "id": "any", "branch": "any", "metadata": "any"}
    assert table.do("schema_metadata/update", given) == given
    described = table.do("describe", {"load_detailed_metadata": True})
    assert described["schema"]["metadata"] == given
    assert error(table.ask("schema_metadata/update", {"metadata": {"a": "b"}})) == (400, 13)


def get_table_stats(table: DataTable) -> None:
    table.do("delete", {"predicate": "id < 10"})
    stats = table.do("stats")
    assert (stats["num_rows"], stats["num_indices"]) == (90, 0)
    assert stats["fragment_stats"]["lengths"]["max"] == 90


def restore_table(table: DataTable) -> None:
    table.do("delete", {"predicate": "true"})
    assert table.do("restore", {"version": 1})["transaction_id"]
    assert (table.count(), table.versions()) == (100, [1, 2, 3])


def create_table_index(table: DataTable) -> None:
    table.do("create_index", {"column": "vector", "index_type": "IVF_FLAT", "distance_type": "cosine"})
    assert table.wait_for_index("vector_idx")["num_indexed_rows"] == 100


def create_table_scalar_index(table: DataTable) -> None:
    table.do("create_scalar_index", {"column": "id", "index_type": "BTREE", "name": "ids"})
    assert table.wait_for_index("ids")["index_type"] == "BTREE"


def list_table_indices(table: DataTable) -> None:
    create_table_scalar_index(table)
    (index,) = table.do("index/list")["indexes"]
    assert (index["index_name"], index["columns"], index["index_type"]) == ("ids", ["id"], "BTREE")


def describe_table_index_stats(table: DataTable) -> None:
    create_table_scalar_index(table)
    table.put("insert", rows(100, 110))
    stats = table.do("index/ids/stats")
    assert (stats["num_indexed_rows"], stats["num_unindexed_rows"]) == (100, 10)


def drop_table_index(table: DataTable) -> None:
    create_table_scalar_index(table)
    assert table.do("index/ids/drop")["transaction_id"]
    assert table.do("index/list")["indexes"] == []


def create_table_tag(table: DataTable) -> None:
    table.do("tags/create", {"tag": "first", "version": 1})
    assert table.do("tags/version", {"tag": "first"})["version"] == 1


def list_table_tags(table: DataTable) -> None:
    create_table_tag(table)
    assert table.do("tags/list")["tags"]["first"]["version"] == 1


def update_table_tag(table: DataTable) -> None:
    create_table_tag(table)
    table.put("insert", rows(1))
    table.do("tags/update", {"tag": "first", "version": 2})
    assert table.do("tags/version", {"tag": "first"})["version"] == 2


def delete_table_tag(table: DataTable) -> None:
    create_table_tag(table)
    table.do("tags/delete", {"tag": "first"})
    assert table.do("tags/list")["tags"] == {}


def create_table_branch(table: DataTable) -> None:
    table.do("branches/create", {"name": "dev"})
    assert table.count(branch="dev") == 100


def list_table_branches(table: DataTable) -> None:
    create_table_branch(table)
    assert table.do("branches/list")["branches"]["dev"]["parentVersion"] == 1


def delete_table_branch(table: DataTable) -> None:
    create_table_branch(table)
    table.do("branches/delete", {"name": "dev"})
    assert table.do("branches/list")["branches"] == {}


CALLS: dict[str, Callable[[DataTable], None]] = {
    "CreateTable": create_table,
    "InsertIntoTable": insert_into_table,
    "MergeInsertIntoTable": merge_insert_into_table,
    "UpdateTable": update_table,
    "DeleteFromTable": delete_from_table,
    "QueryTable": query_table,
    "CountTableRows": count_table_rows,
    "ExplainTableQueryPlan": explain_table_query_plan,
    "AnalyzeTableQueryPlan": analyze_table_query_plan,
    "AlterTableAddColumns": alter_table_add_columns,
    "AlterTableAlterColumns": alter_table_alter_columns,
    "AlterTableDropColumns": alter_table_drop_columns,
    "UpdateFieldMetadata": update_field_metadata,
    "UpdateTableSchemaMetadata": update_table_schema_metadata,
    "GetTableStats": get_table_stats,
    "RestoreTable": restore_table,
    "CreateTableIndex": create_table_index,
    "CreateTableScalarIndex": create_table_scalar_index,
    "ListTableIndices": list_table_indices,
    "DescribeTableIndexStats": describe_table_index_stats,
    "DropTableIndex": drop_table_index,
    "CreateTableTag": create_table_tag,
    "GetTableTagVersion": create_table_tag,
    "ListTableTags": list_table_tags,
    "UpdateTableTag": update_table_tag,
    "DeleteTableTag": delete_table_tag,
    "CreateTableBranch": create_table_branch,
    "ListTableBranches": list_table_branches,
    "DeleteTableBranch": delete_table_branch,
}


@pytest.mark.parametrize("operation", CALLS)
def test_an_operation_does_what_the_specification_says(table: DataTable, operation: str) -> None:
    assert operation in {row.id for row in OPERATIONS}
    CALLS[operation](table)


@pytest.mark.parametrize("operation", ["UpdateTable", "DeleteFromTable", "InsertIntoTable", "AlterTableDropColumns"])
def test_a_change_is_found_again_by_its_transaction(table: DataTable, operation: str) -> None:
    changes: dict[str, Callable[[], Any]] = {
        "UpdateTable": lambda: table.do("update", {"updates": [["word", "'x'"]]}),
        "DeleteFromTable": lambda: table.do("delete", {"predicate": "id = 1"}),
        "InsertIntoTable": lambda: table.put("insert", rows(1)),
        "AlterTableDropColumns": lambda: table.do("drop_columns", {"columns": ["word"]}),
    }
    transaction = changes[operation]()["transaction_id"]
    described = table.http.post(f"/v1/transaction/{transaction}/describe")
    assert described["status"] == "Succeeded"
    assert described["properties"]["operation"] == operation


def test_an_answer_to_a_query_names_the_version_it_was_read_from(table: DataTable) -> None:
    table.put("insert", rows(1))
    answer = table.ask("query", {"k": 1})
    assert answer.headers["x-lancedb-version"] == "2"
    assert pa.ipc.open_file(io.BytesIO(answer.content)).read_all().num_rows == 1
