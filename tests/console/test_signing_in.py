"""Signing in with a key, and what a key may not do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from pennon.catalog import keys, open_database
from pennon.core.caller import Role
from tests.console.sample import fill_catalog
from tests.console.screen import TEAS
from tests.support.rest import RestClient
from tests.support.server import PennonProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pennon.catalog import Database
    from tests.console.conftest import OpenScreen
    from tests.console.screen import Screen

ACTIONS = ["Tag", "Branch", "Restore", "Create index", "Drop", "Backfill", "Cancel", "Pause", "Retry"]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[PennonProcess, dict[str, str]]]:
    """A server that asks for keys, and one key of each kind."""
    with PennonProcess(tmp_path_factory.mktemp("guarded")) as server:
        database = open_database(f"sqlite:///{server.directory / '.pennon' / 'catalog.db'}")
        secrets = {
            "owner": new_key(database, "owner", Role.ADMIN, ()),
            "reader": new_key(database, "reader", Role.READER, ("shop",)),
            "writer": new_key(database, "writer", Role.WRITER, ("shop",)),
        }
        database.close()
        with RestClient(server.url, {"x-api-key": secrets["owner"]}) as rest:
            fill_catalog(server.url, rest, secrets["owner"])
        yield server, secrets


def new_key(database: Database, name: str, role: Role, namespace: tuple[str, ...]) -> str:
    secret = database.write(lambda connection: keys.create(connection, name, role, namespace, None))
    assert secret is not None
    return secret


def sign_in(screen: Screen, secret: str) -> None:
    screen.page.get_by_label("API key").fill(secret)
    screen.page.get_by_role("button", name="Sign in").click()


class TestKeys:
    def test_without_a_key_one_is_asked_for(
        self, open_screen: OpenScreen, guarded: tuple[PennonProcess, dict[str, str]]
    ) -> None:
        server, secrets = guarded
        screen = open_screen(server.url).open()
        screen.sees("This server needs an API key.")
        screen.shoot("sign-in")
        assert screen.barriers() == []
        sign_in(screen, "nonsense")
        screen.sees("The API key is unknown, revoked or expired.")
        sign_in(screen, secrets["owner"])
        screen.sees("You are owner: admin of everything.")
        screen.page.reload()
        screen.sees("You are owner: admin of everything.")
        screen.click("Sign out")
        screen.sees("This server needs an API key.")

    def test_a_reader_is_offered_nothing_that_changes(
        self, open_screen: OpenScreen, guarded: tuple[PennonProcess, dict[str, str]]
    ) -> None:
        server, secrets = guarded
        screen = open_screen(server.url)
        screen.page.goto(f"{server.url}/#/{TEAS}/data")
        sign_in(screen, secrets["reader"])
        screen.sees("1–50 of 119 rows")
        for tab in ("data", "schema", "versions", "indexes", "functions", "lineage", "statistics", "health"):
            screen.open(f"{TEAS}/{tab}")
            offered = [text for text in screen.main.get_by_role("button").all_inner_texts() if text]
            assert not set(offered) & set(ACTIONS), tab
        screen.shoot("reader")

    def test_a_writer_is_offered_it(
        self, open_screen: OpenScreen, guarded: tuple[PennonProcess, dict[str, str]]
    ) -> None:
        server, secrets = guarded
        screen = open_screen(server.url)
        screen.page.goto(f"{server.url}/#/{TEAS}/functions")
        sign_in(screen, secrets["writer"])
        expect(screen.button("Backfill rating")).to_be_visible()
        screen.open(f"{TEAS}/versions")
        expect(screen.button("Tag version 1")).to_be_visible()
