"""Measure Spark's SQL over Lance tables, through Pennon's source, beside the same rows in Parquet, in one run.

Both hold the same rows, in as many files. One session runs all queries, Lance and Parquet in turn; the first rounds
only warm up, for Java compiles what it runs often. The answers are compared. lance: the query by `pennon.spark.sql`,
planning included. load: a plain `spark.read.format("pennon").load()`, which reads all columns. pylance: the
same by Lance's own SQL, without Spark, where it can. Nothing here asserts a time: the exit code is 0 unless something
breaks.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from report import UNSTEADY
from servers import PENNON
from stage import choose, say
from verdicts import LOCAL, Findings, Goal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROWS = 20_000_000
FILES = 20
WARM_UP = 2
PARQUET, LOAD = "parquet", "load"
METRICS = {"seconds": "seconds"}
QUERIES = {
    "scan": "SELECT sum(x) FROM t",
    "scan-all": "SELECT sum(id), sum(k), sum(x), sum(y), max(cat), max(ts) FROM t",
    "filter": "SELECT sum(x) FROM t WHERE k < 100",
    "filter-text": "SELECT sum(x) FROM t WHERE k < 100 AND cat = 'cat_007'",
    "group": "SELECT k, sum(x) FROM t GROUP BY k",
    "group-text": "SELECT cat, sum(x) FROM t GROUP BY cat",
    "join": "SELECT g, sum(x) FROM t JOIN small USING (k) GROUP BY g",
    "join-large": "SELECT sum(a.x * b.y) FROM t AS a JOIN t AS b ON a.id = b.id",
}
GOALS = tuple(Goal(case, "seconds", 2.0, PARQUET) for case in QUERIES)
#: Queries that Lance's own SQL answers too.
_ALONE = ("scan", "scan-all", "filter", "filter-text", "group", "group-text")


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    chosen = partial(choose, QUERIES)
    parser.add_argument("--only", type=chosen, default=list(QUERIES), metavar="CASE,...", help=", ".join(QUERIES))
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--rounds", type=int, default=5, help=f"rounds after {WARM_UP} that warm up; the medians count")
    parser.add_argument("--cores", type=int, default=os.cpu_count())
    parser.add_argument("--output", choices=["table", "json"], default="table")
    parser.add_argument("--folder", type=Path, help="where to work; a temporary folder by default")
    return parser.parse_args(given)


def batches(rows: int) -> Iterator[pa.Table]:
    """Return the rows, a file at a time: six columns, of four types."""
    numbers = np.random.default_rng(7)
    names = pa.array([f"cat_{number:03d}" for number in range(200)])
    for file in range(FILES):
        ids = np.arange(file * rows // FILES, (file + 1) * rows // FILES)
        yield pa.table(
            {
                "id": ids,
                "k": numbers.integers(0, 1000, len(ids)).astype(np.int32),
                "x": numbers.random(len(ids)),
                "y": numbers.normal(size=len(ids)),
                "cat": names.take(pa.array(numbers.integers(0, len(names), len(ids)))),
                "ts": pa.array(1_600_000_000_000_000 + ids * 1000, pa.timestamp("us", "UTC")),
            }
        )


class Bench:
    """The rows in both formats, and a session that reads them."""

    def __init__(self, folder: Path, rows: int, cores: int) -> None:
        """Write the rows and open the session."""
        import lance

        from pennon.pipeline.cluster.clusters import Cluster
        from pennon.pipeline.cluster.session import open_session
        from pennon.spark import Snapshot, register

        self._folder, location = folder / "parquet", str(folder / "t.lance")
        self._folder.mkdir()
        for number, table in enumerate(batches(rows)):
            pq.write_table(table, self._folder / f"{number:02d}.parquet")
            lance.write_dataset(table, location, mode="append" if number else "create", max_rows_per_file=rows)
        self._dataset = lance.dataset(location)
        self._snapshot = Snapshot(location, {}, "", self._dataset.version)
        self._session = open_session(Cluster("bench", f"local[{cores},4]", {"spark.driver.memory": "4g"}))
        self._spark: Any = self._session.spark
        register(self._spark)
        self._small = self._spark.range(1000).selectExpr("cast(id AS int) AS k", "id % 7 AS g").cache()
        self._small.createOrReplaceTempView("small")
        self._small.count()

    def close(self) -> None:
        """End the session."""
        self._session.close()

    def run(self, who: str, query: str) -> tuple[float, list[tuple[Any, ...]]]:
        """Answer a query; return the seconds and the rows."""
        start = time.perf_counter()
        rows = sorted(tuple(row) for row in getattr(self, f"_{who}")(query))
        return time.perf_counter() - start, rows

    def _pennon(self, query: str) -> list[Any]:
        from pennon.spark import sql

        rows: list[Any] = sql(self._spark, query, {"t": self._snapshot}).collect()
        return rows

    def _load(self, query: str) -> list[Any]:
        reader = self._spark.read.format("pennon").option("snapshot", self._snapshot.to_option())
        reader.load().createOrReplaceTempView("t")
        rows: list[Any] = self._spark.sql(query).collect()
        return rows

    def _parquet(self, query: str) -> list[Any]:
        self._spark.read.parquet(str(self._folder)).createOrReplaceTempView("t")
        rows: list[Any] = self._spark.sql(query).collect()
        return rows

    def _local(self, query: str) -> list[Any]:
        found = self._dataset.sql(query.replace("FROM t", "FROM dataset")).build().to_batch_records()
        table = pa.Table.from_batches(found)
        return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def is_same(left: list[tuple[Any, ...]], right: list[tuple[Any, ...]]) -> bool:
    """Compare answers; sums of floating point depend on the order of the rows."""

    def same(one: Any, other: Any) -> bool:
        return abs(one - other) <= 1e-6 * abs(other) if isinstance(other, float) else bool(one == other)

    return len(left) == len(right) and all(
        same(one, other) for a, b in zip(left, right, strict=True) for one, other in zip(a, b, strict=True)
    )


def measure(bench: Bench, case: str, rounds: int, findings: Findings) -> None:
    """Answer one query in all ways, in turn."""
    ways = [PARQUET, PENNON] + ([LOAD] if case != "join-large" else []) + ([LOCAL] if case in _ALONE else [])
    query = QUERIES[case]
    for number in range(WARM_UP + rounds):
        answers = {}
        for who in ways:
            seconds, answers[who] = bench.run(who, query)
            if number >= WARM_UP:
                findings.add(case, who, seconds=seconds)
        for who in (PENNON, LOAD):
            if who in answers and not is_same(answers[who], answers[PARQUET]):
                raise ValueError(f"{case}: {who} answers differently from Parquet")
    findings.note(f"{case}: load {os.getloadavg()[0]:.1f} at its end.")


def main() -> int:
    """Run the benchmark and print the report."""
    options = arguments()
    os.environ.setdefault("LANCE_LOG", "error")
    findings = Findings([goal for goal in GOALS if goal.case in options.only], METRICS)
    findings.note("seconds of a whole query, planning included; the goals are ratios to Parquet.")
    findings.note("pennon: pennon.spark.sql. load: a plain load(), all columns. local: Lance's own SQL, without Spark.")
    findings.note(
        f"~ marks seconds of rounds that differ by more than {UNSTEADY}x: measure again on a quieter machine."
    )
    if options.rows < ROWS:
        findings.note(f"The goals are meant for {ROWS:,} rows, and not for {options.rows:,}.")
    with tempfile.TemporaryDirectory(prefix="pennon-source-", dir=options.folder, ignore_cleanup_errors=True) as folder:
        say(f"writing {options.rows:,} rows")
        bench = Bench(Path(folder), options.rows, options.cores)
        try:
            for case in options.only:
                say(f"{case} (load {os.getloadavg()[0]:.1f})")
                measure(bench, case, options.rounds, findings)
        finally:
            bench.close()
    print(findings.as_json() if options.output == "json" else findings.as_table())
    return 0


if __name__ == "__main__":
    sys.exit(main())
