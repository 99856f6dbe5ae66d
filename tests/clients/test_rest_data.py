"""``lance_namespace.connect("rest")``: the operations on data, carried out by the server."""

from __future__ import annotations

from typing import Any

import lance_namespace as ln
import pyarrow as pa
import pytest
from lance_namespace_urllib3_client.models import (
    AddColumnsEntry,
    AlterColumnsEntry,
    QueryTableRequestColumns,
    QueryTableRequestVector,
    StringFtsQuery,
    UpdateFieldMetadataEntry,
)

from tests.clients.lakes import ClientTable, arrow_stream, ids_of, rows
from tests.support.waiting import wait_until


@pytest.fixture
def made(table: ClientTable) -> ClientTable:
    """A table of 300 rows that the server wrote."""
    created = table.client.create_table(ln.CreateTableRequest(id=table.id), arrow_stream(rows(300)))
    assert created.version == 1
    return table


def query(table: ClientTable, k: int = 1000, **options: Any) -> pa.Table:
    """Query with the client and read the Arrow file it is given."""
    options.setdefault("vector", QueryTableRequestVector(single_vector=[]))
    answer: Any = table.client.query_table(ln.QueryTableRequest(id=table.id, k=k, **options))
    return pa.ipc.open_file(answer.data).read_all()


def test_a_table_is_created_in_one_step(table: ClientTable) -> None:
    request = ln.CreateTableRequest(id=table.id, mode="Create", properties={"a": "b"})
    table.client.create_table(request, arrow_stream(rows(10)))
    table.check(version=1, ids=range(10))
    assert table.client.describe_table(ln.DescribeTableRequest(id=table.id)).properties == {"a": "b"}
    with pytest.raises(ln.TableAlreadyExistsError):
        table.client.create_table(request, arrow_stream(rows(10)))
    table.client.create_table(ln.CreateTableRequest(id=table.id, mode="Overwrite"), arrow_stream(rows(3)))
    table.check(version=2, ids=range(3))


def test_rows_are_inserted_updated_deleted_merged_and_counted(made: ClientTable) -> None:
    client, identifier = made.client, made.id
    inserted = client.insert_into_table(ln.InsertIntoTableRequest(id=identifier), arrow_stream(rows(300, 310)))
    assert inserted.version == 2
    updated = client.update_table(
        ln.UpdateTableRequest(id=identifier, predicate="id = 1", updates=[["text", "'changed'"]])
    )
    assert updated.updated_rows == 1
    client.delete_from_table(ln.DeleteFromTableRequest(id=identifier, predicate="id < 1"))
    merge = ln.MergeInsertIntoTableRequest(
        id=identifier, on=["id"], when_matched_update_all=True, when_not_matched_insert_all=True
    )
    merged = client.merge_insert_into_table(merge, arrow_stream(rows(305, 320)))
    assert (merged.num_updated_rows, merged.num_inserted_rows) == (5, 10)
    counted: Any = client.count_table_rows(ln.CountTableRowsRequest(id=identifier, predicate="text = 'changed'"))
    assert counted.count == 1
    made.check(version=5, ids=range(1, 320))


def test_rows_are_queried(made: ClientTable) -> None:
    assert ids_of(query(made, filter="id < 5")) == [0, 1, 2, 3, 4]
    named = QueryTableRequestColumns(column_names=["id"])
    assert query(made, filter="id = 7", columns=named).to_pylist() == [{"id": 7}]
    wanted = query(made, filter="id = 9")["vector"][0].as_py()
    nearest = query(made, k=1, vector=QueryTableRequestVector(single_vector=wanted))
    assert nearest["_distance"].to_pylist() == [0.0]
    assert query(made, version=1).num_rows == 300


def test_a_plan_is_explained_and_analyzed(made: ClientTable) -> None:
    vector = QueryTableRequestVector(single_vector=[])
    request = ln.QueryTableRequest(id=made.id, k=5, vector=vector, filter="id = 1")
    explained = ln.ExplainTableQueryPlanRequest(id=made.id, query=request)
    assert "id" in made.client.explain_table_query_plan(explained)
    analyzed = ln.AnalyzeTableQueryPlanRequest(id=made.id, k=5, vector=vector, filter="id = 1")
    assert "metrics" in made.client.analyze_table_query_plan(analyzed)


def test_indices_are_made_listed_described_and_dropped(made: ClientTable) -> None:
    client, identifier = made.client, made.id
    client.create_table_scalar_index(ln.CreateTableIndexRequest(id=identifier, column="id", index_type="BTREE"))
    client.create_table_index(
        ln.CreateTableIndexRequest(id=identifier, column="vector", index_type="IVF_FLAT", num_partitions=1)
    )
    client.create_table_index(ln.CreateTableIndexRequest(id=identifier, column="text", index_type="FTS"))

    def names() -> set[str]:
        return {
            index.index_name for index in client.list_table_indices(ln.ListTableIndicesRequest(id=identifier)).indexes
        }

    wait_until(lambda: names() == {"id_idx", "vector_idx", "text_idx"}, "all indices are built")
    stats = client.describe_table_index_stats(ln.DescribeTableIndexStatsRequest(id=identifier, index_name="id_idx"))
    assert (stats.num_indexed_rows, stats.num_unindexed_rows) == (300, 0)
    text = {"string_query": StringFtsQuery(query="word3", columns=["text"])}
    found = query(made, full_text_query=text)
    terms = [{"terms": "word3", "column": "text"}, {"terms": "none such", "column": "text"}]
    several = {"structured_query": {"query": {"multi_match": {"match_queries": terms}}}}
    assert sorted(ids_of(query(made, full_text_query=several))) == sorted(ids_of(found))
    assert ids_of(found) == list(range(3, 300, 5))
    client.drop_table_index(ln.DropTableIndexRequest(id=identifier, index_name="text_idx"))
    assert names() == {"id_idx", "vector_idx"}
    made.check(version=made.open().version, ids=range(300))


