"""``lancedb.connect_namespace("rest")``: LanceDB with Pennon as its catalog and commit authority."""

from __future__ import annotations

import re
from typing import Any

import httpx
import lance_namespace as ln
import lancedb
import pyarrow as pa
import pytest
from lancedb.index import FTS, BTree, IvfFlat

from tests.clients.lakes import ClientTable, Lake, ids_of, rows


@pytest.fixture
def db(lake: Lake) -> Any:
    return lancedb.connect_namespace("rest", {"uri": lake.url})


@pytest.fixture
def opened(db: Any, table: ClientTable) -> Any:
    """A table of 300 rows, opened by LanceDB."""
    return db.create_table("table", rows(300), namespace_path=[table.id[0]])


def test_namespaces_are_created_described_listed_and_dropped(db: Any, space: str) -> None:
    db.create_namespace([space, "child"], properties={"a": "b"})
    assert db.create_namespace([space, "child"], mode="exist_ok").properties == {"a": "b"}
    assert db.describe_namespace([space, "child"]).properties == {"a": "b"}
    assert db.list_namespaces([space]).namespaces == ["child"]
    with pytest.raises(RuntimeError, match="already exists"):
        db.create_namespace([space, "child"])
    with pytest.raises(ln.NamespaceNotEmptyError):
        db.drop_namespace([space])
    db.drop_namespace([space], behavior="cascade")
    assert space not in db.list_namespaces().namespaces


def test_tables_are_created_listed_opened_and_dropped(db: Any, space: str) -> None:
    for name in ("b", "a"):
        assert db.create_table(name, rows(3), namespace_path=[space]).count_rows() == 3
    assert db.list_tables([space]).tables == ["a", "b"]
    assert db.open_table("a", namespace_path=[space]).count_rows() == 3
    with pytest.raises(ValueError, match="already exists"):
        db.create_table("a", rows(3), namespace_path=[space])
    db.drop_table("a", namespace_path=[space])
    assert db.list_tables([space]).tables == ["b"]
    with pytest.raises(ln.TableNotFoundError):
        db.open_table("a", namespace_path=[space])
    with pytest.raises(ValueError, match="was not found"):
        db.drop_table("a", namespace_path=[space])


def test_a_listing_of_tables_comes_in_pages(db: Any, client: ln.LanceNamespace, space: str) -> None:
    for name in "abc":
        client.declare_table(ln.DeclareTableRequest(id=[space, name]))
    first = db.list_tables([space], limit=2)
    assert first.tables == ["a", "b"]
    assert db.list_tables([space], limit=2, page_token=first.page_token).tables == ["c"]


def test_an_empty_table_is_created_from_a_schema(db: Any, table: ClientTable) -> None:
    opened = db.create_table("table", schema=rows(1).schema, namespace_path=[table.id[0]])
    assert opened.count_rows() == 0
    table.check(version=1, ids=[])


def test_a_table_that_exists_is_opened_or_overwritten(db: Any, opened: Any, table: ClientTable) -> None:
    space = table.id[0]
    assert db.create_table("table", rows(5), namespace_path=[space], exist_ok=True).count_rows() == 300
    assert db.create_table("table", rows(5), namespace_path=[space], mode="overwrite").count_rows() == 5
    table.check(version=2, ids=range(5))


def test_a_table_is_renamed_into_another_namespace(db: Any, opened: Any, table: ClientTable) -> None:
    space = table.id[0]
    db.create_namespace([space, "child"])
    db.rename_table("table", "renamed", cur_namespace_path=[space], new_namespace_path=[space, "child"])
    db.open_table("renamed", namespace_path=[space, "child"]).add(rows(300, 301))
    assert db.list_tables([space]).tables == []
    ClientTable(table.lake, table.client, space, "child", "renamed").check(version=2, ids=range(301))


def test_rows_are_added_updated_deleted_and_merged(opened: Any, table: ClientTable) -> None:
    assert opened.add(rows(300, 310)).version == 2
    table.check(version=2, ids=range(310))
    assert opened.update(where="id = 1", values={"text": "changed"}).rows_updated == 1
    table.check(version=3, ids=range(310))
    assert opened.delete("id < 10").version == 4
    table.check(version=4, ids=range(10, 310))
    merge = opened.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    merged = merge.execute(rows(300, 320))
    assert (merged.num_updated_rows, merged.num_inserted_rows) == (10, 10)
    table.check(version=merged.version, ids=range(10, 320))
    assert opened.add(rows(3), mode="overwrite").version == merged.version + 1
    table.check(version=merged.version + 1, ids=range(3))


def test_columns_are_added_renamed_and_dropped(opened: Any, table: ClientTable) -> None:
    opened.add_columns({"twice": "id * 2"})
    opened.alter_columns({"path": "twice", "rename": "double"})
    assert table.check(version=3, ids=range(300)).schema.names[-1] == "double"
    opened.drop_columns(["double"])
    table.check(version=4, ids=range(300))


def test_vectors_are_searched_with_an_index(opened: Any, table: ClientTable) -> None:
    opened.create_index("vector", config=IvfFlat(num_partitions=1))
    wanted = opened.search().where("id = 9").limit(1).to_list()[0]["vector"]
    nearest = opened.search(wanted).limit(3).to_list()
    assert nearest[0]["_distance"] == 0.0
    assert [row["id"] for row in opened.search(wanted).where("id = 9").limit(3).to_list()] == [9]
    table.check(version=2, ids=range(300))


def test_text_is_searched_with_an_index(opened: Any, table: ClientTable) -> None:
    opened.create_index("text", config=FTS())
    found = opened.search("word3", query_type="fts").limit(1000).to_list()
    assert sorted(row["id"] for row in found) == list(range(3, 300, 5))
    table.check(version=2, ids=range(300))


