"""How every page looks, is read aloud, and fits: in both themes, on large and small screens, on and off line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from playwright.sync_api import expect

import pennon
from tests.console.screen import TEAS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.console.conftest import OpenScreen
    from tests.console.screen import Screen
    from tests.support.rest import RestClient
    from tests.support.server import PennonProcess

LONG = "a_name_that_goes_on_and_on_" * 4

PAGES = {
    "overview": "",
    "namespace": "namespace/shop",
    "data": f"{TEAS}/data",
    "schema": f"{TEAS}/schema",
    "versions": f"{TEAS}/versions",
    "indexes": f"{TEAS}/indexes",
    "functions": f"{TEAS}/functions",
    "lineage": f"{TEAS}/lineage",
    "statistics": f"{TEAS}/statistics",
    # What this page copies maintains the table: not the one whose fragments are counted on other pages.
    "health": "table/shop$harvest/health",
    "view": "table/shop$words/view",
    "jobs": "jobs",
}


@pytest.fixture
def awkward(console_server: PennonProcess, rest: RestClient) -> Iterator[str]:
    """A table with long and unusual names and values, in a namespace of the same name."""
    rest.post(f"/v1/namespace/{LONG}/create")
    strange = pa.table({LONG: ["x" * 1000, "<b>bold</b>", "\u202eعربي 🍵"], "id": [1, 2, 3]})
    table = pennon.connect(console_server.url).create_table(LONG, strange, namespace_path=[LONG])
    table.add_columns({f"{LONG}loud": pennon.computed("upper(cast(id AS string))")})
    yield f"{LONG}${LONG}"
    rest.post(f"/v1/namespace/{LONG}/drop", {"behavior": "cascade"})


@pytest.mark.parametrize("width", [1280, 390])
def test_long_names_fit(open_screen: OpenScreen, awkward: str, width: int) -> None:
    screen = open_screen(width=width).open(f"namespace/{LONG}").shoot(f"long-namespace-{width}")
    assert screen.overflow() <= 0
    for tab in ("data", "schema", "versions", "indexes", "functions", "lineage", "statistics", "health"):
        screen.open(f"table/{awkward}/{tab}").shoot(f"long-{tab}-{width}")
        assert screen.overflow() <= 0, tab


def test_an_action_can_be_done_with_the_keyboard(screen: Screen, rest: RestClient) -> None:
    screen.open(f"{TEAS}/versions")
    screen.button("Tag version 2").focus()
    screen.page.keyboard.press("Enter")
    name = screen.page.get_by_label("Name", exact=True)
    expect(name).to_be_focused()
    screen.page.keyboard.press("Escape")
    expect(screen.page.locator("dialog[open]")).to_have_count(0)
    expect(screen.button("Tag version 2")).to_be_focused()
    screen.page.keyboard.press("Enter")
    expect(name).to_be_focused()
    screen.page.keyboard.type("typed")
    screen.page.keyboard.press("Enter")
    screen.says("Tagged version 2 as typed.")
    rest.post("/v1/table/shop$teas/tags/delete", {"tag": "typed"})


@pytest.mark.parametrize(
    ("width", "theme", "checked"),
    [(1280, "light", True), (1280, "dark", False), (390, "light", False), (390, "dark", True)],
)
def test_every_page_fits_and_has_no_barriers(open_screen: OpenScreen, width: int, theme: str, *, checked: bool) -> None:
    screen = open_screen(width=width, theme=theme)
    for name, path in PAGES.items():
        screen.open(path).shoot(f"{name}-{width}-{theme}")
        assert screen.overflow() <= 0, name
        assert not checked or screen.barriers() == [], name
    screen.page.get_by_role("link", name="backfill").first.click()
    screen.settled().sees("Time breakdown")
    screen.shoot(f"job-{width}-{theme}")
    assert screen.overflow() <= 0
    assert not checked or screen.barriers() == []
    screen.open(f"{TEAS}/functions").click("Backfill loud")
    screen.shoot(f"dialog-{width}-{theme}")
    body = screen.page.locator("dialog .dialog-body")
    assert body.evaluate("element => element.scrollWidth - element.clientWidth") <= 0
    assert not checked or screen.barriers() == []


def test_on_a_small_screen_the_tab_one_is_in_is_in_sight(open_screen: OpenScreen) -> None:
    screen = open_screen(width=390).open("table/shop$cheap/view")
    expect(screen.main.locator(".tabs [aria-current]")).to_be_in_viewport(ratio=0.9)


def test_on_a_small_screen_the_tree_is_a_drawer(open_screen: OpenScreen) -> None:
    screen = open_screen(width=390).open()
    tree = screen.page.get_by_role("tree")
    expect(tree).to_be_hidden()
    screen.click("Catalog")
    expect(tree).to_be_visible()
    screen.page.get_by_label("Search tables").fill("tea")
    screen.page.get_by_role("treeitem", name="shop.teas").click()
    expect(screen.page.get_by_role("heading", level=1)).to_have_text("teas")
    expect(tree).to_be_hidden()
    screen.click("Catalog")
    screen.page.keyboard.press("Escape")
    expect(tree).to_be_hidden()


def test_the_theme_is_changed_and_kept(screen: Screen) -> None:
    back = "getComputedStyle(document.body).backgroundColor"
    light = screen.open().page.evaluate(back)
    screen.click("Switch between dark and light")
    dark = screen.page.evaluate(back)
    assert light != dark
    screen.page.reload()
    screen.settled()
    assert screen.page.evaluate(back) == dark


def test_nothing_jumps_while_a_page_loads(screen: Screen) -> None:
    screen.page.add_init_script(
        "window.shifts = 0; new PerformanceObserver(list => { for (const entry of list.getEntries()) "
        "if (!entry.hadRecentInput) window.shifts += entry.value; }).observe({type: 'layout-shift', buffered: true});"
    )
    screen.open(f"{TEAS}/data")
    screen.open(f"{TEAS}/functions")
    assert screen.page.evaluate("window.shifts") < 0.1


def test_the_server_is_the_only_one_that_is_asked(screen: Screen) -> None:
    asked: set[str] = set()
    screen.page.on("request", lambda request: asked.add(request.url))
    screen.open(f"{TEAS}/data")
    others = {url for url in asked if not url.startswith((screen.url, "blob:", "data:"))}
    assert asked
    assert others == set()


def test_a_script_in_a_value_does_not_run(screen: Screen) -> None:
    screen.open(f"{TEAS}/data?where=" + "%3Cimg+src%3Dx+onerror%3Dalert(1)%3E")
    expect(screen.main.locator("img[src=x]")).to_have_count(0)
    expect(screen.main.locator(".problem")).to_be_visible()
