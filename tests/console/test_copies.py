"""What is copied as Python and as curl runs, and does what the page does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.console.copies import run_curl, run_python
from tests.console.screen import TEAS
from tests.console.test_looks import PAGES

if TYPE_CHECKING:
    from tests.console.screen import Screen
    from tests.support.rest import RestClient


def test_everything_that_a_page_asks_for(screen: Screen) -> None:
    programs: dict[str, str] = {}
    for path in PAGES.values():
        screen.open(path)
        names = [str(label.get_attribute("aria-label")) for label in screen.main.locator(".copies").all()]
        for what in {name.removeprefix("Copy: ") for name in names}:
            run_curl(screen.copied(f"Copy as curl: {what}"))
            programs[screen.copied(f"Copy as Python: {what}")] = what
    assert len(programs) > 15
    # One program after the other, each in a scope of its own: to start Python for each would take long.
    run_python("\n".join(f"exec({program!r}, {{}})" for program in programs))


def test_rows_in_the_order_of_the_page(screen: Screen) -> None:
    screen.open(f"{TEAS}/data?where=id+%3C+9&columns=id,name&sort=-id&size=20")
    printed = run_python(screen.copied("Copy as Python: query"))
    assert printed.index("tea 8") < printed.index("tea 7")
    rows = run_curl(screen.copied("Copy as curl: query"))["rows"]
    assert [row["name"] for row in rows] == [f"tea {number}" for number in range(8, -1, -1)]


def test_rows_of_a_branch(screen: Screen) -> None:
    screen.open(f"{TEAS}/data?branch=trial&where=id+%3D+7")
    assert "rating" not in run_python(screen.copied("Copy as Python: describe the table"))
    assert "tea 7" in run_python(screen.copied("Copy as Python: query"))


def test_tags(screen: Screen, rest: RestClient) -> None:
    def tags() -> dict[str, int]:
        found = rest.post("/v1/table/shop$teas/tags/list")["tags"]
        return {name: tag["version"] for name, tag in found.items()}

    screen.open(f"{TEAS}/versions")
    screen.click("Tag version 2")
    screen.fill("Name", "copied")
    run_python(screen.copied("Copy as Python: create the tag"))
    assert tags()["copied"] == 2
    screen.click("Close")
    screen.open(f"{TEAS}/versions").click("Tag copied: move or delete")
    screen.fill("Version", "3")
    run_curl(screen.copied("Copy as curl: move the tag"))
    assert tags()["copied"] == 3
    run_python(screen.copied("Copy as Python: delete the tag"))
    assert "copied" not in tags()


def test_branches(screen: Screen, rest: RestClient) -> None:
    screen.open(f"{TEAS}/versions")
    screen.click("Branch from version 3")
    screen.fill("Name", "copied")
    run_python(screen.copied("Copy as Python: create the branch"))
    made = rest.post("/v1/table/shop$teas/branches/list")["branches"]["copied"]
    assert made["parentVersion"] == 3
    screen.click("Close")
    screen.open(f"{TEAS}/versions").click("Cherry-pick copied to main")
    assert "failed" in run_python(screen.copied("Copy as Python: cherry-pick the branch"))
    screen.click("Close")
    screen.click("Delete the branch copied")
    run_curl(screen.copied("Copy as curl: delete the branch"))
    assert "copied" not in rest.post("/v1/table/shop$teas/branches/list")["branches"]


def test_indexes(screen: Screen, rest: RestClient) -> None:
    screen.open(f"{TEAS}/indexes")
    screen.click("Create index")
    screen.choose("Column", "price")
    screen.fill("Name", "copied_idx")
    run_python(screen.copied("Copy as Python: create the index"))
    screen.click("Close")
    screen.open(f"{TEAS}/indexes").click("Drop copied_idx")
    run_curl(screen.copied("Copy as curl: drop the index"))
    names = [index["index_name"] for index in rest.post("/v1/table/shop$teas/index/list")["indexes"]]
    assert "copied_idx" not in names


def test_backfills_and_jobs(screen: Screen, rest: RestClient) -> None:
    screen.open(f"{TEAS}/functions")
    screen.click("Backfill square")
    screen.choose("Rows", "all")
    job = run_curl(screen.copied("Copy as curl: backfill"))["job_id"]
    screen.open(f"job/{job}")
    run_python(screen.copied("Copy as Python: pause"))
    run_curl(screen.copied("Copy as curl: cancel"))
    expect(screen.main.locator(".chip").first).to_have_text("cancelled", timeout=60_000)
    screen.open(f"{TEAS}/functions").click("Backfill loud")
    screen.fill("Where", "id < 3")
    run_python(screen.copied("Copy as Python: backfill"))
    newest = rest.post("/v1/jobs/list", {"limit": 1})["jobs"][0]
    assert (newest["target"], newest["state"]) == ("loud", "done")


def test_views(screen: Screen, rest: RestClient) -> None:
    body = {
        "kind": "query",
        "source_query": "SELECT name FROM shop.harvest",
        "output_schema": None,
        "with_no_data": True,
    }
    rest.post("/v1/materialized_view/shop$brief/create", body, expect=201)
    screen.open("table/shop$brief/view").click("Refresh")
    run_python(screen.copied("Copy as Python: refresh"))
    screen.click("Close")
    screen.click("Schedule")
    screen.fill("Schedule", "0 3 * * *")
    run_curl(screen.copied("Copy as curl: alter the view"))
    screen.click("Close")
    described = rest.post("/v1/materialized_view/shop$brief/describe")
    assert (described["state"], described["schedule"]) == ("fresh", "0 3 * * *")
    screen.click("Drop view")
    run_python(screen.copied("Copy as Python: drop the view"))
    screen.page.reload()
    screen.settled().sees("Table 'shop$brief' does not exist.")
