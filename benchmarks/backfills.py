"""Measure backfills: against a loop written by hand, in seconds, and with checkpoints against without."""

from __future__ import annotations

import contextlib
import functools
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import features
from columns import Copy, Managed
from family import Family
from handwritten import Loop
from jobs import TIMES, await_spark
from servers import PENNON, start
from stage import say
from verdicts import Goal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from columns import Filled
    from features import Feature
    from verdicts import Findings

LOOP = "loop"
WITHOUT = "without"  # Pennon without checkpoints
ROWS = 5_000_000
PEER_SECONDS = {"1M-rows": 6.4, "100k-rows": 4.6}  # of the closed peer, warm, on the same kind of machine
_FRAGMENTS = 20
_MEDIUM_FRAGMENTS = 10
_SLOW_FRAGMENTS = 4
_SLOW_CALLS = 50  # of a fragment
_SMALL_ROWS = 1_000
_SMALL_ROUNDS = 10
_NEVER = 1e9
#: Maintenance would merge the fragments that the cases are about.
_SERVER = {"PENNON_SPARK_PRESTART": "true", "PENNON_MAINTENANCE_ENABLED": "false"}
MANY = "20 fragments"
_LARGE_ROWS = 1_000_000
_ALIKE = 1.02  # sizes of the same content

METRICS = {
    "seconds": "seconds",
    "megabytes": "disk MB",
    "claimed": "claimed ms",
    "planned": "planned ms",
    "preflight": "tried ms",
    "committed": "commit ms",
    "done": "done ms",
    **TIMES,
}
GOALS = (
    Goal("embedding", "seconds", 1.2, LOOP),
    Goal("scalar", "seconds", 1.6, LOOP),
    Goal("arrow", "seconds", 2.5, LOOP),
    *(Goal(case, "seconds", seconds / 10) for case, seconds in PEER_SECONDS.items()),
    Goal("checkpoints", "done ms", 1.05, WITHOUT),  # the job's own time: how soon its client hears of it varies
    Goal("one-fragment", "seconds", 1.15, MANY),
    Goal("1k-rows", "seconds", 2.0),
    Goal("1k-rows-new", "seconds", 2.0),
)


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    rows: int
    rounds: int


class Bench:
    """A run: one server with a warm worker, the processes of the loop, and where its findings go."""

    def __init__(self, plan: Plan, folder: Path, findings: Findings) -> None:
        self.plan = plan
        self._folder = folder
        self._findings = findings
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Bench:
        with contextlib.ExitStack() as stack:
            self._server = start(PENNON, self._folder, _SERVER)
            stack.callback(self._server.stop)
            stack.callback(Family(self._server).resume)
            self._loop = stack.enter_context(Loop())
            await_spark(self._server)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @functools.cached_property
    def large(self) -> tuple[Managed, Copy]:
        """The large table and its copy; they are made when they are first asked for."""
        say(f"writing {self.plan.rows:,} rows in {_FRAGMENTS} fragments")
        managed = Managed(self._server, "large", self.plan.rows, _FRAGMENTS)
        copies = self._folder / "copies"
        copies.mkdir()
        return managed, Copy(managed, self._server, self._loop, copies)

    def small(self, name: str, rows: int, fragments: int) -> Managed:
        """Make a table that has no copy."""
        return Managed(self._server, name.replace("-", "_"), rows, fragments)

    def add(self, case: str, name: str, filled: Filled) -> None:
        """Keep what a round took, and tell it."""
        shown = ", ".join(f"{key} {value:.4g}" for key, value in filled.values().items())
        say(f"  {case}, {name}: {shown} (load {os.getloadavg()[0]:.1f})")
        self._findings.add(case, name, **filled.values())

    def note(self, text: str) -> None:
        """Keep a remark."""
        self._findings.note(text)


