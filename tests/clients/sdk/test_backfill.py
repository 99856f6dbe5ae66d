"""Columns are filled by a real worker, asked for by the client."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyarrow.compute as pc
import pytest
from lance_namespace.errors import TableColumnNotFoundError

import pennon
from pennon.client import ColumnState, JobFailedError, Plan
from pennon.functions import ErrorPolicy
from tests.clients.remote.data import COLOURS, new_name, rows

if TYPE_CHECKING:
    from pennon.client import Connection, Table
    from tests.support.server import PennonProcess


class Word(NamedTuple):
    first: str
    size: int


@pennon.udf(version="1")
def length(text: str) -> int:
    return len(text)


@pennon.udf(version="2")
def twice(text: str) -> int:
    return 2 * len(text)


@pennon.udf
def word(colour: str) -> Word:
    return Word(colour[0], len(colour))


@pennon.udf(error_policy=ErrorPolicy.skip())
def picky(id: int) -> int:  # noqa: A002
    if id % 25 == 0:
        raise ValueError(f"not {id}")
    return id


@pennon.udf
def broken(id: int) -> int:  # noqa: A002
    raise RuntimeError("no good")


@pytest.fixture
def busy(spark_server: PennonProcess) -> Connection:
    """A connection to a server with a worker."""
    return pennon.connect(spark_server.url)


@pytest.fixture
def table(busy: Connection) -> Table:
    return busy.create_table(new_name(), rows(100))


def lengths(table: Table, column: str) -> dict[int, int | None]:
    found = table.search().select(["id", column]).limit(1000).to_arrow()
    return dict(zip(found["id"].to_pylist(), found[column].to_pylist(), strict=True))


def expected(count: int = 100, factor: int = 1) -> dict[int, int | None]:
    return {number: factor * len(f"the {COLOURS[number % 3]} house number {number}") for number in range(count)}


def test_a_column_is_planned_filled_and_known(table: Table) -> None:
    table.add_columns({"length": length})
    plan = table.backfill("length", dry_run=True)
    assert isinstance(plan, Plan)
    assert (plan.rows, plan.fragments) == (100, 1)
    assert table.column_state("length").missing == 100
    job = table.backfill("length")
    assert (job.state, job.kind, job.target) == ("done", "backfill", "length")
    assert lengths(table, "length") == expected()
    state = table.column_state("length")
    assert isinstance(state, ColumnState)
    assert (state.rows, state.computed, state.complete) == (100, 100, True)
    assert table.errors("length").num_rows == 0


def test_a_job_reports_its_results_and_resources(table: Table) -> None:
    table.add_columns({"picky": picky})
    table.add(rows(100, 120))
    job = table.backfill("picky", where="id < 110")
    counted = {name: count for name, count in job.counters.items() if name.startswith(("rows", "fragments"))}
    assert counted == {
        "rows_planned": 110,
        "rows_computed": 110,
        "rows_committed": 105,
        "rows_failed": 5,
        "rows_skipped": 10,
        "fragments_planned": 2,
        "fragments_committed": 2,
    }
    took = {name: amount for name, amount in job.counters.items() if name not in counted}
    assert took.keys() == {
        *("bytes_read", "bytes_written", "peak_memory_bytes"),
        *("read_seconds", "udf_seconds", "write_seconds", "commit_seconds"),
    }
    assert all(amount > 0 for amount in took.values())
    result = job.result or {}
    assert (result["source_version"], result["published_version"]) == (3, table.version)
    committed = job.events().filter(pc.field("kind") == "committed")
    assert sorted(committed["unit"].to_pylist()) == ["0", "1"]
    assert sorted(committed["rows_processed"].to_pylist()) == [10, 100]


def test_only_what_is_new_or_stale_is_computed(table: Table) -> None:
    table.add_columns({"length": length})
    table.backfill("length")
    table.add(rows(100, 110))
    assert table.backfill("length").counters["rows_computed"] == 10
    assert lengths(table, "length") == expected(110)
    table.alter_columns({"path": "length", "function": twice})
    assert table.column_state("length").stale == 110
    assert table.backfill("length", dry_run=True).rows == 110
    table.backfill("length", where="id < 110")
    assert lengths(table, "length") == expected(110, factor=2)


def test_one_function_fills_several_columns(table: Table) -> None:
    table.add_columns({("first", "size"): word})
    table.backfill("first")
    found = table.search().where("id < 3").limit(3).to_arrow()
    assert sorted(zip(found["first"].to_pylist(), found["size"].to_pylist(), strict=True)) == [
        ("b", 4),
        ("g", 5),
        ("r", 3),
    ]


def test_a_computed_column_is_filled(table: Table) -> None:
    table.add_columns({"half": pennon.computed("id / 2")})
    table.backfill("half")
    assert lengths(table, "half") == {number: number // 2 for number in range(100)}


def test_failed_rows_are_listed_and_retried(table: Table) -> None:
    table.add_columns({"picky": picky})
    job = table.backfill("picky")
    assert job.counters["rows_failed"] == 4
    errors = table.errors("picky", job=job)
    assert sorted(errors["error_message"].to_pylist()) == ["not 0", "not 25", "not 50", "not 75"]
    assert set(errors["error_type"].to_pylist()) == {"ValueError"}
    assert table.errors("picky", limit=3).num_rows == 3
    assert repr(table.column_state("picky")).startswith("<picky: 96 of 100 rows computed, 4 failed")
    assert table.backfill("picky", mode="only_failed").counters["rows_failed"] == 4


def test_a_failed_job_is_an_error(table: Table) -> None:
    table.add_columns({"broken": broken})
    with pytest.raises(JobFailedError, match="no good") as caught:
        table.backfill("broken")
    message = "The function 'broken' failed for row 0 of a batch: RuntimeError: no good"
    expected = {"phase": "preflight", "type": "RuntimeError", "message": message, "retryable": False}
    assert caught.value.job.failure == expected
    assert table.column_state("broken").missing == 100


def test_a_branch_is_filled_for_itself(table: Table) -> None:
    table.add_columns({"length": length})
    dev = table.branches.create("dev")
    dev.backfill("length")
    assert lengths(dev, "length") == expected()
    assert set(lengths(table, "length").values()) == {None}
    assert (dev.column_state("length").computed, table.column_state("length").missing) == (100, 100)


def test_a_job_is_asked_for_and_found_again(busy: Connection, table: Table) -> None:
    table.add_columns({"length": length})
    job = table.backfill_async("length", priority=3, timeout=300, concurrency=1)
    assert job.id in {other.id for other in busy.jobs(table=table.name)}
    again = busy.job(job.id).wait(240)
    assert again.result is not None
    kinds = again.events()["kind"].to_pylist()
    assert (kinds[0], kinds[-1]) == ("submitted", "done")


def test_a_column_that_does_not_exist_is_named(table: Table) -> None:
    with pytest.raises(TableColumnNotFoundError, match="lenght"):
        table.backfill("lenght")
    with pytest.raises(TableColumnNotFoundError, match="lenght"):
        table.column_state("lenght")
