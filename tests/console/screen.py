"""The console in a browser, as the tests use it: pages by their addresses, things by what they are called."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import expect

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

ARTEFACTS = Path(__file__).resolve().parents[2] / "test-artifacts" / "console"
# Machines that do much else at the same time are slow, and still right.
expect.set_options(timeout=30_000)

TEAS = "table/shop$teas"


class Screen:
    """One tab of a browser that shows a server's console; what it complains about is kept."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.complaints: list[str] = []
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", lambda message: self._hear(message.type, message.text))

    def _hear(self, kind: str, text: str) -> None:
        # A browser reports every answer that is an error, and every lost connection; the page has its own words then.
        if kind == "error" and not text.startswith("Failed to load resource"):
            self.complaints.append(text)

    def open(self, path: str = "") -> Screen:
        """Go to a page and wait until it is there."""
        address = f"{self.url}/#/{path}"
        if self.page.url == address:
            self.page.reload()
        else:
            # The page that is there is ready; it must not be taken for the one that is to come.
            self.page.evaluate("document.getElementById('main')?.setAttribute('aria-busy', 'true')")
            self.page.goto(address)
        return self.settled()

    def settled(self) -> Screen:
        """Wait until the page shows what its address names."""
        expect(self.page.locator("main")).to_have_attribute("aria-busy", "false")
        return self

    @property
    def main(self) -> Locator:
        """The page without the bar and the tree."""
        return self.page.locator("main")

    def button(self, name: str | re.Pattern[str]) -> Locator:
        """A button by its name, of the dialog if one is open."""
        return self._top().get_by_role("button", name=name, exact=isinstance(name, str))

    def click(self, name: str | re.Pattern[str]) -> None:
        """Press a button."""
        self.button(name).first.click()

    def fill(self, label: str, value: str) -> None:
        """Write into a field."""
        self._top().get_by_label(label, exact=True).fill(value)

    def choose(self, label: str, value: str) -> None:
        """Choose an option."""
        self._top().get_by_label(label, exact=True).select_option(value)

    def sees(self, text: str | re.Pattern[str]) -> None:
        """Wait until something is to be read."""
        expect(self._top().get_by_text(text).first).to_be_visible(timeout=20_000)

    def says(self, text: str | re.Pattern[str]) -> None:
        """Wait until a notice says something."""
        expect(self.page.locator("#toasts")).to_contain_text(text)

    def _top(self) -> Locator:
        dialogs = self.page.locator("dialog[open]")
        return dialogs.last if dialogs.count() else self.page.locator("body")

    def facts(self) -> dict[str, str]:
        """Return what lists of facts on the page say."""
        names = self.main.locator("dl.facts dt").all_inner_texts()
        return dict(zip(names, self.main.locator("dl.facts dd").all_inner_texts(), strict=True))

    def column(self, number: int) -> list[str]:
        """Return the values of a column of the grid."""
        return self.main.locator(f"table.grid tbody tr td:nth-of-type({number})").all_inner_texts()

    def copied(self, label: str) -> str:
        """Press a button that copies, and return what it copied."""
        self.button(label).first.click()
        self.says("Copied")
        return str(self.page.evaluate("navigator.clipboard.readText()"))

    def shoot(self, name: str) -> Screen:
        """Keep a picture of the page."""
        ARTEFACTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=ARTEFACTS / f"{name}.png")
        return self

    def barriers(self) -> list[tuple[str, str, list[Any]]]:
        """Return what is serious or worse for people who use a keyboard or a screen reader."""
        found = Axe().run(self.page).response["violations"]
        serious = [item for item in found if item["impact"] in {"serious", "critical"}]
        return [(item["id"], item["help"], [node["html"][:160] for node in item["nodes"][:3]]) for item in serious]

    def overflow(self) -> int:
        """Return by how much the page is wider than its window, or than the room beside the tree."""
        frames = "[document.documentElement, document.querySelector('main')]"
        return int(self.page.evaluate(f"Math.max(...{frames}.map(one => one.scrollWidth - one.clientWidth))"))
