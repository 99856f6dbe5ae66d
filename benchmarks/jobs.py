"""What the benchmarks of jobs have in common: their command line, and a server whose Spark is warm."""

from __future__ import annotations

import argparse
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from servers import BenchmarkError
from stage import choose

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from servers import Server

_WARM_SECONDS = 180.0

#: Of a job, what it spent its time on.
TIMES = {"read": "read s", "udf": "udf s", "write": "write s", "commit": "commit s"}


def parse_options(
    about: str | None,
    cases: Mapping[str, Any],
    *,
    rows: int,
    fewest: int,
    others: str,
    given: Sequence[str] | None = None,
) -> argparse.Namespace:
    """Parse the command line; ``others`` says how many rows the other tables have."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=about, formatter_class=style)
    named = ", ".join(cases).replace("%", "%%")
    parser.add_argument("--only", type=partial(choose, cases), default=list(cases), metavar="CASE,...", help=named)
    parser.add_argument("--rows", type=int, default=rows, help=f"rows of the large table; others {others}")
    parser.add_argument("--rounds", type=int, default=3, help="rounds after the one that warms up; the medians count")
    parser.add_argument("--output", choices=["table", "json"], default="table")
    parser.add_argument("--folder", type=Path, help="where to work; a temporary folder by default")
    chosen = parser.parse_args(given)
    if chosen.rounds < 1 or chosen.rows < fewest:
        parser.error(f"rounds start at 1, rows at {fewest:,}")
    return chosen


def await_spark(server: Server) -> None:
    """Wait until the server's worker has started Spark."""
    deadline = time.monotonic() + _WARM_SECONDS
    while "Spark has started" not in server.log.read_text(errors="replace"):
        server.check()
        if time.monotonic() > deadline:
            raise BenchmarkError(f"Spark had not started within {_WARM_SECONDS:.0f} s:\n{server.last_words()}")
        time.sleep(0.1)
