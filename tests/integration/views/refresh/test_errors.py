"""Functions of views that fail: before anything is written, for some rows or partitions, or with their process."""

from __future__ import annotations

import base64
import ctypes
import json
import os
import platform
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import pennon
from pennon.functions.decorators.udf import Function
from pennon.namespace.models.columns import ColumnErrorsRequest
from tests.integration.views.refresh.refresh_harness import RefreshHarness

SKIP = pennon.ErrorPolicy.skip()
TOTALS = pa.schema({"shop": pa.string(), "total": pa.int64()})


def rows(*values: int) -> pa.Table:
    return pa.table({"id": pa.array(range(len(values))), "a": pa.array(values, pa.int64())})


def column_of(function: Function[..., Any], output: str) -> dict[str, Any]:
    """Return a function as a column of a query."""
    packed = base64.b64encode(function.pack()).decode()
    return {"udf": packed, "inputs": list(function.inputs), "outputs": {output: ""}}


def errors(harness: RefreshHarness, name: str) -> list[dict[str, Any]]:
    return harness.namespace.list_column_errors(ColumnErrorsRequest(id=[name])).records


def failing(harness: RefreshHarness, name: str) -> list[tuple[int, str]]:
    """Return the values of the source's rows that are listed with an error, and its type."""
    values = {row["_rowid"]: row["a"] for row in harness.dataset(name).to_table(with_row_id=True).to_pylist()}
    return sorted((values[error["source_row_id"]], error["error_type"]) for error in errors(harness, f"{name}_view"))


# Before anything is written.


@pennon.udf(error_policy=SKIP)
def lost(a: int) -> int:
    import a_package_that_nobody_has  # type: ignore[import-not-found]

    return int(a_package_that_nobody_has.times_ten(a))


@pennon.chunker(error_policy=SKIP)
def lost_pieces(a: int) -> Iterator[int]:
    yield lost.plain(a)


@pennon.udtf(output_schema=pa.schema({"n": pa.int64()}))
class Unready:
    def setup(self) -> None:
        raise RuntimeError("no model")

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> dict[str, list[int]]:
        return {"n": [0]}


@pytest.mark.parametrize(
    ("name", "function", "kind", "said"),
    [
        ("column", lost, "EnvironmentMismatchError", "'a_package_that_nobody_has'"),
        ("chunker", lost_pieces, "EnvironmentMismatchError", "'a_package_that_nobody_has'"),
        ("udtf", Unready, "LoadingFailedError", "no model"),
    ],
)
def test_functions_that_do_not_fit_fail_in_the_preflight(
    harness: RefreshHarness, name: str, function: Function[..., Any], kind: str, said: str
) -> None:
    source, view = f"unfit_{name}", f"unfit_{name}_view"
    harness.create(source, rows(1, 2, 3))
    query: dict[str, Any] = {"source": source, "columns": ["id"]}
    if name == "column":
        harness.view(view, query | {"functions": [column_of(function, "y")]})
    else:
        harness.view(view, query, function)
    failed = harness.refresh(view).failure
    assert (failed["phase"], failed["type"]) == ("preflight", kind)
    assert said in failed["message"]
    assert (harness.version(view), harness.data_files(view)) == (1, set())


def test_another_python_fails_in_the_preflight_with_both_named(harness: RefreshHarness) -> None:
    @pennon.udf
    def tenfold(a: int) -> int:
        return a * 10

    harness.create("elsewhere", rows(1, 2))
    column = column_of(tenfold, "y")
    content = json.loads(tenfold.pack()) | {"python": "3.6.1"}
    column["udf"] = base64.b64encode(json.dumps(content).encode()).decode()
    harness.view("elsewhere_view", {"source": "elsewhere", "columns": ["id"], "functions": [column]})
    failed = harness.refresh("elsewhere_view").failure
    assert failed["phase"] == "preflight"
    assert "3.6.1" in failed["message"]
    assert platform.python_version() in failed["message"]


# Rows and partitions that are skipped.


@pennon.udf(error_policy=SKIP)
def share(a: int) -> float:
    return 1 / a


@pennon.chunker(error_policy=SKIP)
def shares(a: int) -> Iterator[float]:
    yield share.plain(a)


