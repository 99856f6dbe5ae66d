"""Turn the samples into rows, ratios and a verdict on the targets."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from dataclasses import asdict, dataclass
from importlib.metadata import version
from statistics import median
from typing import TYPE_CHECKING, Any

from operations import OPERATIONS
from servers import PEER, PENNON

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from load import Sample

TARGET_SIZE = 10_000
TARGET_CONNECTIONS = 16
BASE_SIZE = 100
UNSTEADY = 1.5  # runs of one cell that differ by more than this factor are marked
KEPT = 0.8  # of its rate with few tables a read has to keep with many

TARGETS = {
    "DescribeTable": 10.0,
    "TableExists": 10.0,
    "ListTables": 10.0,
    "ListAllTables": 100.0,
    "DeclareTable": 20.0,
    "CreateTableVersion": 1.5,
}


@dataclass(frozen=True)
class Key:
    """Which cell: an operation, a catalog size and a number of connections."""

    operation: str
    size: int
    connections: int


@dataclass(frozen=True)
class Figures:
    """The medians of a server's runs of one cell."""

    rate: float
    p50: float
    p99: float
    errors: int
    note: str
    at_most: bool  # nothing was answered in time: the rate is an upper bound
    rounds: list[float]  # the rate of each run

    @property
    def unsteady(self) -> bool:
        """Tell whether the runs differ so much that the machine must have been busy."""
        return max(self.rounds) > UNSTEADY * min(self.rounds)


@dataclass(frozen=True)
class Target:
    """A goal with what was measured for it; `measured` is None when this run cannot tell."""

    name: str
    goal: float
    measured: float | None
    doubtful: bool  # it rests on an unsteady cell

    @property
    def verdict(self) -> str:
        """Say whether the goal was reached."""
        if self.measured is None:
            return "not measured"
        return ("met" if self.measured >= self.goal else "not met") + (" ~" if self.doubtful else "")


Results = dict[Key, dict[str, list["Sample"]]]


def figures(samples: Sequence[Sample]) -> Figures:
    """Take the medians of the runs of one cell."""
    errors = sum(sample.errors for sample in samples)
    note = next((sample.note for sample in samples if sample.note), "")
    rate = median(sample.rate for sample in samples)
    silent = rate == 0 and not errors
    if silent:
        rate = 1 / max(sample.seconds for sample in samples)
    p50 = median(sample.p50 for sample in samples)
    p99 = median(sample.p99 for sample in samples)
    return Figures(rate, p50, p99, errors, note, silent, [sample.rate for sample in samples])


def ratio(cell: Mapping[str, Figures]) -> float | None:
    """Divide Pennon's rate by the peer's; None without two clean rates."""
    peer, pennon = cell.get(PEER), cell.get(PENNON)
    if peer is None or pennon is None or peer.errors or pennon.errors or not peer.rate:
        return None
    return pennon.rate / peer.rate


class Report:
    """All cells of a run, as a table for people or as JSON for programs."""

    def __init__(self, results: Results, notes: Sequence[str]) -> None:
        self._cells = {
            key: {name: figures(samples) for name, samples in servers.items() if samples}
            for key, servers in results.items()
        }
        self._notes = list(notes)

    def targets(self) -> list[Target]:
        """Judge the goals from the cells of this run."""
        found = []
        for name, goal in TARGETS.items():
            cell = self._cells.get(Key(name, TARGET_SIZE, TARGET_CONNECTIONS), {})
            doubtful = any(figure.unsteady for figure in cell.values())
            found.append(Target(f"{name}: Pennon / peer", goal, ratio(cell), doubtful))
        for operation in OPERATIONS:
            if not operation.grows:
                found.append(self._kept(operation.name))
        return found

    def _kept(self, name: str) -> Target:
        title = f"{name}: Pennon's rate / at {BASE_SIZE}"
        large = self._cells.get(Key(name, TARGET_SIZE, TARGET_CONNECTIONS), {}).get(PENNON)
        small = self._cells.get(Key(name, BASE_SIZE, TARGET_CONNECTIONS), {}).get(PENNON)
        if large is None or small is None or large.errors or small.errors or not small.rate:
            return Target(title, KEPT, None, False)
        return Target(title, KEPT, large.rate / small.rate, large.unsteady or small.unsteady)

    def as_document(self) -> dict[str, Any]:
        """Return the run as a JSON document."""
        cells = [
            {**asdict(key), "ratio": ratio(cell), **{name: asdict(found) for name, found in cell.items()}}
            for key, cell in self._cells.items()
        ]
        targets = [{**asdict(target), "verdict": target.verdict} for target in self.targets()]
        return {"machine": machine(), "cells": cells, "targets": targets, "notes": self._notes}

    def as_table(self) -> str:
        """Write the run as a table, the targets and the notes."""
        lines = [_HEAD, "-" * len(_HEAD)]
        lines += [_row(key, cell) for key, cell in self._cells.items()]
        lines += ["", f"Targets, at {TARGET_SIZE:,} tables and {TARGET_CONNECTIONS} connections:"]
        for target in self.targets():
            measured = "-" if target.measured is None else f"{target.measured:.2f}x"
            lines.append(f"  {target.name:<40} >= {target.goal:<5g} {measured:>10}  {target.verdict}")
        lines += ["", *self._errors(), *self._notes]
        lines += [f"{name}: {value}" for name, value in machine().items()]
        return "\n".join(lines)

    def _errors(self) -> list[str]:
        return [
            f"! {key.operation}, {key.size} tables, {key.connections} connections, {name}: "
            f"{found.errors} errors; {found.note}"
            for key, cell in self._cells.items()
            for name, found in cell.items()
            if found.errors
        ]


_HEAD = (
    f"{'operation':<19}{'tables':>7}{'conns':>6}{'peer/s':>11}{'Pennon/s':>11}{'ratio':>11}"
    f"{'peer p50/p99 ms':>20}{'Pennon p50/p99 ms':>20}"
)


def _row(key: Key, cell: Mapping[str, Figures]) -> str:
    peer, pennon = cell.get(PEER), cell.get(PENNON)
    found = ratio(cell)
    sign = ">" if peer is not None and peer.at_most else ""
    shown = "-" if found is None else f"{sign}{found:.2f}x"
    return (
        f"{key.operation:<19}{key.size:>7}{key.connections:>6}{_rate(peer):>11}{_rate(pennon):>11}{shown:>11}"
        f"{_latencies(peer):>20}{_latencies(pennon):>20}"
    )


def _rate(found: Figures | None) -> str:
    if found is None:
        return "-"
    mark = "!" if found.errors else "~" if found.unsteady else ""
    digits = 0 if found.rate >= 100 else 1 if found.rate >= 10 else 2
    return f"{'<' if found.at_most else ''}{found.rate:.{digits}f}{mark}"


def _latencies(found: Figures | None) -> str:
    if found is None or not found.p50:
        return "-"
    return f"{found.p50:.2f} / {found.p99:.1f}"


def machine() -> dict[str, Any]:
    """Describe where the run was made."""
    return {
        "system": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "load at the end": " ".join(f"{value:.1f}" for value in os.getloadavg()),
        "versions": f"Python {platform.python_version()}, pylance {version('pylance')}, {_wrk()}",
    }


def _wrk() -> str:
    """Name the version of wrk, which not all benchmarks need."""
    if shutil.which("wrk") is None:
        return "no wrk"
    shown = subprocess.run(["wrk", "-v"], capture_output=True, text=True, check=False).stdout
    return shown.split("[")[0].strip()
