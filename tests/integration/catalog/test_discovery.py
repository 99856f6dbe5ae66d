"""Tables that others put into the root folder: found, followed, and let go."""

from __future__ import annotations

import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING, Any

import lance
import lance_namespace as ln
import lancedb
import pyarrow as pa
import pytest
from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    PermissionDeniedError,
    TableAlreadyExistsError,
    TableNotFoundError,
)

from pennon.catalog import garbage
from pennon.commits.history import stored_versions
from pennon.namespace.new_tables import NewTables
from pennon.tables import discovery
from tests.integration.catalog.lakes import rows
from tests.integration.data.tables import stream_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.catalog.conftest import OpenLake
    from tests.integration.catalog.lakes import Lake


@pytest.fixture
def beside(lake: Lake) -> Any:
    """LanceDB on the same folder."""
    return lancedb.connect(lake.root)


def age(folder: Path) -> None:
    """Let the last change of a folder lie so far back that a look at it cannot have missed one."""
    before = time.time() - 60
    os.utime(folder, (before, before))


class TestFinding:
    def test_a_folder_of_lancedb_is_a_root_namespace_of_tables(self, lake: Lake, beside: Any) -> None:
        beside.create_table("one", rows())
        beside.create_table("two", rows(5)).add(rows(1))
        assert lake("ListTables", "$").tables == ["one", "two"]
        assert lake("ListTables", "$", include_declared=False).tables == ["one", "two"]
        assert lake("ListAllTables").tables == ["one", "two"]
        described = lake("DescribeTable", "two", load_detailed_metadata=True, check_declared=True)
        assert (described.version, described.managed_versioning, described.is_only_declared) == (2, False, False)
        assert lake.numbers("two") == [1, 2]
        assert lake.open("two").count_rows() == 6

    def test_a_table_is_found_by_its_name_before_anything_was_listed(self, lake: Lake, beside: Any) -> None:
        beside.create_table("one", rows())
        lake("TableExists", "one")
        assert lake.folder("one") == lake.root / "one.lance"

    def test_an_old_folder_is_found_when_the_catalog_is_new(self, tmp_path: Path, open_lake: OpenLake) -> None:
        lancedb.connect(tmp_path / "old").create_table("one", rows())
        assert open_lake(tmp_path / "old")("ListTables", "$").tables == ["one"]

    def test_new_folders_appear_while_the_server_runs(self, lake: Lake, beside: Any) -> None:
        assert lake("ListTables", "$").tables == []
        for name in ("one", "two", "three"):
            beside.create_table(name, rows())
            assert name in lake("ListTables", "$").tables

    def test_a_folder_whose_first_write_takes_long_appears_in_the_end(self, lake: Lake) -> None:
        folder = lake.root / "slow.lance"
        (folder / "data").mkdir(parents=True)
        age(lake.root)
        assert lake("ListTables", "$").tables == []
        lance.write_dataset(rows(), folder)
        age(lake.root)
        assert lake("ListTables", "$").tables == ["slow"]

    def test_two_callers_find_the_same_table(self, lake: Lake, beside: Any) -> None:
        for turn in range(5):
            beside.create_table(f"t{turn}", rows())
            start = Barrier(6)

            def look(_: int, name: str = f"t{turn}", start: Barrier = start) -> str:
                start.wait()
                return str(lake("DescribeTable", name).location)

            with ThreadPoolExecutor(6) as threads:
                assert set(threads.map(look, range(6))) == {str(lake.root / f"t{turn}.lance")}

    def test_it_can_be_switched_off(self, open_lake: OpenLake, tmp_path: Path) -> None:
        lancedb.connect(tmp_path / "old").create_table("one", rows())
        lake = open_lake(tmp_path / "old", discover_tables=False)
        assert lake("ListTables", "$").tables == []
        with pytest.raises(TableNotFoundError):
            lake("TableExists", "one")

    def test_what_is_no_table_is_not_shown(self, lake: Lake) -> None:
        (lake.root / "empty.lance").mkdir()
        (lake.root / ".lance").mkdir()
        (lake.root / "file.lance").write_text("a file")
        (lake.root / "a$b.lance" / "_versions").mkdir(parents=True)
        lance.write_dataset(rows(), lake.root / "c$d.lance")
        lance.write_dataset(rows(), lake.root / "no_suffix")
        lance.write_dataset(rows(), lake.root / "deep" / "t.lance")
        assert lake("ListAllTables").tables == []
        for name in ("empty", "file", "no_suffix", "deep", "t"):
            with pytest.raises(TableNotFoundError):
                lake("TableExists", name)

    def test_a_found_table_takes_no_name_twice(self, lake: Lake, beside: Any) -> None:
        beside.create_table("one", rows())
        with pytest.raises(TableAlreadyExistsError):
            lake("DeclareTable", "one")
        lake.write("two")
        assert lake("ListTables", "$").tables == ["one", "two"]
        assert beside.list_tables().tables == ["one", "two"]

    def test_no_other_takes_its_name_before_it_was_seen(self, lake: Lake) -> None:
        lake("DeclareTable", "other")
        lance.write_dataset(rows(), lake.root / "elsewhere")
        attempts: list[tuple[str, str, dict[str, Any]]] = [
            ("DeclareTable", "one", {}),
            ("DeclareTable", "two words", {}),
            ("DeclareTable", "three", {"location": "free"}),
            ("RegisterTable", "four", {"location": "elsewhere"}),
            ("RenameTable", "five", {"new_table_name": "five"}),
        ]
        for operation, name, fields in attempts:
            lance.write_dataset(rows(7), lake.root / f"{name}.lance")
            with pytest.raises(TableAlreadyExistsError):
                lake(operation, "other" if operation == "RenameTable" else name, **fields)
            assert lake.open(name).count_rows() == 7
        lance.write_dataset(rows(7), lake.root / "six.lance")
        assert lake("RegisterTable", "six", location="six.lance").location == "six.lance"


