"""The tree of the catalog, the overview, and namespaces."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.support.rest import RestClient
from tests.support.server import PennonProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.console.conftest import OpenScreen
    from tests.console.screen import Screen

MANY = 10_000


@pytest.fixture(scope="module")
def crowded_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PennonProcess]:
    """A server with ten thousand tables."""
    directory: Path = tmp_path_factory.mktemp("crowded")
    with PennonProcess(directory) as server, RestClient(server.url) as rest:
        rest.post("/v1/namespace/crowd/create")
        for start in range(0, MANY, 1000):
            names = [["crowd", f"table_{number:05}"] for number in range(start, start + 1000)]
            rest.post("/v1/table/batch-commit", {"operations": [{"declare_table": {"id": name}} for name in names]})
        yield server


class TestTree:
    def test_it_leads_to_a_table(self, screen: Screen) -> None:
        screen.open()
        tree = screen.page.get_by_role("tree")
        tree.get_by_role("treeitem", name="shop").click()
        tree.get_by_role("treeitem", name="teas").click()
        expect(screen.page.get_by_role("heading", level=1)).to_have_text("teas")
        expect(tree.get_by_role("treeitem", name="teas")).to_have_attribute("aria-selected", "true")

    def test_it_can_be_reached_with_the_keyboard(self, screen: Screen) -> None:
        screen.open()
        expect(screen.page.get_by_role("treeitem", name="shop")).to_be_visible()
        screen.page.keyboard.press("/")
        screen.page.keyboard.press("ArrowDown")
        screen.page.keyboard.press("ArrowDown")  # from "empty" to "shop"
        screen.page.keyboard.press("ArrowRight")
        expect(screen.page.get_by_role("treeitem", name="shop")).to_have_attribute("aria-expanded", "true")
        for name in ("best", "cheap", "harvest", "teas"):
            screen.page.keyboard.press("ArrowDown")
            expect(screen.page.get_by_role("treeitem", name=name)).to_be_focused()
        screen.page.keyboard.press("Enter")
        expect(screen.page.get_by_role("heading", level=1)).to_have_text("teas")

    def test_an_empty_namespace_says_what_to_do(self, screen: Screen) -> None:
        screen.open()
        screen.page.get_by_role("treeitem", name="empty").click()
        screen.sees("This namespace is empty.")
        screen.sees("db.create_table")

    def test_a_table_that_is_only_declared_says_so_on_every_tab(self, screen: Screen, rest: RestClient) -> None:
        rest.post("/v1/table/shop$plan/declare")
        for tab in ("data", "indexes", "statistics", "health"):
            screen.open(f"table/shop$plan/{tab}").sees("This table is declared, but has no data yet.")
        screen.sees("no version yet")
        screen.open("table/shop$plan/versions").sees("No versions yet.")
        rest.post("/v1/table/shop$plan/drop")

    def test_from_a_namespace_one_comes_back_up(self, screen: Screen, rest: RestClient) -> None:
        rest.post("/v1/namespace/empty$below/create")
        screen.open("namespace/empty$below")
        screen.main.get_by_role("link", name="empty").click()
        expect(screen.page.get_by_role("heading", level=1)).to_have_text("empty")
        screen.sees("0 tables, 1 namespace")
        rest.post("/v1/namespace/empty$below/drop")

    def test_ten_thousand_tables_are_searched_at_once(
        self, open_screen: OpenScreen, crowded_server: PennonProcess
    ) -> None:
        screen = open_screen(crowded_server.url).open()
        screen.sees("10,000 tables")
        screen.page.get_by_role("treeitem", name="crowd").click()
        drawn = screen.page.get_by_role("treeitem")
        expect(drawn.nth(20)).to_be_visible()
        assert drawn.count() < 100
        screen.page.get_by_label("Search tables").fill("07777")
        screen.sees("1 of 10,000 tables")
        screen.page.get_by_role("treeitem", name="crowd.table_07777").click()
        screen.sees("This table is declared, but has no data yet.")
        screen.page.get_by_label("Search tables").fill("nothing like it")
        screen.sees("0 of 10,000 tables")
        screen.shoot("ten-thousand-tables")


class TestOverview:
    def test_an_empty_server_says_how_to_begin_and_one_that_is_gone_is_waited_for(
        self, open_screen: OpenScreen, tmp_path: Path
    ) -> None:
        with PennonProcess(tmp_path) as server:
            screen = open_screen(server.url).open()
            screen.sees("No tables yet")
            screen.sees("pennon.connect")
            screen.shoot("empty-server")
            assert screen.barriers() == []
            server.stop()
            screen.page.get_by_role("link", name="Jobs").click()
            screen.sees("The server does not respond. Retrying every two seconds…")
            screen.shoot("offline")
            assert screen.barriers() == []
            server.start()
            expect(screen.page.locator("#offline")).to_be_hidden(timeout=30_000)
            expect(screen.page.get_by_role("heading", level=1)).to_have_text("Jobs")

    def test_it_shows_the_latest_jobs(self, screen: Screen) -> None:
        screen.open()
        screen.main.get_by_role("link", name="backfill rating").first.click()
        expect(screen.page.get_by_role("heading", level=1)).to_have_text("backfill rating")

    def test_an_address_that_leads_nowhere(self, screen: Screen) -> None:
        screen.open("nonsense")
        screen.sees("Page not found.")
        screen.open("table/shop$tea")
        screen.sees("Table 'shop$tea' does not exist. Did you mean 'teas'?")
        assert screen.barriers() == []
        screen.open("namespace/shp")
        screen.sees("Namespace 'shp' does not exist. Did you mean 'shop'?")
