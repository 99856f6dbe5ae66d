"""The rows of a table: filtered, sorted, searched, page by page."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from playwright.sync_api import expect

import pennon
from tests.console.screen import TEAS

if TYPE_CHECKING:
    from tests.console.screen import Screen
    from tests.support.server import PennonProcess

MANY = 1000


@pytest.fixture(scope="module")
def wide_table(console_server: PennonProcess) -> str:
    """A table of a thousand columns."""
    columns = {f"column_{number:03}": pa.array(range(number, number + 30), pa.int64()) for number in range(MANY)}
    pennon.connect(console_server.url).create_table("wide", pa.table(columns), mode="overwrite")
    return "table/wide"


@pytest.fixture(scope="module")
def odd_table(console_server: PennonProcess) -> str:
    """A table of values that are easily shown wrongly, with a name that is wider than its column."""
    rows = pa.table(
        {
            "big": pa.array([2**63 - 1, None], pa.int64()),
            "small": [1e-12, float("nan")],
            "seen": pa.array([1, None], pa.timestamp("us", tz="UTC")),
            "cost": pa.array([Decimal("0.10"), None], pa.decimal128(20, 2)),
            "a_name_" * 15: ["<b>", ""],
        }
    )
    pennon.connect(console_server.url).create_table("odd", rows, mode="overwrite")
    return "table/odd"


class TestGrid:
    def test_values_are_shown_as_what_they_are(self, screen: Screen) -> None:
        screen.open(f"{TEAS}/data?where=id+%3D+7")
        cells = screen.main.locator("table.grid tbody td")
        assert cells.nth(1).inner_text() == "tea 7"
        assert cells.nth(3).inner_text() == "null"
        assert cells.nth(4).locator("img").evaluate("image => image.naturalWidth") == 24
        expect(cells.nth(5).locator("svg")).to_be_visible()

    def test_values_at_the_ends_of_their_types(self, screen: Screen, odd_table: str) -> None:
        screen.open(f"{odd_table}/data")
        cells = screen.main.locator("table.grid tbody tr").first.locator("td").all_inner_texts()
        assert cells == ["9223372036854775807", "1e-12", "1970-01-01 00:00:00.000001Z", "0.10", "<b>"]
        assert screen.column(2)[1] == "NaN"
        heads = screen.main.locator("table.grid thead th").all_inner_texts()
        assert heads[3:5] == ["seen\ntimestamp[us, UTC]", "cost\ndecimal128(20, 2)"]
        screen.click("Row 1 in full")
        value = screen.page.locator("dialog dd").last
        frame = screen.page.locator("dialog").bounding_box()
        place = value.bounding_box()
        assert frame is not None
        assert place is not None
        # A long name leaves room for its value.
        assert place["x"] + place["width"] <= frame["x"] + frame["width"]
        assert place["width"] > frame["width"] / 3

    def test_a_row_in_full(self, screen: Screen) -> None:
        screen.open(f"{TEAS}/data?where=id+%3D+7")
        screen.click("Row 1 in full")
        screen.sees('"country": "Japan"')
        screen.sees("[2, 1, 1, 0.5]")
        screen.shoot("row")
        screen.click("Find similar")
        screen.settled()
        expect(screen.main.get_by_label("Kind of search")).to_have_value("vector")

    def test_filter(self, screen: Screen) -> None:
        screen.open(f"{TEAS}/data")
        screen.sees("1–50 of 119 rows")
        screen.fill("Filter (SQL)", "origin.country = 'Japan' AND id < 10")
        screen.click("Show")
        screen.sees("1–5 of 5 rows")
        assert sorted(map(int, screen.column(1))) == [1, 3, 5, 7, 9]

    def test_a_filter_that_is_wrong_says_so_and_stays(self, screen: Screen) -> None:
        screen.open(f"{TEAS}/data")
        screen.fill("Filter (SQL)", "prise > 3")
        screen.click("Show")
        screen.sees("prise")
        expect(screen.main.get_by_label("Filter (SQL)")).to_have_value("prise > 3")
        screen.shoot("wrong-filter")

    def test_a_filter_that_admits_nothing(self, screen: Screen) -> None:
        screen.open(f"{TEAS}/data?where=id+%3C+0")
        screen.sees("No rows match.")
        screen.click("Show all rows")
        screen.sees("1–50 of 119 rows")

    def test_sort(self, screen: Screen) -> None:
        screen.open(f"{TEAS}/data")
        screen.click("Sort by id")
        expect(screen.main.locator("table.grid tbody td").first).to_have_text("0")
        screen.click("Sort by id")
        expect(screen.main.locator("table.grid tbody td").first).to_have_text("118")
        expect(screen.main.locator("th[aria-sort=descending]")).to_have_count(1)

    def test_pages(self, screen: Screen) -> None:
        screen.open(f"{TEAS}/data?sort=id")
        screen.click("Next")
        screen.sees("51–100 of 119 rows")
        assert screen.column(1)[0] == "50"
        screen.click("Next")
        screen.sees("101–119 of 119 rows")
        expect(screen.button("Next")).to_be_disabled()
        screen.click("Previous")
        screen.sees("51–100 of 119 rows")
        screen.choose("Rows per page", "200")
        screen.sees("1–119 of 119 rows")

    def test_the_choice_of_columns_is_kept_in_the_address(self, screen: Screen) -> None:
        screen.open(f"{TEAS}/data")
        screen.click("Columns")
        screen.click("None")
        screen.page.get_by_label("name", exact=True).check()
        screen.click("Show")
        screen.sees("1 of 11 columns")
        screen.page.reload()
        screen.settled().sees("1 of 11 columns")
        assert screen.main.locator("table.grid thead th").count() == 2

    def test_another_version(self, screen: Screen) -> None:
        screen.open(f"{TEAS}/data?version=1")
        screen.sees("1–50 of 60 rows")
        screen.sees("version 1 (not the latest)")
        screen.click("Latest")
        screen.sees("1–50 of 119 rows")

    def test_another_branch(self, screen: Screen) -> None:
        screen.open(f"{TEAS}/data")
        screen.choose("Branch", "trial")
        screen.settled()
        assert "branch=trial" in screen.page.url

    def test_a_thousand_columns(self, screen: Screen, wide_table: str) -> None:
        screen.open(f"{wide_table}/data")
        screen.sees("60 of 1,000 columns")
        screen.click("60 of 1,000 columns")
        screen.click("All")
        screen.click("Show")
        expect(screen.main.locator("table.grid")).to_have_attribute("aria-colcount", "1001")
        assert screen.main.locator("table.grid tbody td").count() < 30 * 20
        screen.main.locator(".grid-view").evaluate("view => { view.scrollLeft = view.scrollWidth; }")
        expect(screen.main.get_by_role("button", name="Sort by column_999")).to_be_visible()
        screen.open(f"{wide_table}/schema")
        screen.fill("Search columns", "column_77")
        screen.sees("10 of 1,000 fields")


class TestSearch:
    def test_words(self, screen: Screen) -> None:
        screen.open(f"{TEAS}/data")
        screen.choose("Kind of search", "text")
        screen.fill("Search for", "grassy")
        screen.click("Show")
        screen.sees("1–24 of 24 rows")
        assert screen.main.locator("table.grid thead th").nth(1).inner_text().startswith("_score")

    def test_a_vector_under_a_filter(self, screen: Screen) -> None:
        screen.open(f"{TEAS}/data")
        screen.choose("Kind of search", "vector")
        screen.fill("Search for", "2, 1, 1, 0.5")
        screen.fill("Filter (SQL)", "id < 20")
        screen.click("Show")
        expect(screen.main.locator("table.grid thead th").nth(1)).to_contain_text("_distance")
        assert screen.column(1)[0] == "0"
        assert screen.column(2)[0] == "7"

    def test_a_vector_that_is_none(self, screen: Screen) -> None:
        screen.open(f"{TEAS}/data?search=vector&vector=a,b")
        screen.sees("Invalid vector: must be a list of numbers.")
        screen.open(f"{TEAS}/data?search=vector&vector=1,2")
        expect(screen.main.locator(".problem")).to_be_visible()
