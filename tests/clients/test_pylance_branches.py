"""Branches made by pylance: their versions are recorded apart, and a deleted branch leaves nothing behind."""

from __future__ import annotations

import lance
import lance_namespace as ln
import pytest

from tests.clients.lakes import ClientTable, rows


@pytest.fixture
def written(table: ClientTable) -> ClientTable:
    """A table at version 3 with 30 rows."""
    table.write(rows(10), "create")
    table.write(rows(10, 20))
    table.write(rows(20, 30))
    return table


def append_to(table: ClientTable, branch: str, *bounds: int) -> lance.LanceDataset:
    return lance.write_dataset(rows(*bounds), table.on_branch(branch), mode="append")


def test_a_branch_starts_at_its_parents_version(written: ClientTable) -> None:
    assert written.open().create_branch("dev").version == 3
    written.check(version=3, ids=range(30), branch="dev")
    assert written.recorded("dev") == [3]


def test_a_branch_and_its_parent_grow_apart(written: ClientTable) -> None:
    written.open().create_branch("dev")
    assert append_to(written, "dev", 100, 110).version == 4
    written.write(rows(30, 40))
    written.write(rows(40, 50))
    written.check(version=4, ids=[*range(30), *range(100, 110)], branch="dev")
    written.check(version=5, ids=range(50))
    assert written.recorded("dev") == [3, 4]


def test_a_branch_may_start_at_an_older_version(written: ClientTable) -> None:
    written.open().create_branch("old", 1)
    written.check(version=1, ids=range(10), branch="old")
    append_to(written, "old", 100, 101)
    written.check(version=2, ids=[*range(10), 100], branch="old")
    written.check(version=3, ids=range(30))


def test_a_branch_may_start_from_a_branch(written: ClientTable) -> None:
    written.open().create_branch("dev")
    append_to(written, "dev", 100, 110)
    written.open().create_branch("fix/deep", ("dev", 4))
    append_to(written, "fix/deep", 200, 210)
    written.check(version=5, ids=[*range(30), *range(100, 110), *range(200, 210)], branch="fix/deep")
    written.check(version=4, ids=[*range(30), *range(100, 110)], branch="dev")


def test_a_branch_may_start_at_a_tag(written: ClientTable) -> None:
    written.open().tags.create("release", 2)
    written.open().create_branch("patch", "release")
    written.check(version=2, ids=range(20), branch="patch")


def test_every_kind_of_commit_works_on_a_branch(written: ClientTable) -> None:
    written.open().create_branch("dev")
    append_to(written, "dev", 100, 110)
    written.on_branch("dev").delete("id < 5")
    written.check(version=5, ids=[*range(5, 30), *range(100, 110)], branch="dev")
    written.on_branch("dev").update({"text": "'changed'"}, where="id = 7")
    written.check(version=6, ids=[*range(5, 30), *range(100, 110)], branch="dev")
    written.on_branch("dev").create_scalar_index("id", "BTREE")
    written.check(version=7, ids=[*range(5, 30), *range(100, 110)], branch="dev")
    written.on_branch("dev").optimize.compact_files()
    compacted = written.on_branch("dev").version
    written.check(version=compacted, ids=[*range(5, 30), *range(100, 110)], branch="dev")
    lance.write_dataset(rows(3), written.on_branch("dev"), mode="overwrite")
    written.check(version=compacted + 1, ids=range(3), branch="dev")
    written.on_branch("dev", 4).restore()
    written.check(version=compacted + 2, ids=[*range(30), *range(100, 110)], branch="dev")
    written.check(version=3, ids=range(30))


def test_a_version_of_a_branch_can_be_opened(written: ClientTable) -> None:
    written.open().create_branch("dev")
    append_to(written, "dev", 100, 110)
    append_to(written, "dev", 110, 120)
    assert written.on_branch("dev", 4).count_rows() == 40
    assert written.on_branch("dev", 3).count_rows() == 30


def test_a_tag_may_name_a_version_of_a_branch(written: ClientTable) -> None:
    written.open().create_branch("dev")
    append_to(written, "dev", 100, 110)
    written.open().tags.create("tried", ("dev", 4))
    assert written.open(version="tried").count_rows() == 40
    described = written.client.describe_table(
        ln.DescribeTableRequest(id=written.id, tag="tried", load_detailed_metadata=True)
    )
    assert described.version == 4


def test_a_branch_that_does_not_exist_is_named_in_the_error(written: ClientTable) -> None:
    written.open().create_branch("development")
    with pytest.raises(ln.TableBranchNotFoundError, match="Did you mean 'development'"):
        written.recorded("developmint")


def test_a_deleted_branch_is_forgotten(written: ClientTable) -> None:
    written.open().create_branch("dev")
    append_to(written, "dev", 100, 110)
    written.open().branches.delete("dev")
    assert written.open().branches.list() == {}
    with pytest.raises(ln.TableBranchNotFoundError):
        written.recorded("dev")
    written.check(version=3, ids=range(30))


def test_a_writer_that_missed_the_deletion_of_a_branch_does_not_bring_it_back(written: ClientTable) -> None:
    written.open().create_branch("dev")
    late = written.on_branch("dev")
    written.client.delete_table_branch(ln.DeleteTableBranchRequest(id=written.id, name="dev"))
    with pytest.raises((OSError, ValueError)):
        late.insert(rows(100, 110))
    with pytest.raises(ln.TableBranchNotFoundError):
        written.recorded("dev")
    written.open().create_branch("dev")
    assert (written.recorded("dev"), written.on_branch("dev").count_rows()) == ([3], 30)


@pytest.mark.parametrize("start", [1, 2, 3, 5])
def test_a_branch_may_be_made_again_under_the_same_name_anywhere(written: ClientTable, start: int) -> None:
    written.write(rows(30, 40))
    written.write(rows(40, 50))
    written.open().create_branch("dev", 3)
    append_to(written, "dev", 100, 110)
    append_to(written, "dev", 110, 120)
    written.open().branches.delete("dev")
    written.open().create_branch("dev", start)
    written.check(version=start, ids=range(start * 10), branch="dev")
    assert written.recorded("dev") == [start]
    append_to(written, "dev", 500, 501)
    written.check(version=start + 1, ids=[*range(start * 10), 500], branch="dev")
    written.check(version=5, ids=range(50))


def test_a_branch_that_exists_is_not_made_again(written: ClientTable) -> None:
    written.open().create_branch("dev")
    append_to(written, "dev", 100, 110)
    for start in (1, 3, 4):
        # How the client says so depends on the version; that the branch stays as it is does not.
        with pytest.raises((OSError, ValueError)):
            written.open().create_branch("dev", start)
    written.check(version=4, ids=[*range(30), *range(100, 110)], branch="dev")


def test_nothing_of_a_dropped_tables_branches_is_found_in_its_successor(written: ClientTable) -> None:
    written.open().create_branch("dev")
    append_to(written, "dev", 100, 110)
    written.client.drop_table(ln.DropTableRequest(id=written.id))
    written.write(rows(5), "create")
    with pytest.raises(ln.TableBranchNotFoundError):
        written.recorded("dev")
    written.open().create_branch("dev")
    written.check(version=1, ids=range(5), branch="dev")
