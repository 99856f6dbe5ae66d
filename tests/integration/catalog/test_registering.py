"""Registering tables that are already on storage."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import lance
import pytest
from lance_namespace.errors import (
    InvalidInputError,
    NamespaceNotFoundError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    TableNotFoundError,
)

from pennon.catalog import garbage
from tests.integration.catalog.lakes import files_below, rows

if TYPE_CHECKING:
    from tests.integration.catalog.conftest import OpenLake
    from tests.integration.catalog.lakes import Lake


def put(folder: Path, count: int = 2) -> Path:
    """Write a table without Pennon."""
    lance.write_dataset(rows(count), folder)
    return folder


class TestRegistering:
    def test_a_table_is_registered_where_it_is(self, lake: Lake) -> None:
        folder = put(lake.root / "old" / "t")
        before = files_below(folder)
        lake("CreateNamespace", "a")
        answer = lake("RegisterTable", "a$t", location="old/t", properties={"owner": "ada"})
        assert answer.location == "old/t"  # as it was given; DescribeTable returns the full location
        assert answer.properties == {"owner": "ada"}
        assert answer.transaction_id
        assert files_below(folder) == before
        described = lake("DescribeTable", "a$t", load_detailed_metadata=True)
        assert (described.location, described.version) == (str(folder), 1)
        assert described.properties == {"owner": "ada"}
        assert lake("ListTables", "a", include_declared=False).tables == ["t"]
        assert lake.open("a$t").count_rows() == 2

    def test_it_is_not_managed_unless_the_settings_say_so(self, lake: Lake, open_lake: OpenLake) -> None:
        put(lake.root / "one")
        put(lake.root / "two")
        lake("RegisterTable", "one", location="one")
        assert lake("DescribeTable", "one").managed_versioning is False
        managing = open_lake(manage_registered_tables=True)
        managing("RegisterTable", "two", location="two")
        assert managing("DescribeTable", "two").managed_versioning is True

    def test_a_managed_one_keeps_its_history_and_goes_on_from_it(self, open_lake: OpenLake) -> None:
        lake = open_lake(manage_registered_tables=True)
        folder = put(lake.root / "t")
        lance.write_dataset(rows(), folder, mode="append")
        lance.dataset(folder).create_branch("dev")
        lake("RegisterTable", "t", location="t")
        assert lake.numbers("t") == [1, 2]
        assert lake.numbers("t", branch="dev") == [2]
        lake.write("t", mode="append")
        assert lake.numbers("t") == [1, 2, 3]
        assert lake.open("t").count_rows() == 6

    def test_what_is_written_to_an_unmanaged_one_is_seen_at_once(self, lake: Lake) -> None:
        folder = put(lake.root / "t")
        lake("RegisterTable", "t", location="t")
        lance.write_dataset(rows(), folder, mode="append")
        assert lake.latest("t") == 2
        assert lake.numbers("t", descending=True) == [2, 1]
        lake("TableExists", "t", version=2)

    @pytest.mark.parametrize("mode", [None, "create", "CREATE"])
    def test_a_name_that_is_taken_is_refused(self, lake: Lake, mode: str | None) -> None:
        put(lake.root / "other")
        lake.write("t")
        before = lake.state()
        with pytest.raises(TableAlreadyExistsError):
            lake("RegisterTable", "t", location="other", mode=mode)
        assert lake.state() == before

    @pytest.mark.parametrize("mode", ["overwrite", "Overwrite"])
    def test_overwrite_replaces_the_record_and_keeps_the_files_of_both(self, lake: Lake, mode: str) -> None:
        put(lake.root / "other", 5)
        lake("CreateNamespace", "a")
        lake.write("a$t")
        old = lake.folder("a$t")
        before = files_below(old)
        lake("RegisterTable", "a$t", location="other", mode=mode)
        assert lake.folder("a$t") == lake.root / "other"
        assert lake.open("a$t").count_rows() == 5
        assert lake.numbers("a$t") == [1]
        assert files_below(old) == before

    def test_a_table_replaced_by_overwrite_is_not_discovered_again(self, lake: Lake) -> None:
        put(lake.root / "other", 5)
        lake.write("t")
        lake("RegisterTable", "t", location="other", mode="overwrite")
        lake("DropTable", "t")
        assert lake("ListTables", "$").tables == []
        lake("RegisterTable", "t", location="t.lance")
        assert lake.open("t").count_rows() == 2

    def test_overwrite_creates_what_is_missing(self, lake: Lake) -> None:
        put(lake.root / "other")
        lake("RegisterTable", "t", location="other", mode="overwrite")
        assert lake.open("t").count_rows() == 2

    def test_overwrite_in_place_keeps_the_data(self, lake: Lake) -> None:
        put(lake.root / "here")
        lake("RegisterTable", "t", location="here")
        lake("RegisterTable", "t", location="here", mode="overwrite", properties={"second": "yes"})
        assert lake("DescribeTable", "t").properties == {"second": "yes"}
        assert lake.open("t").count_rows() == 2

    def test_an_unknown_mode_is_refused(self, lake: Lake) -> None:
        put(lake.root / "other")
        with pytest.raises(InvalidInputError, match="mode"):
            lake("RegisterTable", "t", location="other", mode="maybe")

    def test_the_namespace_must_exist(self, lake: Lake) -> None:
        put(lake.root / "other")
        with pytest.raises(NamespaceNotFoundError, match="'nope'"):
            lake("RegisterTable", "nope$t", location="other")

    def test_there_must_be_a_table(self, lake: Lake) -> None:
        (lake.root / "empty").mkdir(parents=True)
        (lake.root / "file").write_text("not a folder")
        put(lake.root / "t")
        shutil.rmtree(lake.root / "t" / "_versions")
        for location in ("nowhere", "empty", "file", "t"):
            with pytest.raises(InvalidInputError, match="no Lance table"):
                lake("RegisterTable", "a", location=location)
        assert lake("ListTables", "$").tables == []


class TestStorageRoot:
    def test_a_place_belongs_to_one_table(self, lake: Lake) -> None:
        put(lake.root / "one")
        lake("RegisterTable", "a", location="one")
        for mode in ("create", "overwrite"):
            with pytest.raises(TableAlreadyExistsError, match="location"):
                lake("RegisterTable", "b", location="one", mode=mode)

    def test_overwriting_onto_the_place_of_another_changes_neither(self, lake: Lake) -> None:
        put(lake.root / "one")
        put(lake.root / "two")
        lake("RegisterTable", "a", location="one")
        lake("RegisterTable", "b", location="two")
        before = lake.state()
        with pytest.raises(TableAlreadyExistsError):
            lake("RegisterTable", "a", location="two", mode="overwrite")
        assert lake.state() == before

    @pytest.mark.parametrize("place", ["t.lance/inner", "t.lance/tree/dev", "t.lance/data/inner"])
    def test_a_table_inside_another_is_refused(self, lake: Lake, place: str) -> None:
        lake.write("t")
        put(lake.root / place)
        with pytest.raises(TableAlreadyExistsError, match="location"):
            lake("RegisterTable", "u", location=place)

    def test_a_table_around_another_is_refused(self, lake: Lake) -> None:
        put(lake.root / "outer")
        put(lake.root / "outer" / "inner")
        lake("RegisterTable", "inner", location="outer/inner")
        with pytest.raises(TableAlreadyExistsError, match="location"):
            lake("RegisterTable", "outer", location="outer")

    def test_a_link_inside_the_root_is_no_second_place(self, lake: Lake) -> None:
        put(lake.root / "one")
        (lake.root / "link").symlink_to(lake.root / "one")
        lake("RegisterTable", "a", location="one")
        with pytest.raises(TableAlreadyExistsError, match="location"):
            lake("RegisterTable", "b", location="link")

    def test_a_link_that_leads_out_is_refused(self, lake: Lake, tmp_path: Path) -> None:
        outside = put(tmp_path / "outside" / "t")
        before = files_below(outside)
        (lake.root / "link").symlink_to(outside)
        (lake.root / "way").symlink_to(outside.parent)
        for location in ("link", "way/t", str(lake.root / "link")):
            with pytest.raises(InvalidInputError, match="link"):
                lake("RegisterTable", "t", location=location)
        assert files_below(outside) == before

    def test_outside_the_root_only_allowed_prefixes_will_do(
        self, lake: Lake, open_lake: OpenLake, tmp_path: Path
    ) -> None:
        allowed, other = put(tmp_path / "extra" / "t"), put(tmp_path / "other" / "t")
        refused = {
            str(allowed): "Absolute paths are not allowed",
            f"file://{allowed}": "Absolute URIs are not allowed",
            "s3://bucket/t": "Absolute URIs are not allowed",
            "../extra/t": "Path traversal is not allowed",
            f"{lake.root}/../extra/t": "Path traversal is not allowed",
        }
        for location, cause in refused.items():
            with pytest.raises(InvalidInputError, match=cause):
                lake("RegisterTable", "t", location=location)
        lenient = open_lake(allowed_locations=[str(tmp_path / "extra")])
        with pytest.raises(InvalidInputError):
            lenient("RegisterTable", "t", location=str(other))
        assert lenient("RegisterTable", "t", location=f"file://{allowed}").location == f"file://{allowed}"
        assert lenient.open("t").count_rows() == 2
        assert str(tmp_path).lstrip("/") not in lenient.ns.queries.explain_query(("t",), {"k": 1}, verbose=True)

    def test_files_of_a_dropped_table_that_are_still_to_go_are_no_table(
        self, lake: Lake, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = put(lake.root / "t")
        monkeypatch.setattr("pennon.tables.removal._WAIT_SECONDS", 0.1)
        lake.ns.services.database.write(lambda c: garbage.add(c, str(folder), "dropped", 60_000))
        with pytest.raises(ServiceUnavailableError, match="still being removed"):
            lake("RegisterTable", "t", location="t")
        with pytest.raises(TableNotFoundError):
            lake("TableExists", "t")
