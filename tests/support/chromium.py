"""A real Chromium, driven by Playwright."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from playwright.sync_api import sync_playwright
from scripts.chromium_program import find_chromium

from tests.support.components import unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run the browser of this machine."""
    program = find_chromium()
    if program is None:
        unavailable("Chromium")
    # Chromium's own sandbox does not work for root, and these pages are ours.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        yield browser
        browser.close()
