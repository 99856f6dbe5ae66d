"""pylance writes and reads tables through Pennon: every kind of commit is one that Pennon recorded."""

from __future__ import annotations

from datetime import timedelta

import lance
import lance_namespace as ln
import pyarrow as pa
import pytest

from tests.clients.lakes import ClientTable, Lake, ids_of, rows


@pytest.fixture
def written(table: ClientTable) -> ClientTable:
    """A table of 300 rows in two versions."""
    table.write(rows(200), "create")
    table.write(rows(200, 300))
    return table


def test_a_created_table_is_at_version_one(table: ClientTable) -> None:
    created = table.write(rows(10), "create")
    assert created.version == 1
    table.check(version=1, ids=range(10))


def test_appends_add_rows_and_count_versions(table: ClientTable) -> None:
    table.write(rows(10), "create")
    for step in range(1, 4):
        assert table.write(rows(step * 10, step * 10 + 10)).version == step + 1
        table.check(version=step + 1, ids=range(step * 10 + 10))


def test_an_overwrite_is_a_version_with_only_the_new_rows(written: ClientTable) -> None:
    assert written.write(rows(1000, 1005), "overwrite").version == 3
    written.check(version=3, ids=range(1000, 1005))
    assert written.open(version=2).count_rows() == 300


def test_an_overwrite_may_change_the_schema(written: ClientTable) -> None:
    written.write(pa.table({"id": [1, 2], "other": ["a", "b"]}), "overwrite")
    assert written.check(version=3, ids=[1, 2]).schema.names == ["id", "other"]


def test_an_appended_dataset_may_be_the_one_that_was_opened(written: ClientTable) -> None:
    opened = written.open()
    assert lance.write_dataset(rows(300, 301), opened, mode="append").version == 3
    written.check(version=3, ids=range(301))


def test_deleted_rows_are_gone(written: ClientTable) -> None:
    written.open().delete("id < 50")
    written.check(version=3, ids=range(50, 300))


def test_updated_rows_have_their_new_values(written: ClientTable) -> None:
    written.open().update({"text": "'changed'"}, where="id = 7")
    dataset = written.check(version=3, ids=range(300))
    assert dataset.to_table(columns=["id"], filter="text = 'changed'")["id"].to_pylist() == [7]


def test_a_merge_updates_what_matches_and_inserts_the_rest(written: ClientTable) -> None:
    merge = written.open().merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    outcome = merge.execute(rows(290, 320).set_column(1, "text", pa.array(["merged"] * 30)))
    assert (outcome["num_updated_rows"], outcome["num_inserted_rows"]) == (10, 20)
    dataset = written.check(version=3, ids=range(320))
    assert dataset.count_rows(filter="text = 'merged'") == 30


def test_columns_are_added_renamed_cast_and_dropped(written: ClientTable) -> None:
    written.open().add_columns({"twice": "id * 2"})
    dataset = written.check(version=3, ids=range(300))
    assert dataset.to_table(columns=["twice"], filter="id = 21")["twice"].to_pylist() == [42]
    written.open().alter_columns({"path": "twice", "name": "double"})
    written.check(version=4, ids=range(300))
    written.open().alter_columns({"path": "double", "data_type": pa.int32()})
    assert written.check(version=5, ids=range(300)).schema.field("double").type == pa.int32()
    written.open().drop_columns(["double"])
    assert written.check(version=6, ids=range(300)).schema.names == ["id", "text", "vector"]


def test_a_scalar_index_is_used(written: ClientTable) -> None:
    written.open().create_scalar_index("id", "BTREE")
    dataset = written.check(version=3, ids=range(300))
    assert [index.name for index in dataset.describe_indices()] == ["id_idx"]
    scanner = dataset.scanner(filter="id = 123", columns=["id"])
    assert "ScalarIndexQuery" in scanner.explain_plan()
    assert scanner.to_table()["id"].to_pylist() == [123]


def test_a_vector_index_finds_the_nearest_rows(written: ClientTable) -> None:
    written.open().create_index("vector", "IVF_FLAT", num_partitions=1)
    dataset = written.check(version=3, ids=range(300))
    wanted = dataset.to_table(columns=["vector"], filter="id = 9")["vector"][0].as_py()
    nearest = dataset.to_table(columns=["id"], nearest={"column": "vector", "q": wanted, "k": 1, "nprobes": 1})
    assert nearest["_distance"].to_pylist() == [0.0]


def test_compaction_commits_through_pennon(written: ClientTable) -> None:
    assert written.open().optimize.compact_files().fragments_removed == 2
    compacted = written.open().version
    assert compacted > 2
    assert len(written.check(version=compacted, ids=range(300)).get_fragments()) == 1


def test_an_index_is_brought_up_to_date_through_pennon(written: ClientTable) -> None:
    written.open().create_scalar_index("id", "BTREE")
    written.write(rows(300, 310))
    written.open().optimize.optimize_indices()
    dataset = written.check(version=5, ids=range(310))
    assert dataset.stats.index_stats("id_idx")["num_unindexed_rows"] == 0


