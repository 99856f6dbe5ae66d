"""Measure backfills of a fresh server with one warm worker, beside a loop written by hand, in one run on one machine.

The loop is two processes that are kept, with pylance alone, on a copy of the table; rounds alternate between both, and
Pennon is halted while the loop is measured. Pennon's time is what its client waits, from the request to the job's end.
All values are checked after each round. Nothing here asserts a time: the exit code is 0 unless something breaks.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from pathlib import Path

from backfills import CASES, GOALS, METRICS, PEER_SECONDS, ROWS, Bench, Plan
from jobs import parse_options
from report import UNSTEADY
from servers import BenchmarkError
from stage import say
from verdicts import Findings

_FEWEST_ROWS = 1_000


def footer(options: argparse.Namespace) -> list[str]:
    """Say how the figures were made."""
    peer = ", ".join(f"{case} {seconds:g} s" for case, seconds in PEER_SECONDS.items())
    small = [f"The goals are meant for {ROWS:,} rows, and not for {options.rows:,}."] if options.rows < ROWS else []
    return [
        *small,
        f"A tenth of what a closed peer took, warm, on the same kind of machine ({peer}) is the goal of these cases.",
        "checkpoints: a function of 100 ms for 100 rows, with Pennon's usual checkpoints against without any.",
        "1k-rows-new: with a function the worker has not seen, so that it tries it first.",
        "Steps are milliseconds after the job's submission: claimed, planned, function tried, all committed, done.",
        "read, udf and write are seconds of all tasks together, commit those of the worker.",
        f"~ marks seconds of rounds that differ by more than {UNSTEADY}x: measure again on a quieter machine.",
    ]


def main() -> int:
    """Run the benchmark and print the report."""
    options = parse_options(__doc__, CASES, rows=ROWS, fewest=_FEWEST_ROWS, others="have no more")
    # The server is in a session of its own: without the clean-up it would outlive this process.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    os.environ.setdefault("LANCE_LOG", "error")  # else each commit of the loop is called unstable
    from pennon.client import JobError

    findings = Findings(GOALS, METRICS)
    with tempfile.TemporaryDirectory(prefix="pennon-fill-", dir=options.folder, ignore_cleanup_errors=True) as folder:
        try:
            with Bench(Plan(options.rows, options.rounds), Path(folder), findings) as bench:
                for name in options.only:
                    say(f"{name} (load {os.getloadavg()[0]:.1f})")
                    CASES[name](bench, name)
                    findings.note(f"{name}: load {os.getloadavg()[0]:.1f} at its end.")
        except (BenchmarkError, JobError) as problem:
            say(f"error: {problem}")
            return 1
    findings.notes[:0] = footer(options)
    print(findings.as_json() if options.output == "json" else findings.as_table())
    return 0


if __name__ == "__main__":
    sys.exit(main())
