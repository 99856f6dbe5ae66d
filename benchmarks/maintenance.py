"""Measure tables under steady writes: what maintenance keeps, and what it costs.

16 clients (LanceDB's own, over `db://`) insert one row at a time into a table with an IVF_PQ and a BTREE index, and two
more search it and filter it meanwhile, 10 times a second each. At the end the rates of searches and filters are
compared with those of a fresh copy of the table in one piece with new indexes. Pennon without maintenance and pylance's
RestAdapter get as much time as Pennon needed.

The rows are those of an hour, inserted as fast as the server takes them. So the times of the policy (until new rows
join an index, until versions and files are removed) are divided by `--compression`; all else is as by default.

Nothing here asserts a time: the exit code is 0 unless a server fails or a row is lost.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import steady_writes
from servers import PEER, PENNON, BenchmarkError
from stage import say
from steady_writes import WITHOUT, Load
from verdicts import Findings, Goal

if TYPE_CHECKING:
    from collections.abc import Sequence

_SERVERS = (PENNON, WITHOUT, PEER)
_LAST = "part 10 of 10"
GOALS = (
    Goal("search at the end", "kept", 0.8, at_least=True),
    Goal("search at the end", "recall", 0.9, at_least=True),
    Goal("filter at the end", "kept", 0.8, at_least=True),
    Goal(_LAST, "fragments", 40),
    Goal(_LAST, "versions", 400),
    Goal("inserts", "rate", 0.8, WITHOUT, at_least=True),
    Goal("inserts", "rate", 2.0, PEER, at_least=True),
)


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000, help="rows to insert; 100000 for the whole run")
    parser.add_argument("--first-rows", type=int, default=5000, help="rows of the table when its indexes are built")
    parser.add_argument("--compression", type=float, default=12, help="an hour takes 3600 s / this")
    parser.add_argument("--seconds", type=float, default=3, help="length of a timed run at the end")
    parser.add_argument("--rounds", type=int, default=3, help="timed runs at the end; the medians count")
    parser.add_argument("--servers", default=",".join(_SERVERS), help="which, in this order; Pennon first")
    parser.add_argument("--output", choices=["table", "json"], default="table")
    parser.add_argument("--folder", type=Path, help="where to work; a temporary folder by default")
    chosen = parser.parse_args(given)
    unknown = set(chosen.servers.split(",")) - set(_SERVERS)
    if unknown or chosen.rows < 100 or chosen.first_rows < 300 or chosen.compression <= 0 or chosen.rounds < 1:
        parser.error("servers are pennon, off and peer; rows start at 100, first rows at 300, rounds at 1")
    return chosen


def footer(options: argparse.Namespace) -> list[str]:
    """Say how the figures were made."""
    return [
        f"{options.rows:,} one-row inserts by {steady_writes.CLIENTS} clients into a table of {options.first_rows:,}.",
        f"The times of the policy are divided by {options.compression:g}; '{WITHOUT}': maintenance_enabled=false.",
        "rate: inserts a second, or reads a second by one client at the end; fresh: those of a fresh copy.",
        "kept: rate / fresh; recall: that of the table divided by that of the copy.",
        "search ms, filter ms: medians while the rows were inserted. MB: all files in the table's folder.",
        "Each acknowledged row was there once at the end.",
    ]


def main() -> int:
    """Run the benchmark and print the report."""
    options = arguments()
    # The servers are in sessions of their own: without the clean-up they would outlive this process.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    load = Load(options.rows, options.first_rows, options.compression, options.seconds, options.rounds)
    findings = Findings(GOALS, steady_writes.METRICS)
    names = tuple(name for name in _SERVERS if name in options.servers.split(","))
    with tempfile.TemporaryDirectory(prefix="pennon-steady-", dir=options.folder, ignore_cleanup_errors=True) as folder:
        findings.note(f"load {os.getloadavg()[0]:.1f} at the start")
        try:
            steady_writes.measure(load, names, Path(folder), findings)
        except BenchmarkError as problem:
            say(f"error: {problem}")
            return 1
    findings.notes[:0] = footer(options)
    print(findings.as_json() if options.output == "json" else findings.as_table())
    return 0


if __name__ == "__main__":
    sys.exit(main())
