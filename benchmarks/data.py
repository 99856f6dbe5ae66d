"""Measure Pennon's data operations beside pylance's RestAdapter and pylance itself, in one run on one machine.

Every part starts fresh servers on loopback. Rounds alternate between them, and the one that is not measured is
halted meanwhile. Ratios are taken round by round and their median counts. Nothing here asserts a time: the exit
code is 0 unless a server or a tool fails.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import answering
import inserting
import searching
from load import require_wrk
from report import UNSTEADY
from servers import PEER, PENNON, BenchmarkError
from stage import Plan, Stage, choose, say
from verdicts import LOCAL, Findings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PARTS: dict[str, Callable[[Stage], None]] = {
    "insert-1-row": inserting.measure_single_rows,
    "insert-16-tables": inserting.measure_many_tables,
    "insert-1-client": inserting.measure_one_client,
    "insert-stream": inserting.measure_stream,
    "query-1GB": answering.measure_one,
    "query-16x100MB": answering.measure_many,
    "vector": searching.measure_vectors,
    "scan": searching.measure_scans,
    "upsert": inserting.measure_upserts,
}
_SMALLEST_MB = 50
_LARGEST_MB = 4000


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument(
        "--parts", type=partial(choose, PARTS), default=list(PARTS), metavar="PART,...", help=", ".join(PARTS)
    )
    parser.add_argument("--seconds", type=int, default=5, help="length of a timed run")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each server; the medians count")
    parser.add_argument("--size-mb", type=int, default=1040, help="size of the large stream and the large answer")
    parser.add_argument("--output", choices=["table", "json"], default="table")
    parser.add_argument("--folder", type=Path, help="where to work; a temporary folder by default")
    parser.add_argument("--pennon-only", action="store_true", help="leave the peer out")
    chosen = parser.parse_args(given)
    if min(chosen.seconds, chosen.rounds) < 1 or not _SMALLEST_MB <= chosen.size_mb <= _LARGEST_MB:
        parser.error(f"seconds and rounds start at 1, the size is {_SMALLEST_MB} to {_LARGEST_MB} MB")
    return chosen


def footer(options: argparse.Namespace) -> list[str]:
    """Say how the figures were made."""
    return [
        f"Large stream and answer: {options.size_mb} MB; each of the 16 answers: {options.size_mb / 10:.0f} MB.",
        f"{LOCAL}: pylance in the benchmark's own process; {PEER}: its RestAdapter; rows are an id and 128 floats.",
        "query-1GB and the 16 answers: Pennon's are Arrow streams (the route of LanceDB's client), the peer's files.",
        "first %: when the first bytes of the body came, as a share of the whole time.",
        "RSS +MB: the most above what there was before the round, all processes together; the worst round counts.",
        "No search or scan is asked for twice, but for the cases called repeated. Scans are for the same rows, though:",
        "both servers may have them in memory, the peer as pages of the file, Pennon as rows.",
        "CPU ms: processor time of the server for one request; unlike a rate it hardly depends on the machine's load.",
        f"~ marks rates of rounds that differ by more than {UNSTEADY}x: measure again on a quieter machine.",
    ]


def main() -> int:
    """Run the benchmark and print the report."""
    options = arguments()
    # The servers are in sessions of their own: without the clean-up they would outlive this process.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    servers = (PENNON,) if options.pennon_only else (PEER, PENNON)
    plan = Plan(options.seconds, options.rounds, options.size_mb, servers)
    findings = Findings()
    with tempfile.TemporaryDirectory(prefix="pennon-data-", dir=options.folder, ignore_cleanup_errors=True) as folder:
        try:
            require_wrk()
            for name in options.parts:
                say(f"{name} (load {os.getloadavg()[0]:.1f})")
                PARTS[name](Stage(plan, Path(folder) / name, findings))
                findings.note(f"{name}: load {os.getloadavg()[0]:.1f} at its end.")
        except BenchmarkError as problem:
            say(f"error: {problem}")
            return 1
    findings.notes[:0] = footer(options)
    print(findings.as_json() if options.output == "json" else findings.as_table())
    return 0


if __name__ == "__main__":
    sys.exit(main())