@pytest.mark.parametrize("kind", ["column", "chunker"])
def test_errors_are_listed_until_their_rows_succeed_or_go(harness: RefreshHarness, kind: str) -> None:
    source = f"erring_{kind}"
    view = f"{source}_view"
    harness.create(source, rows(0, 1, 0, 2, 0))
    if kind == "column":
        harness.view(view, {"source": source, "columns": ["id"], "functions": [column_of(share, "share")]})
    else:
        harness.view(view, {"source": source, "columns": ["id"]}, shares)
    job = harness.refresh(view).job
    assert failing(harness, source) == [(0, "ZeroDivisionError")] * 3
    first = errors(harness, view)[0]
    assert (first["job_id"], first["source_version"]) == (job.id, harness.version(source))
    assert first["function"] == ("share" if kind == "column" else "shares")
    assert first["error_message"] == "division by zero"

    harness.append(source, rows(0, 7))
    harness.change(source, lambda dataset: dataset.update({"a": "5"}, where="id = 2"))
    harness.change(source, lambda dataset: dataset.delete("id = 4"))
    assert harness.refresh(view).result["mode"] == "incremental"
    assert len(failing(harness, source)) == 2
    harness.change(source, lambda dataset: dataset.update({"a": "3"}, where="a = 0"))
    harness.change(source, lambda dataset: dataset.update({"a": "0"}, where="a = 7"))
    assert harness.refresh(view, full=True).result["mode"] == "rebuild"
    assert failing(harness, source) == [(0, "ZeroDivisionError")]
    assert harness.refresh(view).result["mode"] == "no_op"
    assert len(errors(harness, view)) == 1


def test_failed_partitions_are_listed_until_a_refresh_succeeds(harness: RefreshHarness) -> None:
    @pennon.udtf(output_schema=TOTALS, partition_by="shop", error_policy=SKIP)
    def totals(table: pa.Table) -> dict[str, list[Any]]:
        total = pc.sum(table.column("amount")).as_py()
        if total < 0:
            raise ValueError(f"in debt by {-total}")
        return {"shop": [table.column("shop")[0].as_py()], "total": [total]}

    harness.create("debts", pa.table({"shop": ["a", "b", "c"], "amount": [1, -2, -3]}))
    harness.view("debts_view", {"source": "debts"}, totals)
    assert harness.refresh("debts_view").result["rows_failed"] == 2
    found = {
        error["partition"]: (error["error_type"], error["error_message"]) for error in errors(harness, "debts_view")
    }
    assert found == {"b": ("ValueError", "in debt by 2"), "c": ("ValueError", "in debt by 3")}
    harness.append("debts", pa.table({"shop": ["b", "c"], "amount": [5, 1]}))
    harness.refresh("debts_view")
    assert [error["partition"] for error in errors(harness, "debts_view")] == ["c"]


@pytest.mark.parametrize(("ratio", "state"), [(None, "done"), (0.5, "failed")])
def test_a_function_that_fails_for_the_whole_source_fails_for_all_rows(
    harness: RefreshHarness, ratio: float | None, state: str
) -> None:
    @pennon.udtf(output_schema=TOTALS, error_policy=pennon.ErrorPolicy.skip(max_error_ratio=ratio))
    def nothing(table: pa.Table) -> dict[str, list[Any]]:
        raise ValueError("no")

    name = f"hopeless_{state}"
    harness.create(name, rows(1, 2, 3, 4))
    harness.view(f"{name}_view", {"source": name, "where": "a > 1"}, nothing)
    ended = harness.refresh(f"{name}_view").job
    assert (ended.state, ended.counters["rows_failed"]) == (state, 3)


