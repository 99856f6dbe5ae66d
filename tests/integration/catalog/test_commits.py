"""Committing versions: of all who want to write one, exactly one does."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import TYPE_CHECKING, Any

import lance
import pytest
from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    NamespaceNotFoundError,
    TableBranchNotFoundError,
    TableNotFoundError,
)

from pennon.catalog import versions
from pennon.commits.staging import Proposal
from tests.integration.catalog.lakes import Staged, rows, stage_in, tag_of

if TYPE_CHECKING:
    from tests.integration.catalog.lakes import Lake


def another(staged: Staged) -> Staged:
    """Stage the same bytes under another name, as a client does that tries again."""
    name = staged.file.name[:-12] + "0123456789ab"
    return Staged(Path(shutil.copy(staged.file, staged.file.with_name(name))), staged.version)


@pytest.fixture
def table(lake: Lake) -> str:
    """A table of one version."""
    lake("CreateNamespace", "a")
    lake.write("a$t")
    return "a$t"


class TestCommitting:
    @pytest.mark.parametrize("table", ["t", "a$t"])
    def test_a_staged_version_becomes_the_newest(self, lake: Lake, table: str) -> None:
        lake("CreateNamespace", "a")
        lake.write(table)
        staged = lake.stage(table)
        tag, size = tag_of(staged.file), staged.file.stat().st_size
        answer = lake.commit(table, staged, metadata={"by": "ada"})
        final = staged.file.with_name(staged.file.name.partition("-")[0])
        version = answer.version
        assert answer.transaction_id
        assert (version.version, version.manifest_path) == (2, str(final).lstrip("/"))
        assert (version.manifest_size, version.e_tag) == (size, tag)
        assert version.metadata == {"by": "ada"}
        assert version.timestamp_millis
        assert final.is_file()
        assert not staged.file.exists()
        described = lake("DescribeTableVersion", table, version=2).version
        assert described == version
        assert lake("ListTableVersions", table, limit=1, descending=True).versions == [version]
        assert lake.open(table).count_rows() == 4
        assert lance.dataset(lake.folder(table)).version == 2

    def test_the_first_version_makes_a_declared_table_a_written_one(self, lake: Lake) -> None:
        location = lake("DeclareTable", "t").location
        lake.commit("t", stage_in(Path(location)))
        assert lake("ListTables", "$", include_declared=False).tables == ["t"]
        assert lake.latest("t") == 1

    def test_size_and_tag_may_be_left_out(self, lake: Lake, table: str) -> None:
        staged = lake.stage(table)
        lake("CreateTableVersion", table, version=2, manifest_path=staged.path)
        assert lake.latest(table) == 2

    def test_a_leading_slash_and_a_weak_tag_make_no_difference(self, lake: Lake, table: str) -> None:
        staged = lake.stage(table)
        lake.commit(table, staged, manifest_path=f"/{staged.path}", e_tag=f"W/{tag_of(staged.file)}")
        assert lake.latest(table) == 2

    def test_tables_of_the_older_naming_scheme_keep_it(self, lake: Lake) -> None:
        folder = Path(lake("DeclareTable", "t").location)
        for scheme in ("V1", "v1"):
            lake.commit("t", stage_in(folder, scheme="V1"), naming_scheme=scheme)
        assert {file.name for file in (folder / "_versions").glob("*.manifest")} == {"1.manifest", "2.manifest"}
        assert lance.dataset(folder).count_rows() == 4

    def test_all_of_lances_own_operations_are_committed(self, lake: Lake, table: str) -> None:
        dataset = lake.open(table)
        dataset.insert(rows(300, 10))
        dataset.delete("number = 1")
        dataset.update({"number": "number + 1"}, where="number > 300")
        dataset.merge_insert("number").when_not_matched_insert_all().execute(rows(1, 1000))
        dataset.add_columns({"twice": "number * 2"})
        dataset.drop_columns(["twice"])
        dataset.create_scalar_index("number", "BTREE")
        dataset.optimize.compact_files()
        dataset.restore() if dataset.version > 2 else None
        newest = lake.latest(table)
        assert newest == lake.open(table).version == lance.dataset(lake.folder(table)).version
        assert lake.numbers(table) == list(range(1, newest + 1))
        assert list(lake.folder(table).glob("_versions/*-*")) == []


class TestReplays:
    def test_the_same_staged_path_again_is_the_same_version(self, lake: Lake, table: str) -> None:
        staged = lake.stage(table)
        request = staged.request
        first = lake("CreateTableVersion", table, **request)
        lake.write(table, mode="append")
        before = lake.state()
        again = lake("CreateTableVersion", table, **request)
        assert again == first
        assert lake.state() == before

    def test_the_same_bytes_again_are_the_same_version(self, lake: Lake, table: str) -> None:
        staged = lake.stage(table)
        copy = another(staged)
        first = lake.commit(table, staged)
        again = lake.commit(table, copy)
        assert again.version == first.version
        assert again.transaction_id == first.transaction_id
        assert not copy.file.exists()
        assert lake.numbers(table) == [1, 2]

    def test_a_lost_commit_is_refused_and_its_files_removed(self, lake: Lake, table: str) -> None:
        winner, loser = lake.stage(table), lake.stage(table, rows(5))
        lake.commit(table, winner)
        with pytest.raises(ConcurrentModificationError, match="committed by another writer"):
            lake.commit(table, loser)
        assert not loser.file.exists()
        assert lake("DescribeTableVersion", table, version=2).version.version == 2
        assert lake.open(table).count_rows() == 4

    def test_a_staged_path_that_was_never_there_is_refused(self, lake: Lake, table: str) -> None:
        staged = lake.stage(table)
        request = staged.request
        staged.file.unlink()
        with pytest.raises(InvalidInputError, match="no staged manifest"):
            lake("CreateTableVersion", table, **request)
        assert lake.numbers(table) == [1]

    def test_a_committer_that_died_half_way_is_finished_by_the_next_reader(self, lake: Lake, table: str) -> None:
        staged = lake.stage(table)
        die_after_the_record(lake, table, staged)
        assert staged.file.exists()
        assert lake.latest(table) == 2
        assert not staged.file.exists()
        assert lake.open(table).count_rows() == 4
        lake.write(table, mode="append")
        assert lake.numbers(table) == [1, 2, 3]

    def test_a_committer_that_died_half_way_is_finished_by_its_own_replay(self, lake: Lake, table: str) -> None:
        staged = lake.stage(table)
        die_after_the_record(lake, table, staged)
        assert lake.commit(table, staged).version.version == 2
        assert lake.open(table).count_rows() == 4

    def test_a_version_whose_manifest_is_lost_is_withdrawn(self, lake: Lake, table: str) -> None:
        staged = lake.stage(table)
        die_after_the_record(lake, table, staged)
        staged.file.unlink()
        assert lake.latest(table) == 1
        lake.write(table, mode="append")
        assert lake.numbers(table) == [1, 2]


def die_after_the_record(lake: Lake, table: str, staged: Staged) -> None:
    """Record a version and put nothing in place, as a process does that dies at that moment."""
    found = lake.ns.find_table(tuple(table.split("$")))
    ready = lake.ns.services.authority.stage(found, Proposal(2, staged.path))
    assert not isinstance(ready, versions.Version)
    lake.ns.services.database.write(lambda c: lake.ns.services.authority.record_version(c, ready, "dead"))


class TestNumbers:
    def test_a_number_that_does_not_follow_is_refused(self, lake: Lake, table: str) -> None:
        staged = lake.stage(table)
        before = lake.state()
        for number in (0, 1, 3, 9, 2**62, 2**63, 2**64 - 1):
            with pytest.raises((ConcurrentModificationError, InvalidInputError)):
                lake.commit(table, staged, version=number)
        assert lake.state() == before

    def test_a_gap_is_a_conflict(self, lake: Lake, table: str) -> None:
        far = stage_at(lake, table, 4)
        with pytest.raises(ConcurrentModificationError, match="Version 4 cannot follow version 1"):
            lake.commit(table, far)
        assert lake.numbers(table) == [1]

    def test_the_first_version_is_one(self, lake: Lake, table: str) -> None:
        far = stage_at(lake, table, 2)
        place = Path(lake("DeclareTable", "new").location)
        shutil.copytree(lake.folder(table), place)
        moved = Staged(place / "_versions" / far.file.name, 2)
        next(place.glob("_versions/*.manifest")).unlink()
        with pytest.raises(ConcurrentModificationError, match="cannot follow version 0"):
            lake.commit("new", moved)

    def test_the_first_version_is_one_also_where_others_reserved_the_folder(self, lake: Lake, table: str) -> None:
        far = stage_at(lake, table, 2)
        place = lake.root / "found.lance"
        (place / "_versions").mkdir(parents=True)
        (place / ".lance-reserved").touch()
        assert lake("DescribeTable", "found", check_declared=True).is_only_declared
        moved = Staged(place / "_versions" / far.file.name, 2)
        moved.file.write_bytes(far.file.read_bytes())
        with pytest.raises(ConcurrentModificationError, match="cannot follow version 0"):
            lake.commit("found", moved)
        assert lake("DescribeTable", "found", check_declared=True).is_only_declared


def stage_at(lake: Lake, table: str, number: int) -> Staged:
    """Stage a version that others would have to precede."""
    copy = lake.root.parent / f"ahead-{number}"
    shutil.copytree(lake.folder(table), copy)
    while lance.dataset(copy).version < number - 1:
        lance.write_dataset(rows(), copy, mode="append")
    staged = stage_in(copy)
    for part in ("data", "_transactions"):
        shutil.copytree(copy / part, lake.folder(table) / part, dirs_exist_ok=True)
    return Staged(Path(shutil.copy(staged.file, lake.folder(table) / "_versions")), number)


class TestMissing:
    def test_what_is_missing_is_named(self, lake: Lake, table: str) -> None:
        staged = lake.stage(table)
        with pytest.raises(TableNotFoundError):
            lake.commit("nope", staged)
        with pytest.raises(NamespaceNotFoundError):
            lake.commit("nope$t", staged)
        assert staged.file.exists()


class TestBranches:
    def test_a_branch_starts_at_the_number_of_its_parent_and_goes_on(self, lake: Lake, table: str) -> None:
        lake.write(table, mode="append")
        with pytest.raises(TableBranchNotFoundError):
            lake.numbers(table, branch="dev")
        branch = lake.open(table).create_branch("dev", 2)
        assert lake.numbers(table, branch="dev") == [2]
        lance.write_dataset(rows(), branch, mode="append")
        assert lake.numbers(table, branch="dev") == [2, 3]
        assert lake.numbers(table) == [1, 2]
        path = lake("DescribeTableVersion", table, branch="dev").version.manifest_path
        assert "/tree/dev/_versions/" in path

    def test_a_branch_that_is_deleted_and_made_again_is_another(self, lake: Lake, table: str) -> None:
        dataset = lake.open(table)
        branch = dataset.create_branch("dev", 1)
        lance.write_dataset(rows(), branch, mode="append")
        dataset.branches.delete("dev")
        with pytest.raises(TableBranchNotFoundError):
            lake.numbers(table, branch="dev")
        lake.open(table).create_branch("dev", 1)
        assert lake.numbers(table, branch="dev") == [1]


class TestRaces:
    def test_exactly_one_of_many_wins(self, lake: Lake, table: str) -> None:
        for turn in range(3):
            contenders = [lake.stage(table, rows(1, number)) for number in range(8)]
            start = Barrier(len(contenders))

            def run(staged: Staged, start: Barrier = start) -> Any:
                request = staged.request
                start.wait()
                try:
                    return lake("CreateTableVersion", table, **request)
                except ConcurrentModificationError:
                    # Only when the winner can be read already.
                    assert lake("DescribeTableVersion", table, version=staged.version).version
                    return None

            with ThreadPoolExecutor(len(contenders)) as threads:
                answers = [answer for answer in threads.map(run, contenders) if answer is not None]
            assert len(answers) == 1
            assert lake.numbers(table) == list(range(1, turn + 3))
            assert list(lake.folder(table).glob("_versions/*-*")) == []

    def test_replays_that_race_all_get_the_version(self, lake: Lake, table: str) -> None:
        staged = lake.stage(table)
        request = staged.request
        with ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(lambda _: lake("CreateTableVersion", table, **request), range(8)))
        assert {answer.version.version for answer in answers} == {2}
        assert len({answer.transaction_id for answer in answers}) == 1