def test_indices_are_listed_and_dropped(opened: Any, table: ClientTable) -> None:
    opened.create_index("id", config=BTree())
    assert [index.name for index in opened.list_indices()] == ["id_idx"]
    assert opened.search().where("id = 123").limit(5).to_arrow()["id"].to_pylist() == [123]
    opened.drop_index("id_idx")
    assert list(opened.list_indices()) == []
    table.check(version=3, ids=range(300))


def test_optimizing_commits_through_pennon(opened: Any, table: ClientTable) -> None:
    opened.create_index("id", config=BTree())
    for start in range(300, 350, 10):
        opened.add(rows(start, start + 10))
    opened.optimize()
    assert opened.stats()["fragment_stats"]["num_fragments"] < 6
    table.check(version=opened.version, ids=range(350))


def test_versions_are_listed_checked_out_and_restored(opened: Any, table: ClientTable) -> None:
    opened.add(rows(300, 310))
    opened.delete("id < 100")
    assert [version["version"] for version in opened.list_versions()] == [1, 2, 3]
    opened.checkout(2)
    assert (opened.version, opened.count_rows()) == (2, 310)
    opened.checkout_latest()
    assert opened.count_rows() == 210
    opened.restore(1)
    table.check(version=4, ids=range(300))
    with pytest.raises(ValueError, match="no longer exists"):
        opened.checkout(99)


def test_tags_name_versions(opened: Any, table: ClientTable) -> None:
    opened.add(rows(300, 310))
    opened.tags.create("first", 1)
    assert opened.tags.get_version("first") == 1
    opened.checkout("first")
    assert opened.count_rows() == 300
    opened.checkout_latest()
    opened.tags.update("first", 2)
    assert opened.tags.list()["first"]["version"] == 2
    assert table.client.describe_table(ln.DescribeTableRequest(id=table.id, tag="first")).version == 2
    opened.tags.delete("first")
    assert opened.tags.list() == {}


def test_branches_are_made_written_opened_and_deleted(db: Any, opened: Any, table: ClientTable) -> None:
    branch = opened.branches.create("dev")
    branch.add(rows(1000, 1010))
    assert (branch.count_rows(), opened.count_rows()) == (310, 300)
    assert list(opened.branches.list()) == ["dev"]
    assert db.open_table("table", namespace_path=[table.id[0]], branch="dev").count_rows() == 310
    table.check(version=2, ids=[*range(300), *range(1000, 1010)], branch="dev")
    table.check(version=1, ids=range(300))
    opened.branches.delete("dev")
    opened.add(rows(300, 310))
    again = opened.branches.create("dev")
    again.add(rows(2000, 2001))
    table.check(version=3, ids=[*range(310), 2000], branch="dev")


def test_an_open_table_sees_the_commits_of_others_when_it_looks(opened: Any, table: ClientTable) -> None:
    table.write(rows(300, 310))
    opened.checkout_latest()
    assert opened.count_rows() == 310
    opened.add(rows(310, 320))
    table.check(version=3, ids=range(320))


def test_a_table_is_handed_to_pylance(opened: Any) -> None:
    assert ids_of(opened.to_lance().to_table(columns=["id"])) == list(range(300))


def test_queries_are_answered_by_the_server_where_that_is_asked_for(
    lake: Lake, opened: Any, table: ClientTable
) -> None:
    db = lancedb.connect_namespace("rest", {"uri": lake.url}, namespace_client_pushdown_operations=["QueryTable"])
    pushing = db.open_table("table", namespace_path=[table.id[0]])
    before = count_of_queries(lake)
    found = pushing.search().where("id > 5").select(["id"]).limit(2).offset(1).to_arrow()
    assert found.to_pylist() == [{"id": 7}, {"id": 8}]
    assert "_rowid" in pushing.search().with_row_id(True).limit(1).to_arrow().column_names
    assert count_of_queries(lake) == before + 2


def count_of_queries(lake: Lake) -> float:
    text = httpx.get(f"{lake.url}/metrics", trust_env=False).text
    found = re.search(r'pennon_requests_total\{operation="QueryTable",status="200"\} (\S+)', text)
    return float(found[1]) if found else 0.0


def test_the_connection_gives_its_client_for_what_it_has_not_itself(db: Any, space: str) -> None:
    client = db.namespace_client()
    client.namespace_exists(ln.NamespaceExistsRequest(id=[space]))
    with pytest.raises(ln.TableNotFoundError):
        client.table_exists(ln.TableExistsRequest(id=[space, "missing"]))


def test_many_types_of_columns_survive(db: Any, table: ClientTable) -> None:
    data = pa.table(
        {
            "id": pa.array([1, 2], pa.int64()),
            "price": pa.array([None, 1.5], pa.float64()),
            "when": pa.array([0, 1], pa.timestamp("us", "UTC")),
            "day": pa.array([0, 1], pa.date32()),
            "flags": pa.array([[True], []], pa.list_(pa.bool_())),
            "nested": pa.array([{"a": 1, "b": ["x"]}, None], pa.struct({"a": pa.int32(), "b": pa.list_(pa.string())})),
            "blob": pa.array([b"\0\xff", None], pa.binary()),
            "kind": pa.array(["x", "y"]).dictionary_encode(),
        }
    )
    db.create_table("table", data, namespace_path=[table.id[0]])
    assert table.check(version=1, ids=[1, 2]).to_table().to_pylist() == data.to_pylist()
    request = ln.DescribeTableRequest(id=table.id, load_detailed_metadata=True)
    described = table.client.describe_table(request)
    assert described.var_schema is not None
    assert [field.name for field in described.var_schema.fields] == data.schema.names
