"""The bar tells how far a job is where someone sees it, and writes nothing where nobody does."""

from __future__ import annotations

import io
from typing import Any, cast

import pytest
from rich.console import Console

from pennon.client.job import Job, JobFields
from pennon.client.progress import JobProgress, rows_done, rows_planned
from pennon.client.transport import Transport


def job(state: str = "running", **known: Any) -> Job:
    fields = {"job_type": "backfill", "target": "x[1]", "state": state, "counters": known.pop("counters", {}), **known}
    made = Job(Transport("http://127.0.0.1:1"), "j1", cast(JobFields, fields))
    made._is_described = True
    return made


def shown(*states: Job, terminal: bool = True, **options: Any) -> str:
    console = Console(file=io.StringIO(), force_terminal=terminal, force_jupyter=False, width=200, color_system=None)
    with JobProgress(console=console, **options) as bar:
        for state in states:
            bar.show(state)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


COUNTERS = {
    "rows_planned": 1000,
    "rows_computed": 500,
    "rows_skipped": 100,
    "rows_failed": 7,
    "fragments_planned": 20,
    "fragments_committed": 3,
}


def test_rows_fragments_and_failures_are_shown() -> None:
    text = shown(job(counters=COUNTERS))
    assert "backfill x[1] running" in text
    assert "500/1,000 rows · 3/20 fragments · 7 failed" in text


def test_what_a_job_waits_for_is_shown() -> None:
    assert "waiting: a free worker" in shown(job("pending", waiting_for="a free worker"))


@pytest.mark.parametrize("counters", [{}, {"rows_planned": 0}, COUNTERS])
def test_the_bar_of_a_done_job_is_full(counters: dict[str, float]) -> None:
    text = shown(job(counters={}), job("done", counters=counters))
    assert "x[1] done ━━━" in text
    assert "╺" not in text.splitlines()[-1]


@pytest.mark.parametrize("options", [{"terminal": False}, {"enabled": False}])
def test_no_progress_is_written_without_a_terminal(options: dict[str, Any]) -> None:
    assert shown(job(counters=COUNTERS), job("done", counters=COUNTERS), **options).strip() == ""


def test_rows_with_a_result_are_counted_but_never_beyond_the_plan() -> None:
    assert (rows_done(job(counters=COUNTERS)), rows_planned(job(counters=COUNTERS))) == (500, 1000)
    assert rows_done(job(counters={"rows_planned": 5, "rows_computed": 5, "rows_skipped": 9})) == 5
    assert rows_done(job(counters={"rows_computed": 5})) == 5
