"""The health of a table in the console: what is due and why, maintenance on request, and the policy."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

import pennon
from tests.support.rest import RestClient

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.console.conftest import OpenScreen
    from tests.console.screen import Screen
    from tests.support.server import PennonProcess


@pytest.fixture
def rest(pennon_server: PennonProcess) -> Iterator[RestClient]:
    """A client of a server without workers, so that what is due stays due."""
    with RestClient(pennon_server.url) as client:
        yield client


@pytest.fixture
def table(pennon_server: PennonProcess) -> str:
    """A table of ten small fragments, some rows deleted."""
    name = f"h{secrets.token_hex(5)}"
    opened = pennon.connect(pennon_server.url).create_table(name, [{"n": 0, "word": "a"}])
    for number in range(1, 10):
        opened.add([{"n": number, "word": "b"}])
    opened.tags.create("first", 1)
    return name


@pytest.fixture
def screen(open_screen: OpenScreen, pennon_server: PennonProcess, table: str) -> Screen:
    """A tab on the health of the table."""
    return open_screen(pennon_server.url).open(f"table/{table}/health")


def test_what_is_due_and_why(screen: Screen) -> None:
    facts = screen.facts()
    assert (facts["Fragments"], facts["Small fragments"], facts["Rows"]) == ("10", "10", "10")
    assert "when a worker runs" in facts["Next"]
    screen.sees("10 small fragments can be merged into 1")
    screen.click("Why?")
    screen.sees("versions would be removed")
    assert "table.maintain(dry_run=True)" in screen.copied("Copy as Python: plan maintenance")
    assert screen.barriers() == []


def test_maintenance_is_started_and_its_job_is_among_the_jobs(screen: Screen, table: str) -> None:
    screen.click("Run maintenance now")
    screen.says("Maintenance was submitted.")
    expect(screen.page.get_by_role("heading", level=1)).to_have_text("maintain")
    screen.sees("no worker is running")
    screen.open(f"table/{table}/health")
    assert screen.facts()["Next"] == "a job is pending"
    screen.click("Run maintenance now")
    screen.says("Maintenance is active already.")
    screen.open(f"jobs?table={table}")
    expect(screen.main.get_by_role("link", name="maintain", exact=True)).to_have_count(1)
    screen.choose("Kind", "backfill")
    screen.sees("No jobs found.")
    screen.choose("Kind", "maintenance")
    expect(screen.main.get_by_role("link", name="maintain", exact=True)).to_have_count(1)


def test_the_policy_is_changed_and_reset(screen: Screen, rest: RestClient, table: str) -> None:
    screen.click("Change policy")
    assert screen.barriers() == []
    screen.choose("Automatic maintenance", "false")
    screen.fill("Keep at most this many versions", "5")
    screen.page.get_by_text("More fields").click()
    screen.fill("Share of deleted rows before a rewrite", "0.5")
    copied = 'table.alter_maintenance_policy(enabled=False, max_versions=5, max_deleted_share="0.5")'
    assert copied in screen.copied("Copy as Python: change the policy")
    screen.click("Change policy")
    screen.says("The policy was changed.")
    screen.settled()
    row = screen.main.get_by_role("row", name="Keep at most this many versions")
    expect(row).to_contain_text("this table")
    policy = rest.post(f"/v1/table/{table}/maintenance_policy/describe")["policy"]
    values = [policy[name]["value"] for name in ("enabled", "max_versions", "max_deleted_share")]
    assert values == [False, 5, 0.5]
    screen.click("Change policy")
    screen.fill("Keep at most this many versions", "")
    screen.click("Change policy")
    expect(row).to_contain_text("the server")


def test_each_version_says_why_it_is_kept(screen: Screen, table: str) -> None:
    screen.open(f"table/{table}/versions")
    screen.sees("Kept: It is the newest version.")
    screen.sees("The tag 'first' refers to it.")
