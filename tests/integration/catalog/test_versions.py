"""Listing, describing and deleting versions, also when others have removed some."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import lance
import pytest
from lance_namespace.errors import (
    InvalidInputError,
    InvalidTableStateError,
    TableBranchNotFoundError,
    TableVersionNotFoundError,
)

from pennon.catalog import versions
from pennon.catalog.versions import Version
from pennon.commits import history
from pennon.storage.layout import manifest_name
from tests.integration.catalog.lakes import rows

if TYPE_CHECKING:
    from tests.integration.catalog.lakes import Lake


def delete(lake: Lake, table: str, *ranges: tuple[int, int], **fields: Any) -> Any:
    bounds = [{"start_version": start, "end_version": end} for start, end in ranges]
    return lake("BatchDeleteTableVersions", table, ranges=bounds, **fields)


@pytest.fixture
def five(lake: Lake) -> Lake:
    """A lake with a table of five versions."""
    lake.write("t")
    for _ in range(4):
        lake.write("t", mode="append")
    return lake


class TestListing:
    def test_versions_are_listed_oldest_first_by_default(self, five: Lake) -> None:
        assert five.numbers("t") == [1, 2, 3, 4, 5]
        assert five.numbers("t", descending=False) == [1, 2, 3, 4, 5]
        assert five.numbers("t", descending=True) == [5, 4, 3, 2, 1]

    def test_every_version_says_where_its_manifest_is(self, five: Lake) -> None:
        folder = five.folder("t")
        for version in five("ListTableVersions", "t").versions:
            path = folder / "_versions" / manifest_name(version.version, "V2")
            assert version.manifest_path == str(path).lstrip("/")
            assert version.manifest_size == path.stat().st_size
            assert five("DescribeTableVersion", "t", version=version.version).version == version
        stamps = [version.timestamp_millis for version in five("ListTableVersions", "t").versions]
        assert stamps == sorted(stamps)

    def test_an_unknown_branch_is_said_to_be_missing(self, five: Lake) -> None:
        for operation in ("ListTableVersions", "DescribeTableVersion"):
            with pytest.raises(TableBranchNotFoundError, match="'dev'"):
                five(operation, "t", branch="dev")
        with pytest.raises(TableBranchNotFoundError, match="'dev'"):
            delete(five, "t", (1, 2), branch="dev")


class TestVanished:
    def test_versions_that_a_clients_cleanup_removed_are_gone(self, five: Lake) -> None:
        five.open("t").cleanup_old_versions(older_than=timedelta(0))
        assert five.numbers("t") == [5]
        with pytest.raises(TableVersionNotFoundError):
            five("DescribeTableVersion", "t", version=2)
        with pytest.raises(TableVersionNotFoundError):
            five("TableExists", "t", version=4)
        five.write("t", mode="append")
        assert five.numbers("t") == [5, 6]

    @pytest.mark.parametrize("descending", [False, True])
    def test_pages_close_over_what_vanished(self, five: Lake, descending: bool) -> None:
        for number in (1, 2, 4):
            (five.folder("t") / "_versions" / manifest_name(number, "V2")).unlink()
        first = five("ListTableVersions", "t", limit=1, descending=descending)
        second = five("ListTableVersions", "t", limit=1, descending=descending, page_token=first.page_token)
        numbers = [page.versions[0].version for page in (first, second)]
        assert numbers == ([5, 3] if descending else [3, 5])
        assert second.page_token is None

    def test_a_long_history_that_vanished_is_one_look(self, five: Lake) -> None:
        table = five.ns.find_table(("t",))
        (five.folder("t") / "_versions" / manifest_name(1, "V2")).unlink()
        lost = [Version(table.id, "", number, manifest_name(number, "V2"), 1, "") for number in range(6, 2100)]
        five.ns.services.database.write(lambda c: [versions.insert(c, version) for version in lost])
        assert five.numbers("t", limit=1) == [2]
        assert five.numbers("t") == [2, 3, 4, 5]

    def test_a_commit_during_a_listing_is_not_taken_for_vanished(
        self, five: Lake, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        listed = history.stored_versions

        def slow(*arguments: Any) -> list[Version]:
            found = listed(*arguments)
            monkeypatch.setattr(history, "stored_versions", listed)
            five.write("t", mode="append")
            five.settle()
            return found

        monkeypatch.setattr(history, "stored_versions", slow)
        five.numbers("t")
        assert five.records()[2][-1][2] == 6
        assert five.numbers("t") == [1, 2, 3, 4, 5, 6]


class TestFollowing:
    def test_a_writer_that_goes_around_pennon_is_followed(self, five: Lake) -> None:
        folder = five.folder("t")
        lance.write_dataset(rows(), folder, mode="append")
        assert five.latest("t") == 6
        assert five("DescribeTable", "t").version == 6
        lance.dataset(folder).delete("number = 1")
        lance.write_dataset(rows(), folder, mode="append")
        assert five("DescribeTableVersion", "t", version=7).version.version == 7
        five.write("t", mode="append")
        assert five.numbers("t") == [1, 2, 3, 4, 5, 6, 7, 8, 9]
        assert five.open("t").count_rows() == lance.dataset(folder).count_rows()

    def test_such_a_writer_and_the_clients_of_pennon_take_turns(self, lake: Lake) -> None:
        lake.write("t")
        for _ in range(3):
            lance.write_dataset(rows(), lake.folder("t"), mode="append")
            lake.write("t", mode="append")
        assert lake.open("t").count_rows() == 14
        assert lake.numbers("t") == [1, 2, 3, 4, 5, 6, 7]

    def test_the_first_version_may_go_around_pennon_too(self, lake: Lake) -> None:
        lake("DeclareTable", "t")
        lance.write_dataset(rows(), lake.root / "t.lance")
        assert lake("DescribeTable", "t", check_declared=True).is_only_declared is False
        assert lake.numbers("t") == [1]

    def test_garbage_where_a_manifest_should_be_is_not_followed(self, five: Lake) -> None:
        (five.folder("t") / "_versions" / manifest_name(6, "V2")).write_bytes(b"garbage")
        assert five.latest("t") == 5


class TestDeleting:
    def test_old_versions_go_with_their_manifests(self, five: Lake) -> None:
        answer = delete(five, "t", (1, 4))
        assert answer.deleted_count == 3
        assert answer.transaction_id
        assert five.numbers("t") == [4, 5]
        assert {file.name for file in (five.folder("t") / "_versions").glob("*.manifest")} == {
            manifest_name(4, "V2"),
            manifest_name(5, "V2"),
        }
        assert five.open("t").count_rows() == 10
        assert five.open("t", version=4).count_rows() == 8

    def test_several_ranges_are_deleted_together(self, five: Lake) -> None:
        assert delete(five, "t", (1, 2), (3, 4), (1, 4)).deleted_count == 3
        assert five.numbers("t") == [4, 5]

    def test_a_range_without_versions_deletes_none(self, five: Lake) -> None:
        for bounds in ((0, 1), (3, 3), (9, 12), (6, -1), (2**70, 2**71)):
            assert delete(five, "t", bounds).deleted_count == 0
        assert five.numbers("t") == [1, 2, 3, 4, 5]

    def test_the_newest_version_stays(self, five: Lake) -> None:
        before = five.state()
        for bounds in ((0, -1), (5, 6), (1, 6), (5, -1)):
            with pytest.raises(InvalidTableStateError, match=r"5 \(it is the latest version\)"):
                delete(five, "t", bounds)
        assert five.state() == before

    def test_versions_that_tags_and_branches_need_stay_and_are_named(self, five: Lake) -> None:
        dataset = five.open("t")
        dataset.tags.create("release", 2)
        dataset.tags.create("gold", 2)
        dataset.create_branch("dev/one", 3)
        before = five.state()
        with pytest.raises(InvalidTableStateError) as caught:
            delete(five, "t", (1, 5))
        assert "2 (tag 'gold', tag 'release')" in str(caught.value) or "2 (tag 'release', tag 'gold')" in str(
            caught.value
        )
        assert "3 (branch 'dev/one')" in str(caught.value)
        assert five.state() == before
        assert delete(five, "t", (1, 2), (4, 5)).deleted_count == 2
        assert five.numbers("t") == [2, 3, 5]

    def test_a_branch_is_deleted_from_and_main_is_not(self, five: Lake) -> None:
        branch = five.open("t").create_branch("dev", 5)
        branch = lance.write_dataset(rows(), branch, mode="append")
        lance.write_dataset(rows(), branch, mode="append")
        assert delete(five, "t", (0, 7), branch="dev").deleted_count == 2
        assert five.numbers("t", branch="dev") == [7]
        assert five.numbers("t") == [1, 2, 3, 4, 5]
        with pytest.raises(InvalidTableStateError, match="latest"):
            delete(five, "t", (0, -1), branch="dev")

    def test_a_range_that_makes_no_sense_is_refused(self, five: Lake) -> None:
        for bounds in ((-1, 2), (1, -2), (-5, -1)):
            with pytest.raises(InvalidInputError, match="range"):
                delete(five, "t", bounds)

    def test_a_senseless_range_is_refused_also_for_a_table_without_versions(self, lake: Lake) -> None:
        lake("DeclareTable", "t")
        with pytest.raises(InvalidInputError, match="range"):
            delete(lake, "t", (1, -2))
        assert delete(lake, "t", (0, -1)).deleted_count == 0

    def test_a_request_without_ranges_is_refused(self, five: Lake) -> None:
        with pytest.raises(InvalidInputError, match="ranges is empty"):
            delete(five, "t")

    def test_a_table_that_pennon_does_not_manage_keeps_what_it_needs_too(self, lake: Lake) -> None:
        folder = lake.root / "t.lance"
        for mode in ("create", "append", "append"):
            lance.write_dataset(rows(), folder, mode=mode)
        lance.dataset(folder).tags.create("kept", 1)
        with pytest.raises(InvalidTableStateError, match=r"tag 'kept'.*latest"):
            delete(lake, "t", (0, -1))
        assert delete(lake, "t", (2, 3)).deleted_count == 1
        assert lake.numbers("t") == [1, 3]
        assert lance.dataset(folder).count_rows() == 6
