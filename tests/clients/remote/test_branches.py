"""Branches: made, listed, read and written beside the main one, and deleted."""

from __future__ import annotations

from typing import Any

import pytest
from lancedb.index import BTree

from tests.clients.remote.conftest import Run
from tests.clients.remote.data import ids, new_name, rows, vector


def test_a_branch_is_made_listed_opened_and_deleted(db: Any, table: Any) -> None:
    table.branches.create("dev")
    listed = table.branches.list()
    assert list(listed) == ["dev"]
    assert listed["dev"]["parent_version"] == 1
    assert db.open_table(table.name, branch="dev").count_rows() == 100
    with pytest.raises(Exception, match=r"dev.*already exists"):
        table.branches.create("dev")
    table.branches.delete("dev")
    assert table.branches.list() == {}
    with pytest.raises(Exception, match=r"(?i)branch"):
        db.open_table(table.name, branch="dev")


def test_a_branch_starts_at_any_version_and_from_any_branch(db: Any, table: Any) -> None:
    table.add(rows(100, 110))
    table.branches.create("old", from_version=1)
    old = db.open_table(table.name, branch="old")
    assert old.count_rows() == 100
    old.add(rows(200, 205))
    table.branches.create("child", from_ref="old")
    assert db.open_table(table.name, branch="child").count_rows() == 105


def test_writes_on_a_branch_do_not_change_main(db: Any, table: Any) -> None:
    table.branches.create("dev")
    dev = db.open_table(table.name, branch="dev")
    dev.add(rows(100, 110))
    dev.update(where="id = 1", values={"text": "changed"})
    dev.delete("id = 2")
    dev.merge_insert("id").when_not_matched_insert_all().execute(rows(105, 115))
    dev.add_columns({"double": "id * 2"})
    dev.alter_columns({"path": "double", "rename": "twice"})
    dev.update_field_metadata({"path": "twice", "metadata": {"a": "b"}})
    dev.drop_columns(["tags"])
    dev.create_index("id", config=BTree())
    assert dev.count_rows() == 114
    assert [index.name for index in dev.list_indices()] == ["id_idx"]
    main = db.open_table(table.name)
    assert (main.version, main.count_rows(), main.list_indices()) == (1, 100, [])
    assert main.schema == rows(0).schema
    assert "changed" not in main.search().to_arrow()["text"].to_pylist()


def test_writes_on_main_do_not_change_a_branch(db: Any, table: Any) -> None:
    table.branches.create("dev")
    table.add(rows(100, 110))
    table.delete("id < 50")
    table.drop_columns(["tags"])
    dev = db.open_table(table.name, branch="dev")
    assert dev.count_rows() == 100
    assert dev.schema == rows(0).schema


def test_every_read_on_a_branch_reads_the_branch(db: Any, table: Any) -> None:
    table.branches.create("dev")
    dev = db.open_table(table.name, branch="dev")
    dev.delete("id != 42")
    assert ids(dev.search().to_arrow()) == [42]
    assert ids(dev.search(vector(0)).limit(5).to_arrow()) == [42]
    assert dev.count_rows("id > 40") == 1
    assert dev.head(10).num_rows == 1
    assert dev.stats()["num_rows"] == 1
    assert "KNN" in dev.search(vector(0)).limit(1).explain_plan()
    assert "output_rows" in dev.search(vector(0)).limit(1).analyze_plan()
    assert len(dev.list_versions()) == 2
    assert dev.current_branch() == "dev"


def test_a_branch_has_versions_tags_and_restores_of_its_own(db: Any, table: Any) -> None:
    table.branches.create("dev")
    dev = db.open_table(table.name, branch="dev")
    dev.add(rows(100, 110))
    before = dev.version
    dev.delete("true")
    dev.restore(before)
    assert dev.count_rows() == 110
    assert table.count_rows() == 100


def test_a_branch_that_a_tag_needs_is_not_deleted(db: Any, table: Any) -> None:
    table.branches.create("dev")
    dev = db.open_table(table.name, branch="dev")
    dev.add(rows(100, 110))
    dev.tags.create("keep", dev.version)
    with pytest.raises(Exception, match="keep"):
        table.branches.delete("dev")
    table.tags.delete("keep")
    table.branches.delete("dev")
    assert table.branches.list() == {}


def test_a_table_made_again_has_none_of_the_branches_before(db: Any) -> None:
    name = new_name()
    table = db.create_table(name, rows(10))
    table.branches.create("dev")
    db.open_table(name, branch="dev").add(rows(10, 20))
    db.drop_table(name)
    again = db.create_table(name, rows(3))
    assert again.branches.list() == {}
    again.branches.create("dev")
    assert db.open_table(name, branch="dev").count_rows() == 3


def test_the_asynchronous_client_uses_branches_too(run: Run) -> None:
    async def work(db: Any) -> None:
        table = await db.create_table(new_name(), rows(10))
        await table.branches.create("dev")
        dev = await db.open_table(table.name, branch="dev")
        await dev.add(rows(10, 20))
        assert (await dev.count_rows(), await table.count_rows()) == (20, 10)
        assert list(await table.branches.list()) == ["dev"]
        await table.branches.delete("dev")

    run(work)