@pytest.mark.parametrize("kind", ["full", "udtf", "statement"])
def test_a_rebuild_that_fails_leaves_what_there_was(harness: RefreshHarness, kind: str) -> None:
    @pennon.udtf(output_schema=pa.schema({"share": pa.float64()}))
    def all_shares(table: pa.Table) -> dict[str, list[float]]:
        return {"share": [1 / a for a in table.column("a").to_pylist()]}

    source, view = f"broken_{kind}", f"broken_{kind}_view"
    harness.create(source, rows(1, 2, 4))
    if kind == "full":
        careful = pennon.udf(error_policy=pennon.ErrorPolicy.fail())(share.plain)
        harness.view(view, {"source": source, "columns": ["id"], "functions": [column_of(careful, "share")]})
    elif kind == "udtf":
        harness.view(view, {"source": source}, all_shares)
    else:
        harness.view(view, f"SELECT max(1 / a) AS share FROM {source} GROUP BY a")
    good = harness.refresh(view).result
    before = harness.rows(view)
    harness.append(source, rows(5, 0))
    failed = harness.refresh(view, full=True)
    assert "zero" in failed.failure["message"].lower()
    assert (harness.rows(view), harness.version(view)) == (before, good["version"])
    known = harness.catalogued(view)
    assert (known.failed_job, known.watermark and list(known.watermark.versions.values())) == (failed.job.id, [1])
    assert "zero" in (known.stale_reason or "").lower()
    assert harness.data_files(view) == harness.named_files(view)
    harness.change(source, lambda dataset: dataset.delete("a = 0"))
    assert harness.refresh(view).result["source_version"] == 3
    assert (len(harness.rows(view)), harness.catalogued(view).stale_reason) == (4, None)


# Functions that hang, or take their process with them.


def hang() -> None:
    """Block in a way that no signal interrupts."""
    mutex = ctypes.create_string_buffer(64)
    for _ in range(2):
        ctypes.CDLL(None).pthread_mutex_lock(mutex)


def harmful(policy: pennon.ErrorPolicy) -> tuple[Any, Any]:
    """Return a chunker and a table function that kill their process for 7, and hang for 8."""

    def harm(a: int) -> int:
        if a == 7:
            os._exit(3)
        if a == 8:
            hang()
        return a * 10

    @pennon.chunker(error_policy=policy, timeout=1.0)
    def pieces(a: int) -> Iterator[int]:
        yield harm(a)

    @pennon.udtf(output_schema=pa.schema({"pieces": pa.int64()}), partition_by="a", error_policy=policy, timeout=1.0)
    def parts(batches: Iterator[pa.RecordBatch]) -> Iterator[dict[str, list[int]]]:
        for batch in batches:
            yield {"pieces": [harm(batch.column("a")[0].as_py())]}

    return pieces, parts


@pytest.mark.parametrize("kind", ["chunker", "udtf"])
def test_a_row_that_kills_or_blocks_its_process_fails_alone(harness: RefreshHarness, kind: str) -> None:
    source, view = f"harm_{kind}", f"harm_{kind}_view"
    harness.create(source, rows(1, 2, 3, 7, 4, 8, 5))
    harness.view(view, {"source": source}, harmful(SKIP)[kind == "udtf"])
    assert harness.refresh(view).result["rows_failed"] == 2
    assert [row["pieces"] for row in harness.rows(view, "pieces")] == [10, 20, 30, 40, 50]
    found = sorted((error["error_type"], error["error_message"]) for error in errors(harness, view))
    assert [kind for kind, _ in found] == ["ProcessDied", "Timeout"]
    assert "exit code 3" in found[0][1]
    # Lance leaves a temporary file where its process is killed; Pennon leaves no other file.
    assert {name for name in harness.data_files(view) if name.endswith(".lance")} == harness.named_files(view)


@pytest.mark.parametrize(("kind", "place"), [("chunker", "row with id 3"), ("udtf", "the partition a = 7")])
def test_what_kills_its_process_may_fail_the_job(harness: RefreshHarness, kind: str, place: str) -> None:
    source, view = f"deadly_{kind}", f"deadly_{kind}_view"
    harness.create(source, rows(1, 2, 3, 7))
    harness.view(view, {"source": source}, harmful(pennon.ErrorPolicy.fail())[kind == "udtf"])
    failed = harness.refresh(view).failure
    assert failed["type"] == "ProcessDied"
    assert place in failed["message"]
    assert "exit code 3" in failed["message"]
    harness.change(source, lambda dataset: dataset.delete("a = 7"))
    assert harness.refresh(view).result["rows_written"] == 3