def measure_against_loop(bench: Bench, case: str, feature: Feature) -> None:
    """Fill a column of the large table, in turn with the loop; the first round warms both up."""
    managed, copy = bench.large
    managed.declare(feature)
    copy.declare(feature)
    for number in range(bench.plan.rounds + 1):
        _calm()
        by_hand = copy.fill(feature)
        _calm()
        by_pennon = managed.fill(feature)
        if number:
            bench.add(case, LOOP, by_hand)
            bench.add(case, PENNON, by_pennon)
        if not 1 / _ALIKE < by_pennon.megabytes / by_hand.megabytes < _ALIKE:
            bench.note(f"{case}: {by_pennon.megabytes:.1f} MB were written, by hand {by_hand.megabytes:.1f} MB.")
    managed.forget()
    copy.forget()


def measure_seconds(bench: Bench, case: str, rows: int) -> None:
    """Fill a column of a smaller table by a function that is called for every row."""
    managed = bench.small(case, min(rows, bench.plan.rows), _MEDIUM_FRAGMENTS)
    managed.declare(features.SCALAR)
    for number in range(bench.plan.rounds + 1):
        _calm()
        filled = managed.fill(features.SCALAR)
        if number:
            bench.add(case, PENNON, filled)


def measure_requests(bench: Bench, case: str, *, new: bool) -> None:
    """Fill a column of a thousand rows, by a function the worker has seen or by a new one every time."""
    managed = bench.small(case, min(_SMALL_ROWS, bench.plan.rows), 1)
    managed.declare(features.SCALAR)
    for number in range(_SMALL_ROUNDS + 1):
        if new:
            managed.forget()
            managed.declare(features.SCALAR, version=f"{number}")
        filled = managed.fill(features.SCALAR)
        if number:
            bench.add(case, PENNON, filled)


def measure_checkpoints(bench: Bench, case: str) -> None:
    """Fill a column by a slow function, in turn with checkpoints and without."""
    calls = max(1, min(_SLOW_CALLS, bench.plan.rows // (_SLOW_FRAGMENTS * features.SLOW_ROWS)))
    managed = bench.small(case, _SLOW_FRAGMENTS * calls * features.SLOW_ROWS, _SLOW_FRAGMENTS)
    managed.declare(features.SLOW)
    for number in range(bench.plan.rounds + 1):
        for name, options in ((WITHOUT, {"batch_checkpoint_flush_interval_seconds": _NEVER}), (PENNON, {})):
            _calm()
            filled = managed.fill(features.SLOW, **options)
            if number:
                bench.add(case, name, filled)


def measure_one_fragment(bench: Bench, case: str) -> None:
    """Fill a column by a slow function, in a table of one fragment in turn with one of many."""
    rows = min(_LARGE_ROWS, bench.plan.rows)
    tables = {
        MANY: bench.small(f"{case}-many", rows, _FRAGMENTS),
        PENNON: bench.small(case, rows, 1),
    }
    for table in tables.values():
        table.declare(features.WANDER)
    for number in range(bench.plan.rounds + 1):
        for name, table in tables.items():
            _calm()
            filled = table.fill(features.WANDER)
            if number:
                bench.add(case, name, filled)


CASES: dict[str, Callable[[Bench, str], None]] = {
    "embedding": functools.partial(measure_against_loop, feature=features.EMBEDDING),
    "scalar": functools.partial(measure_against_loop, feature=features.SCALAR),
    "arrow": functools.partial(measure_against_loop, feature=features.ARROW),
    "1M-rows": functools.partial(measure_seconds, rows=1_000_000),
    "100k-rows": functools.partial(measure_seconds, rows=100_000),
    "checkpoints": measure_checkpoints,
    "one-fragment": measure_one_fragment,
    "1k-rows": functools.partial(measure_requests, new=False),
    "1k-rows-new": functools.partial(measure_requests, new=True),
}


def _calm() -> None:
    """Have what was written so far on the disk, so that its time is nobody's."""
    os.sync()