class TestMarkers:
    def test_a_clone_that_is_being_made_is_not_found(self, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
        lake.write("one")
        write, listed = NewTables.write, []

        def look_and_write(*arguments: Any) -> str:
            listed.append(lake("ListTables", "$").tables)
            return write(*arguments)

        monkeypatch.setattr(NewTables, "write", look_and_write)
        lake.ns.clones.clone_table(("two",), str(lake.folder("one")), None, None, shallow=False)
        assert listed == [["one"]]
        assert lake("ListTables", "$").tables == ["one", "two"]
        assert lance.dataset(lake.root / "two.lance").count_rows() == 2, "LanceDB finds it by its name"

    def test_a_reservation_is_a_declared_table(self, lake: Lake) -> None:
        (lake.root / "t.lance").mkdir()
        (lake.root / "t.lance" / ".lance-reserved").touch()
        age(lake.root)
        assert lake("ListTables", "$").tables == ["t"]
        assert lake("ListTables", "$", include_declared=False).tables == []
        assert lake("DescribeTable", "t", check_declared=True).is_only_declared is True
        lance.write_dataset(rows(), lake.root / "t.lance")
        age(lake.root)
        assert lake("ListTables", "$", include_declared=False).tables == ["t"]
        assert lake("DescribeTable", "t", check_declared=True).is_only_declared is False

    def test_a_deregistered_folder_is_not_shown(self, lake: Lake, beside: Any) -> None:
        beside.create_table("one", rows())
        (lake.root / "one.lance" / ".lance-deregistered").touch()
        assert lake("ListTables", "$").tables == []
        with pytest.raises(TableNotFoundError):
            lake("DescribeTable", "one")

    def test_a_found_table_can_be_deregistered_and_registered(self, lake: Lake, beside: Any) -> None:
        beside.create_table("one", rows())
        assert lake("ListTables", "$").tables == ["one"]
        lake("DeregisterTable", "one")
        assert lake("ListTables", "$").tables == []
        lake("RegisterTable", "one", location="one.lance")
        assert lake("ListTables", "$").tables == ["one"]

    def test_a_folder_that_is_being_removed_is_not_found_again(self, lake: Lake, beside: Any) -> None:
        beside.create_table("one", rows())
        place = str(lake.root / "one.lance")
        lake.ns.services.database.write(lambda c: garbage.add(c, place, "dropped", 60_000))
        assert lake("ListTables", "$").tables == []
        with pytest.raises(TableNotFoundError):
            lake("TableExists", "one")

    @pytest.mark.parametrize("operation", ["DropTable", "ListTables"])
    def test_a_folder_removed_during_a_lookup_is_not_discovered(
        self, lake: Lake, beside: Any, monkeypatch: pytest.MonkeyPatch, operation: str
    ) -> None:
        beside.create_table("one", rows())
        place, database = lake.root / "one.lance", lake.ns.services.database
        database.write(lambda c: garbage.add(c, str(place), "dropped", 60_000))

        def see_the_last_of_it(*given: Any) -> Any:
            seen = stored_versions(*given)
            shutil.rmtree(place, ignore_errors=True)
            database.write(lambda c: garbage.delete(c, str(place)))
            return seen

        monkeypatch.setattr(discovery, "stored_versions", see_the_last_of_it)
        if operation == "ListTables":
            assert lake("ListTables", "$").tables == []
        else:
            with pytest.raises(TableNotFoundError):
                lake("DropTable", "one")
        assert not place.exists()


class TestLosing:
    def test_a_folder_that_vanishes_takes_its_table_along(self, lake: Lake, beside: Any) -> None:
        beside.create_table("one", rows())
        beside.create_table("two", rows())
        assert lake("ListTables", "$").tables == ["one", "two"]
        beside.drop_table("one")
        assert lake("ListTables", "$").tables == ["two"]

    @pytest.mark.parametrize("operation", ["TableExists", "DescribeTable", "ListTableVersions", "DropTable"])
    def test_the_next_request_notices_that_it_was_removed(self, lake: Lake, beside: Any, operation: str) -> None:
        beside.create_table("one", rows())
        lake("TableExists", "one")
        beside.drop_table("one")
        with pytest.raises(TableNotFoundError):
            lake(operation, "one")
        lake.write("one", rows(7))
        assert lake.open("one").count_rows() == 7

    @pytest.mark.parametrize("declared", [True, False])
    def test_its_name_can_be_used_again(self, lake: Lake, beside: Any, *, declared: bool) -> None:
        beside.create_table("one", rows())
        lake("TableExists", "one")
        beside.drop_table("one")
        if declared:
            lake("DeclareTable", "one")
        lake.ns.create_table(ln.CreateTableRequest(id=["one"]), stream_of(rows(7)))
        assert lake.open("one").count_rows() == 7

    def test_a_table_that_is_made_again_is_followed(self, lake: Lake, beside: Any) -> None:
        beside.create_table("one", rows())
        assert lake.latest("one") == 1
        beside.drop_table("one")
        beside.create_table("one", pa.table({"other": ["x", "y", "z"]}))
        described = lake("DescribeTable", "one", load_detailed_metadata=True)
        assert [field.name for field in described.var_schema.fields] == ["other"]

    def test_tables_that_pennon_made_do_not_vanish_with_a_listing(self, lake: Lake) -> None:
        lake("DeclareTable", "declared")
        lake.write("written")
        shutil.rmtree(lake.root / "written.lance")
        (lake.root / "trigger").mkdir()
        assert lake("ListTables", "$").tables == ["declared", "written"]


class TestUnmanagedVersions:
    def test_a_found_table_is_committed_to_by_its_clients(self, lake: Lake, beside: Any) -> None:
        beside.create_table("one", rows())
        lake.write("one", mode="append")
        beside.open_table("one").add(rows())
        assert lake.numbers("one") == [1, 2, 3]
        assert beside.open_table("one").count_rows() == 6

    def test_a_staged_version_of_one_is_committed_where_storage_decides(self, lake: Lake, beside: Any) -> None:
        beside.create_table("one", rows())
        staged, other = lake.stage("one"), lake.stage("one", rows(3))
        answer = lake.commit("one", staged)
        assert answer.version.version == 2
        assert answer.transaction_id
        assert not staged.file.exists()
        with pytest.raises(ConcurrentModificationError, match="committed by another writer"):
            lake.commit("one", other)
        assert lake.open("one").count_rows() == 4


class TestMadeAgain:
    """Root tables that are made again after a drop have folders of their own, and links under their names."""

    @pytest.fixture
    def again(self, lake: Lake) -> Path:
        lake.write("t")
        lake("DropTable", "t")
        lake.write("t", rows(3))
        return lake.folder("t")

    def test_lancedb_reads_and_writes_them_under_their_names(self, lake: Lake, beside: Any, again: Path) -> None:
        assert again != lake.root / "t.lance"
        assert list(beside.list_tables().tables) == ["t"]
        beside.open_table("t").add(rows(1, 3))
        assert lake.open("t").to_table()["number"].to_pylist() == [0, 1, 2, 3]
        assert lake("ListTables", "$").tables == ["t"]

    def test_a_drop_takes_the_link_along(self, lake: Lake, beside: Any, again: Path) -> None:
        lake("DropTable", "t")
        assert list(beside.list_tables().tables) == []
        assert not again.exists()
        lake.write("t", rows(4))
        assert beside.open_table("t").count_rows() == 4
        assert lake.folder("t") not in {again, lake.root / "t.lance"}

    def test_a_new_name_leaves_the_link(self, lake: Lake, beside: Any, again: Path) -> None:
        lake("RenameTable", "t", new_table_name="u")
        assert lake("ListTables", "$").tables == ["u"]
        with pytest.raises(TableNotFoundError):
            lake("DescribeTable", "t")
        lake.write("t", rows(5))
        assert lake("ListTables", "$").tables == ["t", "u"]
        assert [lake.open(name).count_rows() for name in ("t", "u")] == [5, 3]
        assert beside.open_table("t").count_rows() == 3, "the folders of tables keep the names they were made with"
        lake("DropTable", "t")
        assert beside.open_table("t").count_rows() == 3
        lake("DropTable", "u")
        assert list(beside.list_tables().tables) == []
        assert not again.exists()

    def test_a_folder_of_lancedb_is_not_hidden_by_a_link(self, lake: Lake, beside: Any) -> None:
        lake("DeclareTable", "t")
        lake("DropTable", "t")
        lake("DeclareTable", "t")
        beside.create_table("t", rows(7))
        lake.write("t", rows(3), mode="append")
        assert lake.open("t").count_rows() == 3
        assert beside.open_table("t").count_rows() == 7

    @pytest.mark.usefixtures("again")
    def test_the_place_of_the_first_one_cannot_be_named(self, lake: Lake) -> None:
        lake("DropTable", "t")
        with pytest.raises(InvalidInputError, match="writers may still hold it"):
            lake("DeclareTable", "t", location="t.lance")
        lake("DeclareTable", "t", location="t2.lance")
        assert lake.folder("t") == lake.root / "t2.lance"

    def test_what_lancedb_makes_again_is_found_where_it_is(self, lake: Lake, beside: Any) -> None:
        beside.create_table("t", rows(1))
        lake("DropTable", "t")
        beside.create_table("t", rows(2))
        assert lake.open("t").count_rows() == 2
        assert lake.folder("t") == lake.root / "t.lance"

    def test_the_place_is_free_once_transactions_are_forgotten(self, open_lake: OpenLake) -> None:
        lake = open_lake(transaction_retention_days=1e-9)
        for _ in range(2):
            lake.write("t")
            assert lake.folder("t") == lake.root / "t.lance"
            lake("DropTable", "t")
            time.sleep(0.002)
            lake.ns.maintain()


class TestLinks:
    """Links that someone with access to the root puts there: none leads to what the server alone may read."""

    @pytest.fixture
    def outside(self, tmp_path: Path) -> Path:
        lance.write_dataset(rows(3), tmp_path / "outside")
        return tmp_path / "outside"

    def test_a_link_that_leads_out_is_no_table(self, lake: Lake, outside: Path) -> None:
        (lake.root / "t.lance").symlink_to(outside)
        assert lake("ListTables", "$").tables == []
        with pytest.raises(TableNotFoundError):
            lake("DescribeTable", "t")

    def test_a_link_to_an_allowed_location_is_a_table(self, open_lake: OpenLake, outside: Path) -> None:
        lake = open_lake(allowed_locations=[str(outside)])
        (lake.root / "t.lance").symlink_to(outside)
        assert (lake("ListTables", "$").tables, lake.open("t").count_rows()) == (["t"], 3)

    def test_a_link_to_another_table_is_no_second_one(self, lake: Lake) -> None:
        lake.write("t")
        (lake.root / "alias.lance").symlink_to("t.lance")
        assert lake("ListTables", "$").tables == ["t"]

    def test_a_table_whose_folder_becomes_a_link_is_forgotten(self, lake: Lake, beside: Any, outside: Path) -> None:
        beside.create_table("t", rows())
        assert lake("ListTables", "$").tables == ["t"]
        shutil.rmtree(lake.root / "t.lance")
        (lake.root / "t.lance").symlink_to(outside)
        with pytest.raises(TableNotFoundError):
            lake("CountTableRows", "t")
        assert lake("ListTables", "$").tables == []

    @pytest.mark.parametrize("place", ["", "_versions", "data"])
    def test_a_managed_table_with_a_link_in_it_is_not_opened(self, lake: Lake, outside: Path, place: str) -> None:
        lake.write("t", rows(3))
        linked = lake.root / "t.lance" / place
        shutil.rmtree(linked)
        linked.symlink_to(outside / place)
        with pytest.raises(PermissionDeniedError, match="link to a target outside"):
            lake("CountTableRows", "t")

    def test_a_commit_does_not_name_links(self, lake: Lake, outside: Path) -> None:
        lake.write("t")
        known = set((lake.root / "t.lance" / "data").iterdir())
        staged = lake.stage("t")
        (file,) = set((lake.root / "t.lance" / "data").iterdir()) - known
        file.replace(outside / "taken")
        file.symlink_to(outside / "taken")
        with pytest.raises(InvalidInputError, match="is a link"):
            lake.commit("t", staged)
