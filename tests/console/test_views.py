"""Materialized views: what they are made of, how fresh they are, and refreshing them on a real Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

import pennon
from tests.console.screen import Screen

if TYPE_CHECKING:
    from tests.support.rest import RestClient
    from tests.support.server import PennonProcess

CHEAP = "table/shop$cheap"


@pytest.fixture
def temporary(rest: RestClient) -> str:
    """A view that a test may drop."""
    body = {
        "kind": "query",
        "source_query": "SELECT name FROM shop.harvest",
        "output_schema": None,
        "with_no_data": True,
    }
    rest.post("/v1/materialized_view/shop$short/create", body, expect=201)
    return "table/shop$short"


def end_of_job(screen: Screen) -> str:
    state = screen.main.locator(".chip").first
    expect(state).to_have_text("done", timeout=60_000)
    return screen.facts()["Result"]


def test_a_view_says_what_it_is_and_is_refreshed(screen: Screen, rest: RestClient) -> None:
    screen.open(f"{CHEAP}/view")
    screen.sees("The view has not been filled yet")
    screen.sees("upper(name)")
    assert screen.facts()["Refresh mode"] == "incremental"
    screen.click("Refresh")
    screen.click("Plan")
    screen.sees("rebuild")
    screen.click("Refresh")
    screen.says("The refresh was submitted.")
    assert end_of_job(screen).startswith("rebuild")
    screen.open(f"{CHEAP}/view")
    screen.sees("up to date")
    rest.post("/v1/table/shop$harvest/update", {"predicate": "id = 6", "updates": [["price", "2.0"]]})
    screen.open(f"{CHEAP}/view")
    screen.sees("1 version behind")
    screen.shoot("view-stale")
    screen.click("Refresh")
    screen.click("Refresh")
    assert end_of_job(screen).startswith("incremental")
    assert screen.facts()["Rows updated"] == "1"
    screen.open(f"{CHEAP}/data?where=id+%3D+6").sees("TEA 6")


def test_a_source_with_a_dot_in_its_name_is_linked(
    screen: Screen, rest: RestClient, console_server: PennonProcess
) -> None:
    pennon.connect(console_server.url).create_table("old.teas", [{"id": 1}], namespace_path=["shop"])
    body = {
        "kind": "query",
        "source_query": "SELECT id FROM shop.`old.teas`",
        "output_schema": None,
        "with_no_data": True,
    }
    rest.post("/v1/materialized_view/shop$dotted/create", body, expect=201)
    screen.open("table/shop$dotted/view")
    screen.main.get_by_role("link", name="shop.old.teas").click()
    expect(screen.page.get_by_role("heading", level=1)).to_have_text("old.teas")
    rest.post("/v1/table/shop$old.teas/drop", {"cascade": True})


def test_the_rebuild_reason_of_a_view_is_shown(screen: Screen) -> None:
    screen.open("table/shop$best/view")
    assert screen.facts()["Refresh mode"].startswith("full: ")
    screen.shoot("view-rebuild")


@pytest.mark.parametrize(
    ("name", "function", "makes", "line"),
    [
        ("twice", "doubled", "computes twice", "return id * 2"),
        ("words", "words", "computes word", 'yield {"word": word}'),
    ],
)
def test_the_functions_it_is_made_by_are_shown(screen: Screen, name: str, function: str, makes: str, line: str) -> None:
    screen.open(f"table/shop${name}/view")
    card = screen.main.get_by_role("region", name=f"Function {function}")
    expect(card).to_contain_text(makes)
    expect(card.get_by_role("region", name=f"Source of {function}")).to_contain_text(line)
    screen.open(f"table/shop${name}/functions").sees("This view has no feature columns.")


def test_the_rows_that_its_functions_failed_on_are_listed(screen: Screen) -> None:
    screen.open("table/shop$twice/view")
    screen.click("Refresh")
    screen.click("Refresh")
    end_of_job(screen)
    errors = screen.main.get_by_role("region", name="Failed rows")
    expect(errors).to_contain_text("seven is enough")
    screen.open("table/shop$twice/view")
    expect(errors).to_contain_text("seven is enough")
    errors.get_by_role("link").click()
    expect(screen.page.get_by_role("heading", level=1)).to_have_text("harvest")
    screen.sees("1–1 of 1 row")
    screen.sees("tea 7")


def test_how_it_is_kept_up_to_date(screen: Screen) -> None:
    screen.open("table/shop$titles/view")
    screen.click("Schedule")
    screen.fill("Schedule", "not a schedule")
    screen.click("Save")
    expect(screen.page.locator("dialog .problem")).to_be_visible()
    screen.fill("Schedule", "0 3 * * *")
    screen.click("Save")
    screen.says("Saved.")
    expect(screen.main.locator("dl.facts")).to_contain_text("0 3 * * *")


def test_the_graph_leads_from_tables_to_views(screen: Screen) -> None:
    screen.open("table/shop$harvest/lineage")
    screen.main.locator("summary").click()
    screen.sees("shop.harvest.name → shop.cheap.title")
    screen.sees("shop.cheap.title → shop.titles.title")
    screen.shoot("lineage-views")
    screen.main.get_by_role("link", name="view shop.cheap").click()
    expect(screen.page.get_by_role("heading", level=1)).to_have_text("cheap")


def test_the_tree_distinguishes_views_from_tables(screen: Screen) -> None:
    screen.open(f"{CHEAP}/data")
    expect(screen.page.get_by_role("treeitem", name="cheap (view)")).to_be_visible()


def test_it_is_dropped(screen: Screen, temporary: str) -> None:
    screen.open(f"{temporary}/view")
    screen.click("Drop view")
    screen.page.locator("dialog").get_by_role("button", name="Drop view").click()
    screen.says("The view was dropped.")
    expect(screen.page.get_by_role("treeitem", name="short (view)")).to_have_count(0)
