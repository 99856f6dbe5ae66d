"""``pennon backfill``, and what commands tell of a column, on a server with Spark."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING

import pytest

import pennon as sdk

if TYPE_CHECKING:
    from tests.support.command import Run
    from tests.support.server import PennonProcess


@sdk.udf(error_policy=sdk.ErrorPolicy.skip())
def half(size: str) -> int:
    return int(size) // 2


@sdk.udf
def strict(size: str) -> int:
    return int(size)


@pytest.fixture
def table(spark_server: PennonProcess, run: Run, monkeypatch: pytest.MonkeyPatch) -> str:
    """A table of three rows with two columns to fill; one row fails. Commands find its server."""
    monkeypatch.setenv("PENNON_URL", spark_server.url)
    name = f"sizes{secrets.token_hex(4)}"
    sizes = sdk.connect(spark_server.url).create_table(name, [{"size": size} for size in ("10", "20", "large")])
    sizes.add_columns({"half": half, "strict": strict})
    return name


def test_a_backfill_fills_the_column_and_prints_its_counts(run: Run, table: str) -> None:
    plan = json.loads(run("backfill", table, "half", "--dry-run", "-o", "json").stdout)
    assert (plan["rows"], plan["mode"]) == (3, "default")
    assert "udf calls" in run("backfill", table, "half", "--dry-run").stdout
    filled = run("backfill", table, "half")
    assert (filled.code, filled.stdout) == (0, "done\n")
    state = json.loads(run("tables", "state", table, "half", "-o", "json").stdout)
    assert (state["computed"], state["failed"], state["missing"]) == (2, 1, 0)
    (error,) = json.loads(run("tables", "errors", table, "--column", "half", "-o", "json").stdout)
    assert (error["error_type"], error["column"]) == ("ValueError", "half")
    assert "ValueError" in run("tables", "errors", table).stdout
    assert "No errors found" in run("tables", "errors", table, "--column", "strict").stderr


def test_a_job_that_fails_has_its_exit_code(run: Run, table: str) -> None:
    ended = run("backfill", table, "strict")
    assert ended.code == 7
    assert ended.stdout.startswith("failed: ")


def test_a_job_need_not_be_waited_for(run: Run, table: str) -> None:
    submitted = run("backfill", table, "half", "--where", "size = '10'", "--no-wait")
    job = submitted.stdout.strip()
    assert run("jobs", "watch", job).code == 0
    assert json.loads(run("tables", "state", table, "half", "-o", "json").stdout)["computed"] == 1


def test_a_missing_column_is_an_error(run: Run, table: str) -> None:
    ended = run("backfill", table, "nothing")
    assert (ended.code, "pennon tables show" in ended.stderr) == (3, True)
