"""What is kept of a table besides its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

import pennon
from tests.console.sample import teas
from tests.console.screen import TEAS

if TYPE_CHECKING:
    from tests.console.screen import Screen
    from tests.support.rest import RestClient
    from tests.support.server import PennonProcess


class TestSchema:
    def test_fields_types_nested_fields_and_metadata(self, screen: Screen) -> None:
        screen.open(f"{TEAS}/schema")
        screen.sees("11 columns")
        screen.sees("float[4]")
        screen.sees("altitude")
        screen.click("Fields of origin")
        expect(screen.main.get_by_text("altitude", exact=True)).to_have_count(0)
        screen.click("Metadata of rating")
        screen.sees("virtual_column.udf_name")
        screen.click("Close")
        screen.fill("Search columns", "pri")
        screen.sees("1 of 11 fields")


class TestVersions:
    def test_tags_are_created_moved_and_deleted(self, screen: Screen, rest: RestClient) -> None:
        screen.open(f"{TEAS}/versions")
        screen.click("Tag version 2")
        screen.fill("Name", "sold")
        screen.click("Create tag")
        screen.says("Tagged version 2 as sold.")
        screen.click("Tag sold: move or delete")
        screen.fill("Version", "3")
        screen.click("Move tag")
        screen.says("Moved sold to version 3.")
        assert rest.post("/v1/table/shop$teas/tags/version", {"tag": "sold"})["version"] == 3
        screen.click("Tag sold: move or delete")
        screen.click("Delete tag")
        screen.says("Deleted the tag sold.")
        expect(screen.button("Tag sold: move or delete")).to_have_count(0)
        assert set(rest.post("/v1/table/shop$teas/tags/list")["tags"]) == {"tasted"}

    def test_a_tag_that_exists_is_refused_where_one_types(self, screen: Screen) -> None:
        screen.open(f"{TEAS}/versions")
        screen.click("Tag version 2")
        screen.fill("Name", "tasted")
        screen.click("Create tag")
        screen.sees("already")
        expect(screen.page.locator("dialog[open]")).to_be_visible()

    def test_what_changed_between_two(self, screen: Screen) -> None:
        screen.open(f"{TEAS}/versions")
        screen.choose("From", "1")
        screen.choose("to", "4")
        screen.click("Compare")
        screen.sees("60 → 119")
        facts = screen.facts()
        assert (facts["Rows added"], facts["Rows removed"], facts["Rows updated"]) == ("59", "0", "5")
        screen.choose("to", "9")
        screen.click("Compare")
        screen.sees("rating (int64)")
        screen.shoot("version-diff")

    def test_a_version_is_restored_as_a_new_one(self, screen: Screen, rest: RestClient) -> None:
        before = rest.post("/v1/table/shop$teas/describe")["version"]
        screen.open(f"{TEAS}/versions")
        screen.click(f"Restore version {before - 1}")
        python = screen.copied("Copy as Python: restore")
        assert f"table.restore({before - 1})" in python
        screen.click("Restore")
        screen.says(f"Restored version {before - 1}.")
        rest.post("/v1/table/shop$teas/restore", {"version": before})

    def test_a_branch_is_made_and_deleted(self, screen: Screen, rest: RestClient) -> None:
        screen.open(f"{TEAS}/versions")
        screen.click("Branch from version 2")
        screen.fill("Name", "autumn")
        screen.click("Create branch")
        screen.says("Created the branch autumn.")
        screen.settled()
        assert "autumn" in rest.post("/v1/table/shop$teas/branches/list")["branches"]
        screen.sees("from version 2 of main")
        screen.click("Delete the branch autumn")
        screen.click("Delete branch")
        screen.says("Deleted the branch autumn.")
        assert "autumn" not in rest.post("/v1/table/shop$teas/branches/list")["branches"]

    def test_the_changes_of_a_branch_are_shown_and_cherry_picked(
        self, screen: Screen, console_server: PennonProcess, rest: RestClient
    ) -> None:
        table = pennon.connect(console_server.url).create_table("grove", teas(0, 3).select(["id", "name"]))
        table.branches.create("late").add(teas(3, 5).select(["id", "name"]))
        screen.open("table/grove/versions")
        screen.click("Compare late with main")
        screen.sees("Rows only in the branch")
        facts = screen.facts()
        assert (facts["Rows only in the branch"], facts["Can be cherry-picked"]) == ("2", "yes")
        screen.shoot("branch-diff")
        screen.click("Cherry-pick late to main")
        screen.click("Cherry-pick")
        screen.says("Cherry-picked late to main.")
        screen.settled()
        assert rest.post("/v1/table/grove/count_rows") == 5
        screen.click("Compare late with main")
        screen.sees("no: main has advanced since the branch was created")
        screen.click("Cherry-pick late to main")
        screen.click("Cherry-pick")
        expect(screen.page.locator("dialog .problem")).to_be_visible()
        rest.post("/v1/table/grove/drop")


class TestIndexes:
    def test_they_are_listed_with_their_coverage(self, screen: Screen) -> None:
        screen.open(f"{TEAS}/indexes")
        bar = screen.main.get_by_role("progressbar", name="Coverage of id_idx")
        expect(bar).to_have_attribute("aria-valuenow", "100")

    def test_one_is_made_and_dropped(self, screen: Screen) -> None:
        screen.open(f"{TEAS}/indexes")
        screen.click("Create index")
        screen.choose("Column", "price")
        screen.fill("Name", "price_idx")
        curl = screen.copied("Copy as curl: create the index")
        assert '"index_type":"BTREE"' in curl
        screen.click("Create")
        screen.says("Building the index of price.")
        screen.sees("price_idx")
        screen.click("Drop price_idx")
        screen.click("Drop index")
        screen.says("Dropped price_idx.")
        expect(screen.main.get_by_text("price_idx", exact=True)).to_have_count(0)


class TestStatistics:
    def test_sizes_counts_and_a_histogram(self, screen: Screen) -> None:
        screen.open(f"{TEAS}/statistics")
        facts = screen.facts()
        assert (facts["Rows"], facts["Fragments"], facts["Columns"]) == ("119", "3", "11")
        drawing = screen.main.get_by_role("img", name="Rows per fragment: 3 values from 5 to 59")
        expect(drawing).to_be_visible()


class TestLineage:
    def test_a_function_and_its_input_are_linked(self, screen: Screen) -> None:
        screen.open(f"{TEAS}/lineage")
        screen.main.locator("summary").click()
        screen.sees("shop.teas.notes → shop.teas.rating")
        screen.shoot("lineage")
        screen.main.get_by_role("link", name="Column rating of shop.teas").click()
        screen.settled()
        expect(screen.main.get_by_role("region", name="Function of rating")).to_be_visible()

    @pytest.mark.parametrize("name", ["empty_of_lineage"])
    def test_a_table_that_nothing_is_made_of(self, screen: Screen, rest: RestClient, name: str) -> None:
        rest.post(f"/v1/table/{name}/declare")
        screen.open(f"table/{name}/lineage")
        screen.sees("Nothing is computed from this table yet.")
        rest.post(f"/v1/table/{name}/drop")
