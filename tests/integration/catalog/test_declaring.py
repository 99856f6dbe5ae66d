"""Declaring tables: names and places are reserved before there is data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from lance_namespace.errors import (
    InvalidInputError,
    NamespaceNotFoundError,
    TableAlreadyExistsError,
    TableNotFoundError,
)

from pennon.commits.ownership import ROOT_MARK
from tests.integration.catalog.lakes import files_below

if TYPE_CHECKING:
    from tests.integration.catalog.conftest import OpenLake
    from tests.integration.catalog.lakes import Lake

DECLARING = ("DeclareTable", "CreateEmptyTable")


class TestDeclaring:
    @pytest.mark.parametrize("operation", DECLARING)
    def test_a_declared_table_exists_without_data(self, lake: Lake, operation: str) -> None:
        answer = lake(operation, "t", properties={"owner": "ada"})
        assert answer.location == str(lake.root / "t.lance")
        assert answer.managed_versioning
        assert answer.transaction_id
        assert answer.properties == {"owner": "ada"}
        lake("TableExists", "t")
        described = lake("DescribeTable", "t", check_declared=True)
        assert described.is_only_declared
        assert described.version is None
        assert described.location == answer.location
        assert described.properties == {"owner": "ada"}
        assert lake("ListTables", "$").tables == ["t"]

    def test_declaring_writes_no_file_of_a_table(self, lake: Lake) -> None:
        lake("CreateNamespace", "a")
        lake("DeclareTable", "t")
        lake("DeclareTable", "a$t")
        assert {name for name in files_below(lake.root) if not name.startswith(".pennon/")} == {ROOT_MARK}

    def test_the_older_route_marks_root_tables_and_only_those(self, lake: Lake) -> None:
        lake("CreateNamespace", "a")
        root = Path(lake("CreateEmptyTable", "t").location)
        nested = Path(lake("CreateEmptyTable", "a$t").location)
        odd = Path(lake("CreateEmptyTable", "two words").location)
        assert files_below(root).keys() == {".lance-reserved"}
        assert not nested.exists()
        assert not odd.exists()

    @pytest.mark.parametrize("operation", DECLARING)
    @pytest.mark.parametrize("name", ["t", "a$t"])
    def test_a_name_is_given_once(self, lake: Lake, operation: str, name: str) -> None:
        lake("CreateNamespace", "a")
        lake.write(name)
        before = lake.state()
        with pytest.raises(TableAlreadyExistsError, match="already exists"):
            lake(operation, name, properties={"other": "one"})
        assert lake.state() == before

    @pytest.mark.parametrize("operation", DECLARING)
    def test_the_namespace_must_exist(self, lake: Lake, operation: str) -> None:
        with pytest.raises(NamespaceNotFoundError, match="'nope'"):
            lake(operation, "nope$t")
        assert lake("ListAllTables").tables == []
        assert not list(lake.root.glob("*nope*"))

    @pytest.mark.parametrize("operation", DECLARING)
    def test_the_root_is_not_a_table(self, lake: Lake, operation: str) -> None:
        with pytest.raises(InvalidInputError, match="not a table"):
            lake(operation, "$")

    def test_a_declared_table_can_be_written_and_is_then_more_than_declared(self, lake: Lake) -> None:
        lake("DeclareTable", "t")
        lake.write("t", mode="append")
        described = lake("DescribeTable", "t", check_declared=True)
        assert described.is_only_declared is False
        assert described.version == 1
        assert lake("ListTables", "$", include_declared=False).tables == ["t"]

    def test_names_that_no_folder_can_have_are_stored_in_other_folders(self, lake: Lake) -> None:
        names = ["two words", "ümläut", "a:b", "a*b", "'; DROP TABLE tables; --", "x" * 200, "%2e%2e", "a%2Fb", "~"]
        lake("CreateNamespace", "a")
        for name in [*names, *(f"a${name}" for name in names)]:
            lake.write(name)
            folder = lake.folder(name)
            assert folder.parent == lake.root
            assert lake.open(name).count_rows() == 2
        assert lake("ListTables", "a").tables == sorted(names)

    def test_names_that_differ_only_in_special_characters_are_different_tables(self, lake: Lake) -> None:
        lake("CreateNamespace", "a")
        names = ["a$b c", "a$b_c", "a$b%c", "b c", "b_c", "a_b_c"]
        folders = {lake("DeclareTable", name).location for name in names}
        assert len(folders) == len(names)


class TestLocations:
    def test_a_location_may_be_chosen_inside_the_root(self, lake: Lake) -> None:
        lake("CreateNamespace", "a")
        assert lake("DeclareTable", "a$t", location="deep/er/t").location == str(lake.root / "deep/er/t")
        lake.write("a$t", mode="append")
        assert (lake.root / "deep/er/t/_versions").is_dir()

    def test_an_absolute_path_and_a_uri_name_the_same_place(self, lake: Lake) -> None:
        lake("DeclareTable", "one", location=f"{lake.root}/one")
        lake("DeclareTable", "two", location=f"file://{lake.root}/t%77o/")
        assert lake.folder("two") == lake.root / "two"
        with pytest.raises(TableAlreadyExistsError):
            lake("DeclareTable", "three", location="one/")

    def test_a_place_is_taken_in_any_spelling(self, lake: Lake) -> None:
        lake("DeclareTable", "t", location="one/inner")
        for spelling in (
            "one/inner",
            "one//inner",
            "one///inner/",
            f"{lake.root}//one/inner",
            "file://{root}/one//inner",
        ):
            with pytest.raises(TableAlreadyExistsError, match="location"):
                lake("DeclareTable", "u", location=spelling.format(root=lake.root))

    def test_one_table_may_not_lie_in_another(self, lake: Lake) -> None:
        lake("DeclareTable", "t", location="one")
        for inner in ("one/inner", "one/_versions", "one"):
            with pytest.raises(TableAlreadyExistsError, match="location"):
                lake("DeclareTable", "u", location=inner)
        with pytest.raises(TableNotFoundError):
            lake("TableExists", "u")

    def test_one_table_may_not_hold_another(self, lake: Lake) -> None:
        lake("DeclareTable", "t", location="one/inner/most")
        for outer in ("one/inner", "one"):
            with pytest.raises(TableAlreadyExistsError, match="location"):
                lake("DeclareTable", "u", location=outer)
        lake("DeclareTable", "u", location="one/inner/mo")
        lake("DeclareTable", "v", location="one/inner/most0")

    @pytest.mark.parametrize("written_first", ["inner", "t"])
    def test_a_new_table_does_not_take_the_folder_that_holds_one(self, lake: Lake, written_first: str) -> None:
        lake("DeclareTable", "inner", location="t.lance/inner")
        if written_first == "inner":
            lake.write("inner", mode="append")
        with pytest.raises(TableAlreadyExistsError, match="location"):
            lake("DeclareTable", "t", location="t.lance")
        lake.write("t")
        assert not lake.folder("inner").is_relative_to(lake.folder("t"))
        if written_first == "t":
            lake.write("inner", mode="append")
        lake("DropTable", "t")
        assert lake.open("inner").count_rows() == 2

    def test_a_folder_that_is_in_other_use_is_left_alone(self, lake: Lake) -> None:
        (lake.root / "t.lance").mkdir(parents=True)
        (lake.root / "t.lance" / "diary.txt").write_text("mine")
        lake.write("t")
        assert lake.folder("t") != lake.root / "t.lance"
        lake("DropTable", "t")
        assert (lake.root / "t.lance" / "diary.txt").read_text() == "mine"

    @pytest.mark.parametrize("operation", DECLARING)
    def test_a_location_anywhere_else_is_refused(self, lake: Lake, operation: str) -> None:
        (lake.root / "home").symlink_to(lake.root)
        (lake.root / "own").symlink_to(lake.root / ".pennon")
        for location in (
            "",
            "   ",
            ".",
            "..",
            "../out",
            "in/../../out",
            "in/./t",
            "nul\0byte",
            "/",
            "/etc",
            "/etc/t",
            "file:///etc/t",
            "file:///%2e%2e/t",
            "FILE:///etc/t",
            "s3://bucket/t",
            "http://example.com/t",
            "memory://t",
            ".pennon/t",
            ".pennon",
            ".pennon-trash/t",
            "x" * 5000,
            "in/" + "x" * 300,
            "home",
            "home/home/home",
            "own",
            "home/own/t",
        ):
            with pytest.raises(InvalidInputError):
                lake(operation, "t", location=location)
        with pytest.raises(TableNotFoundError):
            lake("TableExists", "t")

    def test_the_root_itself_is_no_place_for_a_table(self, lake: Lake) -> None:
        for location in (str(lake.root), f"{lake.root}/", f"file://{lake.root}", f"{lake.root}//"):
            with pytest.raises(InvalidInputError):
                lake("DeclareTable", "t", location=location)

    def test_a_neighbour_whose_path_begins_like_the_root_is_outside(self, lake: Lake) -> None:
        with pytest.raises(InvalidInputError, match=r"Absolute paths .* outside the storage root"):
            lake("DeclareTable", "t", location=f"{lake.root}-other/t")

    def test_a_link_does_not_lead_out_of_the_root(self, lake: Lake, tmp_path: Path) -> None:
        outside = tmp_path / "outside"
        outside.mkdir()
        (lake.root / "way").symlink_to(outside)
        for location in ("way", "way/t"):
            with pytest.raises(InvalidInputError, match="link"):
                lake("DeclareTable", "t", location=location)
        assert list(outside.iterdir()) == []

    def test_allowed_prefixes_lie_outside_the_root_and_nothing_else_does(
        self, open_lake: OpenLake, tmp_path: Path
    ) -> None:
        lake = open_lake(allowed_locations=[str(tmp_path / "extra")])
        lake("DeclareTable", "t", location=str(tmp_path / "extra" / "t"))
        lake.write("t", mode="append")
        assert (tmp_path / "extra" / "t" / "_versions").is_dir()
        for location in ("extra2/t", "extra/../secret/t", "other/t"):
            with pytest.raises(InvalidInputError):
                lake("DeclareTable", "u", location=str(tmp_path / location))
