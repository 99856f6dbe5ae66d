"""Renaming, deregistering and dropping tables."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import lance
import pytest
from lance_namespace.errors import (
    InvalidInputError,
    NamespaceNotFoundError,
    TableAlreadyExistsError,
    TableNotFoundError,
)

from pennon.catalog import garbage, tables
from pennon.storage.local import LocalFileIO
from pennon.views import pins
from tests.integration.catalog.lakes import files_below, rows

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.catalog.conftest import OpenLake
    from tests.integration.catalog.lakes import Lake


def incarnation(lake: Lake, *identifier: str) -> str:
    found = lake.ns.services.database.read(lambda connection: tables.find(connection, identifier))
    assert found is not None
    return found.id


class TestRenaming:
    @pytest.mark.parametrize(
        ("old", "new", "namespace"),
        [
            ("t", "u", None),
            ("t", "u", []),
            ("a$t", "u", None),
            ("a$t", "t", ["b"]),
            ("t", "t", ["a"]),
            ("a$t", "t", []),
        ],
    )
    def test_a_table_gets_another_name_and_keeps_its_data(
        self, lake: Lake, old: str, new: str, namespace: list[str] | None
    ) -> None:
        lake("CreateNamespace", "a")
        lake("CreateNamespace", "b")
        lake.write(old)
        folder, identity = lake.folder(old), incarnation(lake, *old.split("$"))
        before = files_below(folder)
        answer = lake("RenameTable", old, new_table_name=new, new_namespace_id=namespace)
        assert answer.transaction_id
        renamed = "$".join([*(old.split("$")[:-1] if namespace is None else namespace), new])
        assert lake("ListAllTables").tables == [renamed]
        assert lake.folder(renamed) == folder
        assert files_below(folder) == before
        assert incarnation(lake, *renamed.split("$")) == identity
        with pytest.raises(TableNotFoundError):
            lake("TableExists", old)
        lake.write(renamed, mode="append")
        assert lake.open(renamed).count_rows() == 4

    def test_the_old_name_is_free_again(self, lake: Lake) -> None:
        lake.write("t")
        lake("RenameTable", "t", new_table_name="u")
        lake.write("t", rows(7))
        assert lake.open("t").count_rows() == 7
        assert lake.open("u").count_rows() == 2
        lake("DropTable", "t")
        assert lake.open("u").count_rows() == 2

    def test_its_place_is_its_own_also_while_nothing_is_there(self, lake: Lake) -> None:
        lake("DeclareTable", "t")
        lake("RenameTable", "t", new_table_name="u")
        lake.write("t", rows(7))
        lake.write("u", rows(2), mode="append")
        assert [lake.open(name).count_rows() for name in ("t", "u")] == [7, 2]

    def test_names_can_be_swapped(self, lake: Lake) -> None:
        lake.write("a", rows(1))
        lake.write("b", rows(2))
        for old, new in (("a", "c"), ("b", "a"), ("c", "b")):
            lake("RenameTable", old, new_table_name=new)
        assert [lake.open(name).count_rows() for name in ("a", "b")] == [2, 1]
        assert lake("ListTables", "$").tables == ["a", "b"]

    def test_a_name_that_is_taken_is_refused(self, lake: Lake) -> None:
        lake("CreateNamespace", "a")
        lake.write("t")
        lake("DeclareTable", "u")
        lake("DeclareTable", "a$t")
        before = lake.state()
        for new in (
            {"new_table_name": "u"},
            {"new_table_name": "t", "new_namespace_id": ["a"]},
            {"new_table_name": "t"},
        ):
            with pytest.raises(TableAlreadyExistsError, match="already exists"):
                lake("RenameTable", "t", **new)
        assert lake.state() == before

    def test_the_new_namespace_must_exist(self, lake: Lake) -> None:
        lake.write("t")
        before = lake.state()
        with pytest.raises(NamespaceNotFoundError, match="'nope'"):
            lake("RenameTable", "t", new_table_name="u", new_namespace_id=["nope"])
        assert lake.state() == before

    def test_what_cannot_be_a_name_is_refused(self, lake: Lake) -> None:
        lake.write("t")
        before = lake.state()
        for name in ("", ".", "..", "a/b", "a$b", "a\\b", "nul\0", "x" * 201):
            with pytest.raises(InvalidInputError):
                lake("RenameTable", "t", new_table_name=name)
            with pytest.raises(InvalidInputError):
                lake("RenameTable", "t", new_table_name="u", new_namespace_id=[name])
        with pytest.raises(InvalidInputError, match="bytes"):
            lake("RenameTable", "t", new_table_name="u", new_namespace_id=["x" * 200] * 11)
        assert lake.state() == before

    def test_a_missing_table_cannot_be_renamed(self, lake: Lake) -> None:
        with pytest.raises(TableNotFoundError):
            lake("RenameTable", "t", new_table_name="u")
        with pytest.raises(NamespaceNotFoundError):
            lake("RenameTable", "a$t", new_table_name="u")

    def test_a_discovered_table_keeps_its_new_name(self, lake: Lake) -> None:
        lance.write_dataset(rows(), lake.root / "t.lance")
        lake("CreateNamespace", "a")
        assert lake("ListTables", "$").tables == ["t"]
        lake("RenameTable", "t", new_table_name="u")
        assert lake("ListTables", "$").tables == ["u"]
        assert lake.open("u").count_rows() == 2
        lake("RenameTable", "u", new_table_name="u", new_namespace_id=["a"])
        assert lake("ListTables", "$").tables == []
        assert lake("ListAllTables").tables == ["a$u"]
        with pytest.raises(TableNotFoundError):
            lake("TableExists", "t")


class TestDeregistering:
    @pytest.mark.parametrize("name", ["t", "a$t"])
    def test_the_table_is_forgotten_and_its_data_stay(self, lake: Lake, name: str) -> None:
        lake("CreateNamespace", "a")
        lake.write(name)
        folder = lake.folder(name)
        before = files_below(folder)
        answer = lake("DeregisterTable", name)
        assert answer.transaction_id
        assert (answer.id, answer.location) == (name.split("$"), str(folder))
        assert lake("ListAllTables").tables == []
        with pytest.raises(TableNotFoundError):
            lake("DescribeTable", name)
        after = files_below(folder)
        assert {file: digest for file, digest in after.items() if file != ".lance-deregistered"} == before
        assert (".lance-deregistered" in after) == (name == "t")

    def test_a_deregistered_root_table_is_not_discovered_again(self, lake: Lake, open_lake: OpenLake) -> None:
        lake.write("t")
        lake("DeregisterTable", "t")
        lance.write_dataset(rows(), lake.root / "new.lance")
        assert lake("ListTables", "$").tables == ["new"]
        assert open_lake()("ListTables", "$").tables == ["new"]

    def test_it_comes_back_when_it_is_registered(self, lake: Lake) -> None:
        lake.write("t")
        lake("DeregisterTable", "t")
        lake("RegisterTable", "t", location="t.lance")
        assert lake.open("t").count_rows() == 2
        assert not (lake.root / "t.lance" / ".lance-deregistered").exists()

    def test_its_name_is_free_and_its_folder_is_not(self, lake: Lake) -> None:
        lake.write("t")
        old = lake.folder("t")
        lake("DeregisterTable", "t")
        lake.write("t", rows(5))
        assert lake.folder("t") != old
        assert lance.dataset(old).count_rows() == 2
        lake("DropTable", "t")
        assert lance.dataset(old).count_rows() == 2

    def test_a_renamed_table_leaves_its_mark_where_it_is(self, lake: Lake) -> None:
        lake.write("t")
        lake("RenameTable", "t", new_table_name="u")
        lake("DeregisterTable", "u")
        assert (lake.root / "t.lance" / ".lance-deregistered").exists()
        assert lake("ListTables", "$").tables == []

    def test_one_without_data_leaves_nothing_behind(self, lake: Lake) -> None:
        lake("DeclareTable", "t")
        lake("DeregisterTable", "t")
        assert not (lake.root / "t.lance").exists()
        lake("DeclareTable", "t")
        assert lake.folder("t") == lake.root / "t.lance"

    def test_a_table_is_deregistered_once(self, lake: Lake) -> None:
        lake("DeclareTable", "t")
        lake("DeregisterTable", "t")
        with pytest.raises(TableNotFoundError):
            lake("DeregisterTable", "t")


class TestDropping:
    @pytest.mark.parametrize("name", ["t", "a$t", "two words"])
    def test_the_table_goes_with_all_its_files(self, lake: Lake, name: str) -> None:
        lake("CreateNamespace", "a")
        lake.write("kept")
        lake("DeclareTable", name, properties={"owner": "ada"})
        lake.write(name, mode="append")
        folder, dropped = lake.folder(name), incarnation(lake, *name.split("$"))
        answer = lake("DropTable", name)
        assert answer.transaction_id
        assert (answer.id, answer.location, answer.properties) == (name.split("$"), str(folder), {"owner": "ada"})
        assert not folder.exists()
        assert lake("ListAllTables").tables == ["kept"]
        assert {file.name for file in lake.root.iterdir()} <= {"kept.lance", ".pennon-root", ".pennon-trash", ".pennon"}
        assert files_below(lake.root / ".pennon-trash") == {}
        assert not list(lake.root.glob(f".pennon/locks/*{dropped}"))
        with pytest.raises(TableNotFoundError):
            lake("DropTable", name)

    def test_a_table_without_data_can_be_dropped(self, lake: Lake) -> None:
        lake("DeclareTable", "t")
        lake("DropTable", "t")
        assert lake("ListTables", "$").tables == []

    @pytest.mark.parametrize("name", ["t", "a$t"])
    def test_a_table_made_again_is_another_one(self, lake: Lake, name: str) -> None:
        lake("CreateNamespace", "a")
        dataset = lake.write(name)
        dataset.tags.create("old", 1)
        dataset.create_branch("dev", 1)
        lake.write(name, mode="append")
        first = incarnation(lake, *name.split("$"))
        lake("DropTable", name)
        lake.write(name, rows(1))
        assert incarnation(lake, *name.split("$")) != first
        assert lake.numbers(name) == [1]
        assert lake.open(name).count_rows() == 1
        assert lake.open(name).tags.list() == {}
        with pytest.raises(Exception, match="no branch 'dev'"):
            lake.numbers(name, branch="dev")

    def test_a_registered_table_goes_with_its_files(self, lake: Lake) -> None:
        lance.write_dataset(rows(), lake.root / "deep" / "t")
        (lake.root / "deep" / "other.txt").write_text("mine")
        lake("RegisterTable", "t", location="deep/t")
        lake("DropTable", "t")
        assert not (lake.root / "deep" / "t").exists()
        assert (lake.root / "deep" / "other.txt").read_text() == "mine"

    def test_a_discovered_link_goes_and_what_it_leads_to_stays(self, open_lake: OpenLake, tmp_path: Path) -> None:
        lake = open_lake(allowed_locations=[str(tmp_path / "elsewhere")])
        lance.write_dataset(rows(), tmp_path / "elsewhere")
        (lake.root / "t.lance").symlink_to(tmp_path / "elsewhere")
        assert lake("ListTables", "$").tables == ["t"]
        lake("DropTable", "t")
        assert lake("ListTables", "$").tables == []
        assert lance.dataset(tmp_path / "elsewhere").count_rows() == 2

    def test_files_that_a_dead_process_left_are_removed_by_the_next(self, lake: Lake) -> None:
        lake.write("t")
        folder = lake.folder("t")
        table = incarnation(lake, "t")

        def die_half_way(connection: object) -> None:
            tables.delete(connection, table)  # type: ignore[arg-type]
            garbage.add(connection, str(folder), table, -1)  # type: ignore[arg-type]

        lake.ns.services.database.write(die_half_way)
        assert folder.exists()
        assert lake("ListTables", "$").tables == []
        lake.ns.maintain()
        assert not folder.exists()
        assert lake.records()[3] == []

    def test_files_that_cannot_be_removed_are_left_to_the_next(
        self, lake: Lake, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(_: LocalFileIO) -> None:
            raise PermissionError("not now")

        for name in ("t", "u"):
            lake.write(name)
        folders = [lake.folder(name) for name in ("t", "u")]
        with monkeypatch.context() as broken:
            broken.setattr(LocalFileIO, "remove_all", refuse)
            assert [lake("DropTable", name).id for name in ("t", "u")] == [["t"], ["u"]]
            assert lake("ListTables", "$").tables == []
            for folder in folders:  # as when the time is over that the process had for it
                lake.ns.services.database.write(partial(garbage.release, location=str(folder)))
            lake.ns.maintain()
            assert all(folder.exists() for folder in folders)
            lake.ns.services.database.write(partial(garbage.release, location=str(folders[0])))
        lake.ns.maintain()
        assert [folder.exists() for folder in folders] == [False, True]

    def test_dropped_clones_stay_dropped_when_their_source_cannot_be_determined(
        self, lake: Lake, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: object) -> None:
            raise OSError("the disk is gone")

        lake("CreateNamespace", "a")
        lake.write("a$t")
        lake.ns.clones.clone_table(("a", "u"), str(lake.folder("a$t")), None, None, shallow=True)
        monkeypatch.setattr(pins, "release", refuse)
        lake("DropTable", "a$u")
        assert lake("ListTables", "a").tables == ["t"]
        assert lake.open("a$t").count_rows() > 0

    def test_a_new_table_never_meets_the_files_of_a_dropped_one(self, lake: Lake) -> None:
        lake.write("t")
        folder = lake.folder("t")
        table = incarnation(lake, "t")
        lake.ns.services.database.write(lambda c: tables.delete(c, table))
        lake.ns.services.database.write(lambda c: garbage.add(c, str(folder), table, -1))
        lake.write("t", rows(1))
        assert lake.numbers("t") == [1]
        assert lake.open("t").count_rows() == 1
