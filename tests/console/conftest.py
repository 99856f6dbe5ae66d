"""A server with a worker and a catalog that has something of everything, and a browser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pytest

from tests.console.sample import add_views, fill_catalog
from tests.console.screen import Screen
from tests.support.chromium import chromium
from tests.support.rest import RestClient
from tests.support.server import PennonProcess
from tests.support.spark import QUICK_JAVA

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

CONF = f'{{"spark.driver.extraJavaOptions": "{QUICK_JAVA}", "spark.ui.enabled": "true", "spark.ui.port": "0"}}'
WORKER = {
    "PENNON_WORKERS": "1",
    "PENNON_SPARK_PRESTART": "true",
    "PENNON_SPARK_CONF": CONF,
    "PENNON_MAINTENANCE_ENABLED": "false",  # the pages show fragments that it would merge
}


class OpenScreen(Protocol):
    """Open a tab of its own on a server's console."""

    def __call__(self, url: str = ..., *, width: int = ..., theme: str = ...) -> Screen: ...


@pytest.fixture(scope="session")
def console_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PennonProcess]:
    """A server with a worker, and the sample catalog with one computed column."""
    with PennonProcess(tmp_path_factory.mktemp("console"), env=WORKER) as server:
        with RestClient(server.url) as rest:
            table = fill_catalog(server.url, rest)
            table.backfill("rating")
            add_views(server.url, rest)
        yield server


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """A browser for all tests here. It ends with them: as long as it runs, no other test can have an event loop."""
    with chromium() as running:
        yield running


@pytest.fixture
def rest(console_server: PennonProcess) -> Iterator[RestClient]:
    """A client for requests as they are on the wire."""
    with RestClient(console_server.url) as client:
        yield client


@pytest.fixture
def open_screen(browser: Browser, request: pytest.FixtureRequest) -> Iterator[OpenScreen]:
    """A function that opens tabs; at the end none of them may have complained."""
    screens: list[Screen] = []

    def make(url: str = "", *, width: int = 1280, theme: str = "light") -> Screen:
        address = url or request.getfixturevalue("console_server").url
        scheme = "dark" if theme == "dark" else "light"
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)  # type: ignore[arg-type]
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        screens.append(Screen(context.new_page(), address))
        return screens[-1]

    yield make
    for screen in screens:
        screen.page.context.close()
        assert screen.complaints == []


@pytest.fixture
def screen(open_screen: OpenScreen) -> Screen:
    """A tab on the server with the sample catalog."""
    return open_screen()