def test_columns_are_added_altered_and_dropped(made: ClientTable) -> None:
    client, identifier = made.client, made.id
    client.alter_table_add_columns(
        ln.AlterTableAddColumnsRequest(id=identifier, new_columns=[AddColumnsEntry(name="twice", expression="id * 2")])
    )
    client.alter_table_alter_columns(
        ln.AlterTableAlterColumnsRequest(id=identifier, alterations=[AlterColumnsEntry(path="twice", rename="double")])
    )
    assert made.check(version=3, ids=range(300)).schema.names[-1] == "double"
    client.alter_table_drop_columns(ln.AlterTableDropColumnsRequest(id=identifier, columns=["double"]))
    assert made.check(version=4, ids=range(300)).schema.names == ["id", "text", "vector"]


def test_the_metadata_of_the_schema_is_replaced(made: ClientTable) -> None:
    for given in ({"a": "b"}, {"id": "é", "branch": "x"}):
        request = ln.UpdateTableSchemaMetadataRequest(id=made.id, metadata=given)
        assert made.client.update_table_schema_metadata(request).metadata == given
    made.client.create_table_branch(ln.CreateTableBranchRequest(id=made.id, name="dev"))
    request = ln.UpdateTableSchemaMetadataRequest(id=made.id, metadata={"of": "dev"}, branch="dev")
    assert made.client.update_table_schema_metadata(request).metadata == {"of": "dev"}
    assert made.on_branch("dev").schema.metadata == {b"of": b"dev"}
    assert made.open().schema.metadata == {b"id": "é".encode(), b"branch": b"x"}


def test_what_this_client_has_no_request_for_is_unsupported(made: ClientTable) -> None:
    updates = [UpdateFieldMetadataEntry(path="id", metadata={"a": "b"})]
    with pytest.raises(ln.UnsupportedOperationError):  # in the client; the one that is generated has it
        made.client.update_field_metadata(ln.UpdateFieldMetadataRequest(id=made.id, updates=updates))


def test_tags_and_branches_are_made_listed_and_deleted(made: ClientTable) -> None:
    client, identifier = made.client, made.id
    made.write(rows(300, 310))
    client.create_table_tag(ln.CreateTableTagRequest(id=identifier, tag="first", version=1))
    assert client.get_table_tag_version(ln.GetTableTagVersionRequest(id=identifier, tag="first")).version == 1
    client.update_table_tag(ln.UpdateTableTagRequest(id=identifier, tag="first", version=2))
    assert client.list_table_tags(ln.ListTableTagsRequest(id=identifier)).tags["first"].version == 2
    client.delete_table_tag(ln.DeleteTableTagRequest(id=identifier, tag="first"))
    with pytest.raises(ln.TableTagNotFoundError):
        client.get_table_tag_version(ln.GetTableTagVersionRequest(id=identifier, tag="first"))
    client.create_table_branch(ln.CreateTableBranchRequest(id=identifier, name="dev", from_version=1))
    assert list(client.list_table_branches(ln.ListTableBranchesRequest(id=identifier)).branches) == ["dev"]
    made.check(version=1, ids=range(300), branch="dev")
    client.insert_into_table(ln.InsertIntoTableRequest(id=identifier, branch="dev"), arrow_stream(rows(900, 901)))
    made.check(version=2, ids=[*range(300), 900], branch="dev")
    client.delete_table_branch(ln.DeleteTableBranchRequest(id=identifier, name="dev"))
    with pytest.raises(ln.TableBranchNotFoundError):
        made.recorded("dev")
    made.check(version=2, ids=range(310))


def test_a_version_is_restored_and_statistics_are_returned(made: ClientTable) -> None:
    client, identifier = made.client, made.id
    client.delete_from_table(ln.DeleteFromTableRequest(id=identifier, predicate="id >= 10"))
    assert client.get_table_stats(ln.GetTableStatsRequest(id=identifier)).num_rows == 10
    client.restore_table(ln.RestoreTableRequest(id=identifier, version=1))
    made.check(version=3, ids=range(300))


def test_wrong_requests_have_their_errors(made: ClientTable) -> None:
    client, identifier = made.client, made.id
    other = pa.table({"unknown": [1]})
    with pytest.raises(ln.TableSchemaValidationError):
        client.insert_into_table(ln.InsertIntoTableRequest(id=identifier), arrow_stream(other))
    with pytest.raises(ln.TableColumnNotFoundError):
        client.delete_from_table(ln.DeleteFromTableRequest(id=identifier, predicate="unknown = 1"))
    with pytest.raises(ln.TableNotFoundError):
        client.count_table_rows(ln.CountTableRowsRequest(id=[identifier[0], "missing"]))
    with pytest.raises(ln.TableIndexNotFoundError):
        client.drop_table_index(ln.DropTableIndexRequest(id=identifier, index_name="missing"))
    made.check(version=1, ids=range(300))
