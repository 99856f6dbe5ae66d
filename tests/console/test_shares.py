"""Shares in the console: 100% is all of it, with no row missing and none failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.console.conftest import OpenScreen

if TYPE_CHECKING:
    from tests.console.screen import Screen
    from tests.support.server import PennonProcess


@pytest.fixture
def screen(open_screen: OpenScreen, pennon_server: PennonProcess) -> Screen:
    """A tab on a server that needs no worker for this."""
    return open_screen(pennon_server.url).open("jobs")


def test_a_part_is_never_said_to_be_all(screen: Screen) -> None:
    program = """async () => {
      const { percent } = await import('/console/format.js');
      const { progressBar } = await import('/console/parts/charts.js');
      const wrong = [];
      for (let whole = 1; whole <= 3000; whole += 1)
        for (const part of [whole - 1, whole - whole / 1000, Math.ceil(whole * 0.995)]) {
          const bar = progressBar(part, whole, 'x').getAttribute('aria-valuenow');
          if (part < whole && (percent(part, whole).startsWith('100') || bar === '100')) wrong.push([part, whole]);
        }
      const all = [percent(7, 7), progressBar(7, 7, 'x').getAttribute('aria-valuenow'), percent(995, 1000)];
      return [wrong, all];
    }"""
    assert screen.page.evaluate(program) == [[], ["100%", "100", "99.5%"]]


#: Jobs by what they count, and the progress that is shown.
PROGRESS: list[tuple[dict[str, Any], str]] = [
    ({"state": "done", "counters": {"rows_planned": 100, "rows_computed": 100}}, "100%"),
    ({"state": "done", "counters": {"rows_planned": 119, "rows_computed": 100}}, "100%"),
    ({"state": "done", "counters": {"rows_planned": 100, "rows_computed": 100, "rows_failed": 1}}, "99%"),
    ({"state": "done", "counters": {"rows_planned": 4000, "rows_computed": 4000, "rows_failed": 1}}, "99.9%"),
    ({"state": "done", "counters": {"rows_planned": 10, "rows_computed": 10, "rows_failed": 10}}, "0%"),
    ({"state": "running", "counters": {"rows_planned": 100, "rows_computed": 100}}, "99.9%"),
    ({"state": "failed", "counters": {"rows_planned": 100, "rows_computed": 100}}, "99.9%"),
    ({"state": "cancelled", "counters": {"rows_planned": 100, "rows_computed": 50, "rows_failed": 10}}, "40%"),
    ({"state": "done", "job_type": "refresh", "counters": {"rows_computed": 9, "rows_failed": 1}}, "90%"),
]


def test_the_progress_of_a_job_counts_what_is_missing_or_failed(screen: Screen) -> None:
    program = """async (job) => {
      const { progressOf } = await import('/console/jobs/list.js');
      const { percent } = await import('/console/format.js');
      const { done, planned } = progressOf(job);
      return percent(done, planned);
    }"""
    shares = [screen.page.evaluate(program, {"job_type": "backfill", **job}) for job, _ in PROGRESS]
    assert shares == [expected for _, expected in PROGRESS]
