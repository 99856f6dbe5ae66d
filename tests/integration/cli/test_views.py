"""Views by commands, on a real server that computes nothing: they are made, shown, planned for, altered and dropped."""

from __future__ import annotations

import json
import os
import secrets
import signal
from typing import TYPE_CHECKING, Any

import lance
import lance_namespace as ln
import pyarrow as pa
import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.cli.conftest import Pennon
    from tests.support.command import Run
    from tests.support.server import PennonProcess


@pytest.fixture
def shop(pennon_server: PennonProcess, run: Run, monkeypatch: pytest.MonkeyPatch) -> str:
    """A namespace of its own with a table ``teas``; commands find its server."""
    monkeypatch.setenv("PENNON_URL", pennon_server.url)
    name = f"shop{secrets.token_hex(4)}"
    client = ln.connect("rest", {"uri": pennon_server.url})
    client.create_namespace(ln.CreateNamespaceRequest(id=[name]))
    teas = pa.table({"name": ["Assam", "Sencha"], "origin": ["India", "Japan"]})
    lance.write_dataset(teas, namespace_client=client, table_id=[name, "teas"])
    return name


def said(run: Run, *arguments: object) -> Any:
    """Return what a command says as JSON."""
    ended = run(*arguments, "--output", "json")
    assert ended.code == 0, ended.stderr
    return json.loads(ended.stdout)


def test_a_view_of_a_table_is_made_shown_and_dropped(run: Run, shop: str) -> None:
    view = f"{shop}.far"
    made = run(
        "views", "create", view, "--source", f"{shop}.teas", "--columns", "name", "-w", "origin = 'Japan'", "--no-data"
    )
    assert (made.code, "without rows" in made.stdout) == (0, True)
    assert [(found["name"], found["state"]) for found in said(run, "views", "list", shop)] == [(view, "empty")]
    shown = said(run, "views", "show", view)
    assert shown["sources"][0]["columns"] == ["name", "origin"]
    assert "Holds version" in run("views", "show", view).stdout
    plan = said(run, "views", "plan", view)
    assert (plan["mode"], plan["rows_to_add"]) == ("rebuild", 1)
    assert "never refreshed" in run("views", "plan", view).stdout
    asked = run("views", "drop", view)
    assert (asked.code, "--yes" in asked.stderr) == (2, True)
    assert run("views", "drop", view, "--yes").code == 0
    assert run("views", "show", view).code == 3
    assert "No materialized views" in run("views", "list", shop).stderr


def test_a_view_of_a_query_from_a_file(run: Run, shop: str, tmp_path: Path) -> None:
    query = tmp_path / "counts.sql"
    query.write_text(f"SELECT origin, count(*) AS n FROM {shop}.teas GROUP BY origin")
    submitted = said(run, "views", "create", f"{shop}.counts", "--file", query, "--no-wait")
    job = said(run, "jobs", "show", submitted["job_id"])
    assert (job["state"], job["kind"] if "kind" in job else job["job_type"]) == ("pending", "refresh")
    assert said(run, "views", "show", f"{shop}.counts")["incremental"] is False


def test_an_interrupt_ends_the_waiting_and_not_the_job(pennon: Pennon, run: Run, shop: str) -> None:
    made = ("views", "create", f"{shop}.all", "--source", f"{shop}.teas", "--url", os.environ["PENNON_URL"])
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the tests run in the background
    with pennon.start(*made) as waiting:
        assert waiting.stderr is not None
        assert waiting.stderr.readline().startswith(b"pending")
        waiting.send_signal(signal.SIGINT)
        advice = waiting.stderr.read().decode()
        assert waiting.wait() == 130
    job = said(run, "jobs", "list", "--table", f"{shop}.all")[0]
    assert job["state"] == "pending"
    assert advice.startswith("The job continues. ")
    assert f"`pennon jobs watch {job['job_id']}`" in advice
    assert advice.count("\n") == 1


def test_a_view_takes_one_kind_of_query(run: Run, shop: str) -> None:
    for more in (
        (),
        ("--sql", "SELECT 1", "--source", "t"),
        ("--sql", f"SELECT name FROM {shop}.teas", "--where", "x"),
    ):
        refused = run("views", "create", f"{shop}.v", *more)
        assert (refused.code, "--source" in refused.stderr) == (2, True)


def test_a_refresh_is_submitted_and_a_rhythm_changed(run: Run, shop: str) -> None:
    view = f"{shop}.v"
    assert run("views", "create", view, "--source", f"{shop}.teas", "--no-data", "--schedule", "0 3 * * *").code == 0
    assert said(run, "views", "refresh", view, "--full", "--no-wait")["job_id"]
    altered = said(run, "views", "alter", view, "--auto-refresh", "--no-schedule")
    assert altered == {"name": view, "auto_refresh": True, "schedule": None}
    assert run("views", "alter", view, "--schedule", "never").code == 2


def test_a_view_that_is_read_goes_only_with_cascade(run: Run, shop: str) -> None:
    run("views", "create", f"{shop}.low", "--source", f"{shop}.teas", "--no-data")
    run("views", "create", f"{shop}.high", "--source", f"{shop}.low", "--no-data")
    refused = run("views", "drop", f"{shop}.low", "--yes")
    assert (refused.code, f"{shop}$high" in refused.stderr) == (4, True)
    assert run("views", "drop", f"{shop}.low", "--cascade", "--yes").code == 0
    assert said(run, "views", "list", shop) == []