def test_a_restored_version_becomes_the_newest(written: ClientTable) -> None:
    written.open().delete("true")
    written.check(version=3, ids=[])
    written.open(version=1).restore()
    written.check(version=4, ids=range(200))


def test_every_version_can_be_opened(written: ClientTable) -> None:
    assert ids_of(written.open(version=1).to_table()) == list(range(200))
    assert ids_of(written.open(version=2).to_table()) == list(range(300))
    assert written.open().checkout_version(1).count_rows() == 200
    with pytest.raises(ValueError, match="no version 9"):
        written.open(version=9)


def test_a_tag_names_a_version(written: ClientTable) -> None:
    written.open().tags.create("first", 1)
    written.write(rows(300, 301))
    assert written.open(version="first").count_rows() == 200
    assert written.open().tags.list()["first"]["version"] == 1
    described = written.client.describe_table(ln.DescribeTableRequest(id=written.id, tag="first"))
    assert described.version == 1
    written.open().tags.update("first", 2)
    assert written.client.describe_table(ln.DescribeTableRequest(id=written.id, tag="first")).version == 2
    written.open().tags.delete("first")
    with pytest.raises(ln.TableTagNotFoundError):
        written.client.describe_table(ln.DescribeTableRequest(id=written.id, tag="first"))
    written.check(version=3, ids=range(301))


def test_cleaned_up_versions_are_forgotten(written: ClientTable) -> None:
    written.write(rows(300, 310))
    written.open().tags.create("kept", 2)
    cleaned = written.open().cleanup_old_versions(timedelta(0), error_if_tagged_old_versions=False)
    assert cleaned.old_versions == 1
    assert written.recorded() == [2, 3]
    written.check(version=3, ids=range(310))
    with pytest.raises(ValueError, match="no version 1"):
        written.open(version=1)
    assert written.open(version="kept").count_rows() == 300
    written.write(rows(310, 320))
    written.check(version=4, ids=range(320))


def test_a_stale_writer_is_brought_up_to_date(written: ClientTable) -> None:
    stale = written.open()
    written.write(rows(300, 310))
    stale.delete("id < 10")
    written.check(version=4, ids=range(10, 310))
    assert lance.write_dataset(rows(310, 320), stale, mode="append").version == 5
    written.check(version=5, ids=range(10, 320))


def test_transactions_that_do_not_fit_together_are_refused(written: ClientTable) -> None:
    stale = written.open()
    written.open().update({"text": "'first'"}, where="id = 1")
    with pytest.raises(OSError, match="Too many concurrent writers"):
        stale.update({"text": "'second'"}, where="id = 1", conflict_retries=0)
    written.check(version=3, ids=range(300))


def test_a_table_dropped_and_created_again_starts_at_version_one(written: ClientTable) -> None:
    location = written.location
    written.client.drop_table(ln.DropTableRequest(id=written.id))
    assert written.lake.is_empty(location)
    written.write(rows(5), "create")
    written.check(version=1, ids=range(5))


def test_a_writer_of_a_dropped_table_does_not_reach_its_successor(written: ClientTable) -> None:
    stale = written.open()
    written.client.drop_table(ln.DropTableRequest(id=written.id))
    written.write(rows(5), "create")
    written.write(rows(5, 10))
    with pytest.raises(Exception, match=r"(?i)not found|unknown|conflict|no such|does not"):
        lance.write_dataset(rows(100, 105), stale, mode="append")
    written.check(version=2, ids=range(10))


def test_a_table_with_stable_row_ids_is_a_table_like_any_other(table: ClientTable) -> None:
    lance.write_dataset(
        rows(10), namespace_client=table.client, table_id=table.id, mode="create", enable_stable_row_ids=True
    )
    table.write(rows(10, 20))
    table.open().update({"text": "'x'"}, where="id = 1")
    table.check(version=3, ids=range(20))


def test_a_renamed_table_keeps_its_versions(written: ClientTable) -> None:
    request = ln.RenameTableRequest(id=written.id, new_table_name="renamed")
    written.client.rename_table(request)
    renamed = ClientTable(written.lake, written.client, written.id[0], "renamed")
    renamed.check(version=2, ids=range(300))
    renamed.write(rows(300, 301))
    renamed.check(version=3, ids=range(301))


def test_a_client_with_its_own_credentials_needs_none_from_the_server(written: ClientTable, lake: Lake) -> None:
    described = written.client.describe_table(ln.DescribeTableRequest(id=written.id, vend_credentials=False))
    assert not {"aws_secret_access_key", "aws_access_key_id"} & set(described.storage_options or {})
    assert described.location is not None
    direct = lance.dataset(described.location, storage_options=lake.options)
    assert direct.count_rows() == 300


def test_rows_that_were_written_around_pennon_are_kept_by_the_next_commit(written: ClientTable) -> None:
    lance.write_dataset(rows(300, 310), written.location, mode="append", storage_options=written.lake.options)
    lance.write_dataset(rows(310, 320), written.location, mode="append", storage_options=written.lake.options)
    assert written.write(rows(320, 330)).version == 5
    written.check(version=5, ids=range(330))
