"""Columns that functions fill, and the jobs that do it, on a real Spark."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from playwright.sync_api import expect

from tests.console.screen import TEAS

if TYPE_CHECKING:
    from tests.console.screen import Screen
    from tests.support.rest import RestClient


def newest_job(rest: RestClient) -> Any:
    """Return the job that was submitted last."""
    return rest.post("/v1/jobs/list", {"limit": 1})["jobs"][0]


class TestFunctions:
    def test_the_state_and_the_source_of_a_column(self, screen: Screen) -> None:
        screen.open(f"{TEAS}/functions")
        card = screen.main.get_by_role("region", name="Function of rating")
        expect(card).to_contain_text("81% of 119 rows computed")
        expect(card.get_by_role("img")).to_have_attribute("aria-label", re.compile("computed 81%, failed 19%"))
        expect(card).to_contain_text('raise ValueError("cannot rate smoke")')
        card.get_by_role("button", name="Errors of rating").click()
        errors = card.get_by_role("region", name="Errors of rating")
        expect(errors).to_contain_text("cannot rate smoke")
        card.get_by_role("button", name="Errors of rating").click()
        expect(errors).to_have_count(0)
        expect(screen.main.get_by_role("region", name="Function of loud")).to_contain_text("upper(name)")

    def test_a_table_without_functions_says_how_to_add_one(self, screen: Screen, rest: RestClient) -> None:
        rest.post("/v1/table/plain/declare")
        screen.open("table/plain/functions")
        screen.sees("This table has no feature columns.")
        rest.post("/v1/table/plain/drop")


class TestBackfill:
    def test_it_is_planned_run_and_followed_to_its_end(self, screen: Screen) -> None:
        screen.open(f"{TEAS}/functions")
        screen.click("Backfill loud")
        screen.choose("Rows", "all")
        screen.click("Plan")
        screen.sees("Would compute 119 rows of 3 fragments")
        screen.fill("Where", "id < 100")
        python = screen.copied("Copy as Python: backfill")
        assert 'table.backfill("loud", mode="all", where="id < 100")' in python
        screen.shoot("backfill-dialog")
        screen.click("Backfill")
        screen.says("The backfill was submitted.")
        expect(screen.main.locator(".chip").first).to_have_text("done", timeout=60_000)
        facts = screen.facts()
        assert (facts["Rows planned"], facts["Rows computed"], facts["Rows failed"]) == ("100", "100", "0")
        expect(screen.main.get_by_role("img", name=re.compile("^Rows per second: at most"))).to_be_visible()
        expect(screen.main.get_by_role("img", name=re.compile("^Time of all tasks: Reading"))).to_be_visible()
        expect(screen.main.locator(".sentence")).not_to_be_empty()
        expect(screen.main.get_by_role("link", name="Spark UI")).to_have_attribute("href", re.compile("^http"))
        screen.shoot("job")

    def test_the_dialog_shows_the_error_of_an_invalid_condition(self, screen: Screen) -> None:
        screen.open(f"{TEAS}/functions")
        screen.click("Backfill loud")
        screen.fill("Where", "nonsense = 1")
        screen.click("Backfill")
        screen.sees("nonsense")
        expect(screen.page.locator("dialog[open]")).to_be_visible()


class TestSteering:
    def test_pause_resume_cancel_retry(self, screen: Screen, rest: RestClient) -> None:
        body = {"column": "square", "mode": "all"}
        job = rest.post("/v1/table/shop$teas/backfill_column", body, expect=202)["job_id"]
        screen.open(f"job/{job}")
        state = screen.main.locator(".chip").first
        expect(state).to_have_text("running", timeout=60_000)
        facts = screen.facts()
        assert facts["Started"] != "—"
        assert facts["Worker"] != "—"
        screen.click("Pause")
        expect(state).to_have_text("paused", timeout=60_000)
        screen.sees("Paused until it is resumed.")
        screen.click("Resume")
        expect(state).to_have_text(re.compile("pending|running"), timeout=60_000)
        screen.click("Cancel")
        expect(state).to_have_text("cancelled", timeout=60_000)
        screen.click("Retry")
        expect(screen.page).not_to_have_url(re.compile(job))
        again = newest_job(rest)["job_id"]
        assert again != job
        screen.settled()
        assert screen.facts()["Retry of"] == job
        rest.post("/v1/jobs/cancel", {"job_id": again})
        expect(screen.main.locator(".chip").first).to_have_text("cancelled", timeout=60_000)

    def test_the_rows_that_failed_are_listed_and_tried_again(self, screen: Screen, rest: RestClient) -> None:
        jobs = rest.post("/v1/jobs/list", {"state": "done", "table": "shop$teas"})["jobs"]
        job = next(job for job in jobs if job["counters"].get("rows_failed"))
        screen.open(f"job/{job['job_id']}")
        table = screen.main.get_by_role("region", name="Failed rows")
        expect(table).to_contain_text("ValueError")
        expect(table).to_contain_text("cannot rate smoke")
        table.get_by_role("link").first.click()
        screen.settled()
        screen.sees("1–1 of 1 row")
        screen.sees("smoky")
        screen.open(f"job/{job['job_id']}")
        screen.click("Retry failed rows")
        expect(screen.page).not_to_have_url(re.compile(job["job_id"]))
        expect(screen.main.locator(".chip").first).to_have_text("done", timeout=60_000)


class TestList:
    def test_jobs_are_chosen_by_state_and_table(self, screen: Screen) -> None:
        screen.open("jobs")
        expect(screen.main.get_by_role("link", name="backfill rating").first).to_be_visible()
        screen.choose("State", "failed")
        screen.sees("No jobs found.")
        screen.choose("State", "done")
        screen.fill("Table", "shop$teas")
        expect(screen.main.get_by_role("link", name="backfill rating").first).to_be_visible()
        assert "state=done" in screen.page.url

    def test_it_follows_what_happens(self, screen: Screen, rest: RestClient) -> None:
        screen.open("jobs?state=paused")
        screen.sees("No jobs found.")
        body = {"column": "square", "mode": "all"}
        job = rest.post("/v1/table/shop$teas/backfill_column", body, expect=202)["job_id"]
        rest.post("/v1/jobs/pause", {"job_id": job})
        expect(screen.main.get_by_role("link", name="backfill square")).to_be_visible(timeout=60_000)
        rest.post("/v1/jobs/cancel", {"job_id": job})
        screen.sees("No jobs found.")

    def test_a_job_that_is_not_there(self, screen: Screen) -> None:
        screen.open("job/nothing")
        screen.sees("Job 'nothing' does not exist.")


class TestFollowing:
    def test_the_focus_stays_while_the_page_is_redrawn(self, screen: Screen, rest: RestClient) -> None:
        body = {"column": "square", "mode": "all"}
        job = rest.post("/v1/table/shop$teas/backfill_column", body, expect=202)["job_id"]
        screen.open(f"job/{job}")
        screen.button("Copy as curl: cancel").focus()
        expect(screen.main.locator(".chip").first).to_have_text("running", timeout=60_000)
        expect(screen.button("Copy as curl: cancel")).to_be_focused()
        screen.button("Cancel").press("Enter")
        expect(screen.main.locator(".chip").first).to_have_text("cancelled", timeout=60_000)


MINUTE = {"state": "done", "creation_ms": 0, "started_ms": 0, "finished_ms": 60_000, "counters": {}}
#: What jobs of a minute were about, and how the sentence about them begins.
BOTTLENECKS: list[tuple[dict[str, Any], str]] = [
    ({"counters": {"read_seconds": 60, "udf_seconds": 20}}, "Reading the inputs takes 75%"),
    ({"counters": {"read_seconds": 20, "udf_seconds": 60}}, "The function takes 75%"),
    ({"counters": {"udf_seconds": 30, "write_seconds": 70}}, "Writing the results takes 70%"),
    ({"counters": {"commit_seconds": 90, "udf_seconds": 10}}, "Committing takes 90%"),
    ({"counters": {"rows_planned": 9, "udf_seconds": 2}}, "Planning and starting tasks took most of its 60 s"),
    ({"counters": {"udf_seconds": 9}, "started_ms": 55_000}, "It waited 55 s for a worker, longer than it ran"),
    ({}, "Nothing to compute."),
    ({"state": "pending", "waiting_for": "No worker is running"}, "Waiting: no worker is running."),
    ({"state": "failed", "failure": {"phase": "compute", "message": "no"}}, 'Failed in the phase "compute": no'),
]


def test_one_sentence_names_the_bottleneck(screen: Screen) -> None:
    screen.open("jobs")
    program = "async (job) => (await import('/console/jobs/bottleneck.js')).bottleneck(job)"
    sentences = [screen.page.evaluate(program, {**MINUTE, **job}) for job, _ in BOTTLENECKS]
    for sentence, (_, begins) in zip(sentences, BOTTLENECKS, strict=True):
        assert sentence.startswith(begins)
