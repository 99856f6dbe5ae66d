"""Measure refreshes of materialized views on a fresh server with one warm worker, in one run on one machine.

A view has one column that a function computes for each row, and one that an expression does. Refreshes that follow
changes are compared with a rebuild, and with the same change to tables of other sizes. Times are what a
client waits, from the request to the job's end. After each refresh some rows are checked, and how often the function
was given a row. Nothing here asserts a time: the exit code is 0 unless something breaks.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from family import Family
from jobs import TIMES, await_spark, parse_options
from report import UNSTEADY
from servers import PENNON, BenchmarkError, start
from stage import say
from verdicts import Findings, Goal

if TYPE_CHECKING:
    from collections.abc import Callable

    from servers import Server

ROWS = 5_000_000
SIZES = (1_000_000, 5_000_000, 20_000_000)
REBUILD, SMALLEST = "rebuild", "smallest"
_FRAGMENT_ROWS = 1_000_000
_SAME_CHANGE = 10_000
_FEWEST_ROWS = 100_000

METRICS = {
    "seconds": "seconds",
    "called": "called",
    **TIMES,
}
GOALS = (
    Goal("inserted-1%", "seconds", 0.1, REBUILD),
    Goal("updated-0.1%", "seconds", 0.1, REBUILD),
    Goal("deleted-0.1%", "seconds", 0.1, REBUILD),
    Goal("nothing", "seconds", 1.0),
    *(Goal(f"same-change-{size // 1_000_000}M", "seconds", 1.5, SMALLEST) for size in SIZES[1:]),
)


class Watched:
    """A table of a server, and a view over it."""

    def __init__(self, server: Server, name: str, rows: int) -> None:
        import pennon

        @pennon.udf
        def product(x: float, y: float) -> float:
            return x * y

        self._server = server
        self._db = pennon.connect(server.url)
        self._name = name
        self.rows = self._first = rows
        self._table = self._db.create_table(name, _rows(0, min(rows, _FRAGMENT_ROWS)))
        for start_ in range(_FRAGMENT_ROWS, rows, _FRAGMENT_ROWS):
            self._table.add(_rows(start_, min(_FRAGMENT_ROWS, rows - start_)))
        self._next = rows
        columns = {"id": "id", "sum": "x + y", "product": product}
        self._view = self._db.create_materialized_view(f"{name}_view", name, select=columns, with_no_data=True)  # type: ignore[arg-type]

    def refresh(self, expected_mode: str, expected_calls: int, **options: Any) -> dict[str, float]:
        """Refresh the view, and check what it did and what it holds."""
        Family(self._server).settle()
        os.sync()
        began = time.perf_counter()
        job = self._view.refresh(progress=False, **options)
        seconds = time.perf_counter() - began
        result = job.result or {}
        called = int(job.counters.get("rows_computed", 0))
        if (result.get("mode"), called) != (expected_mode, expected_calls):
            raise BenchmarkError(f"{self._name}: {called} rows were computed, not {expected_calls}: {result}")
        self._verify()
        parts = {name: job.counters.get(f"{name}_seconds", 0.0) for name in ("read", "udf", "write", "commit")}
        return {"seconds": seconds, "called": float(called), **parts}

    def insert(self, count: int) -> None:
        """Add rows."""
        self._table.add(_rows(self._next, count))
        self._next += count
        self.rows += count

    def update(self, count: int) -> int:
        """Change rows that lie all over the table, and return how many there were."""
        step = self.rows // count
        updated = self._table.update(where=f"id % {step} = 1", values_sql={"x": "x + 1"})
        return int(updated.rows_updated)

    def delete(self, count: int, salt: int) -> None:
        """Remove rows that lie all over the table."""
        step = self.rows // count
        self._table.delete(f"id % {step} = {2 + salt}")
        self.rows = self._table.count_rows()

    def change_a_little(self, salt: int) -> int:
        """Insert, update and delete the same number of rows whatever the size, and return how many are computed."""
        old, step = self._first, self._first // 1_000
        self.insert(_SAME_CHANGE)
        updated = self._table.update(where=f"id < {old} AND id % {step} = 1", values_sql={"x": "x + 1"})
        self._table.delete(f"id < {old} AND id % {2 * step} = {2 + salt}")
        self.rows = self._table.count_rows()
        return _SAME_CHANGE + int(updated.rows_updated)

    def _verify(self) -> None:
        if self._view.count_rows() != self._table.count_rows():
            raise BenchmarkError(f"{self._name}: {self._view.count_rows()} rows in the view")
        where = f"id % {max(self._next // 200, 1)} = 1"
        source = {row["id"]: row for row in self._table.search().where(where).limit(1000).to_list()}
        seen = self._view.search().where(where).limit(1000).to_list()
        for row in seen:
            wanted = source[row["id"]]
            if row["product"] != wanted["x"] * wanted["y"] or row["sum"] != wanted["x"] + wanted["y"]:
                raise BenchmarkError(f"{self._name}: wrong values in {row}")


class Bench:
    """A run: one server with a warm worker, and where its findings go."""

    def __init__(self, server: Server, findings: Findings, rows: int, rounds: int) -> None:
        self._server = server
        self._findings = findings
        self.rows = rows
        self.rounds = rounds
        self._made: dict[int, Watched] = {}

    def watched(self, rows: int) -> Watched:
        """Return the table of a size, with a view that was computed; it is made when it is first asked for."""
        if rows not in self._made:
            say(f"writing {rows:,} rows")
            self._made[rows] = Watched(self._server, f"table_{rows}", rows)
            self._made[rows].refresh("rebuild", rows)
        return self._made[rows]

    def add(self, case: str, name: str, values: dict[str, float]) -> None:
        """Keep what a round took, and tell it."""
        shown = ", ".join(f"{key} {value:.4g}" for key, value in values.items())
        say(f"  {case}, {name}: {shown} (load {os.getloadavg()[0]:.1f})")
        self._findings.add(case, name, **values)


def measure_change(bench: Bench, case: str, change: Callable[[Watched, int], int]) -> None:
    """Change the large table and refresh, in turn with rebuilds."""
    watched = bench.watched(bench.rows)
    for number in range(bench.rounds + 1):
        calls = change(watched, number)
        followed = watched.refresh("incremental", calls)
        rebuilt = watched.refresh("rebuild", watched.rows, full=True)
        if number:
            bench.add(case, PENNON, followed)
            bench.add(case, REBUILD, rebuilt)


def _insert(watched: Watched, number: int) -> int:  # noqa: ARG001
    count = watched.rows // 100
    watched.insert(count)
    return count


def _update(watched: Watched, number: int) -> int:  # noqa: ARG001
    return watched.update(watched.rows // 1000)


def _delete(watched: Watched, number: int) -> int:
    watched.delete(watched.rows // 1000, number)
    return 0


def measure_nothing(bench: Bench, case: str) -> None:
    """Refresh a view whose source did not change."""
    watched = bench.watched(bench.rows)
    for _ in range(bench.rounds):
        bench.add(case, PENNON, watched.refresh("no_op", 0))


def measure_sizes(bench: Bench, case: str) -> None:
    """Follow the same change to tables of several sizes, in turn."""
    sizes = [size * bench.rows // ROWS for size in SIZES]
    for number in range(bench.rounds + 1):
        for size in sizes:
            watched = bench.watched(size)
            values = watched.refresh("incremental", watched.change_a_little(number))
            if not number:
                continue
            millions = SIZES[sizes.index(size)] // 1_000_000
            if size == sizes[0]:
                for other in SIZES[1:]:
                    bench.add(f"{case}-{other // 1_000_000}M", SMALLEST, values)
            else:
                bench.add(f"{case}-{millions}M", PENNON, values)


CASES: dict[str, Callable[[Bench, str], None]] = {
    "inserted-1%": partial(measure_change, change=_insert),
    "updated-0.1%": partial(measure_change, change=_update),
    "deleted-0.1%": partial(measure_change, change=_delete),
    "nothing": measure_nothing,
    "same-change": measure_sizes,
}


def _rows(start_: int, count: int) -> pa.Table:
    chance = np.random.default_rng(start_)
    ids = np.arange(start_, start_ + count, dtype=np.int64)
    return pa.table({"id": ids, "x": chance.random(count), "y": chance.random(count)})


def main() -> int:
    """Run the benchmark and print the report."""
    options = parse_options(__doc__, CASES, rows=ROWS, fewest=_FEWEST_ROWS, others="in proportion")
    # The server is in a session of its own: without the clean-up it would outlive this process.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    from pennon.client import JobError

    findings = Findings(GOALS, METRICS)
    with tempfile.TemporaryDirectory(prefix="pennon-views-", dir=options.folder, ignore_cleanup_errors=True) as folder:
        server = start(PENNON, Path(folder), {"PENNON_SPARK_PRESTART": "true"})
        try:
            await_spark(server)
            bench = Bench(server, findings, options.rows, options.rounds)
            for name in options.only:
                say(f"{name} (load {os.getloadavg()[0]:.1f})")
                CASES[name](bench, name)
        except (BenchmarkError, JobError) as problem:
            say(f"error: {problem}")
            return 1
        finally:
            server.stop()
    small = [f"The goals are meant for {ROWS:,} rows, and not for {options.rows:,}."] if options.rows < ROWS else []
    findings.notes[:0] = [
        *small,
        "called: how many rows the function was given. rebuild: a rebuild of the same view, right after.",
        f"same-change: {_SAME_CHANGE:,} rows inserted, 1,000 updated and 500 deleted, against the smallest table.",
        "read, udf and write are seconds of all tasks together, commit those of the worker.",
        f"~ marks seconds of rounds that differ by more than {UNSTEADY}x: measure again on a quieter machine.",
    ]
    print(findings.as_json() if options.output == "json" else findings.as_table())
    return 0


if __name__ == "__main__":
    sys.exit(main())
