"""Turn what was measured into rows, ratios and a verdict on the goals."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING

from report import UNSTEADY, machine
from servers import PEER, PENNON

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LOCAL = "local"  # pylance in this process, without any server

Rounds = list[dict[str, float]]  # what each round gave, by metric


@dataclass(frozen=True)
class Goal:
    """A bound for one metric: of Pennon alone, or of Pennon's divided by another's."""

    case: str
    metric: str
    bound: float
    against: str = ""
    at_least: bool = False

    def describe(self) -> str:
        """Say what is compared."""
        what = f"{self.metric} / {self.against}'s" if self.against else self.metric
        return f"{self.case}: {what} {'>=' if self.at_least else '<='} {self.bound:.3g}"


GOALS = (
    Goal("insert-1-row", "rate", 5.0, PEER, at_least=True),
    Goal("insert-1-row", "p99 ms", 1 / 3, PEER),
    Goal("insert-16-tables", "rate", 2.0, PEER, at_least=True),
    Goal("insert-1-client", "rate", 2.0, PEER, at_least=True),
    Goal("insert-stream", "MB/s", 0.5, LOCAL, at_least=True),
    Goal("insert-stream", "RSS +MB", 300.0),
    Goal("query-1GB", "MB/s", 2.0, PEER, at_least=True),
    Goal("query-1GB", "first %", 10.0),
    Goal("query-1GB", "RSS +MB", 300.0),
    Goal("query-16x100MB", "MB/s", 1.0, PEER, at_least=True),
    Goal("query-16x100MB", "RSS +MB", 500.0),
    *(
        Goal(f"{case} c={connections}", "rate", bound, PEER, at_least=True)
        for case, bound in (("vector-flat", 1.0), ("vector-ivfpq", 1.0), ("scan", 1.5))
        for connections in (1, 16)
    ),
    Goal("upsert", "p50 ms", 1.5, LOCAL),
)


class Findings:
    """What was measured: by case, by server, round after round."""

    def __init__(self, goals: Sequence[Goal] | None = None, metrics: Mapping[str, str] | None = None) -> None:
        """Begin with nothing; the goals and the metrics are those of the data parts unless others are given."""
        self._goals = GOALS if goals is None else goals
        self._metrics = _METRICS if metrics is None else metrics
        self._cases: dict[str, dict[str, Rounds]] = {}
        self.notes: list[str] = []

    def add(self, case: str, name: str, **values: float | None) -> None:
        """Keep the values of one round; a value that could not be measured is None."""
        known = {self._metrics[key]: value for key, value in values.items() if value is not None}
        self._cases.setdefault(case, {}).setdefault(name, []).append(known)

    def note(self, text: str) -> None:
        """Keep a remark, once."""
        if text not in self.notes:
            self.notes.append(text)

    def ratio(self, case: str, metric: str, against: str) -> float | None:
        """Divide Pennon's value by another's, round by round, and take the median."""
        ours, theirs = (self._cases.get(case, {}).get(name, []) for name in (PENNON, against))
        pairs = [(a[metric], b[metric]) for a, b in zip(ours, theirs, strict=False) if metric in a and b.get(metric)]
        return median(a / b for a, b in pairs) if pairs else None

    def measured(self, goal: Goal) -> float | None:
        """Return the value to be judged; None when this run cannot tell."""
        if goal.against:
            return self.ratio(goal.case, goal.metric, goal.against)
        return _overall(self._cases.get(goal.case, {}).get(PENNON, []), goal.metric)

    def verdict(self, goal: Goal) -> str:
        """Say whether a goal was reached."""
        value = self.measured(goal)
        if value is None:
            return "not measured"
        return "met" if (value >= goal.bound if goal.at_least else value <= goal.bound) else "not met"

    def as_json(self) -> str:
        """Write the run as JSON."""
        goals = [
            {**asdict(goal), "measured": self.measured(goal), "verdict": self.verdict(goal)} for goal in self._goals
        ]
        document = {"machine": machine(), "cases": self._cases, "goals": goals, "notes": self.notes}
        return json.dumps(document, indent=2)

    def as_table(self) -> str:
        """Write the run as a table, the goals and the notes."""
        head = f"{'case':<22}{'who':<8}" + "".join(f"{metric:>11}" for metric in self._metrics.values())
        lines = [head, "-" * len(head)]
        for case, servers in self._cases.items():
            lines += [self._row(case, name, rounds) for name, rounds in servers.items()]
        lines += ["", "Goals, with Pennon's value or ratio:"]
        for goal in self._goals:
            value = self.measured(goal)
            shown = "-" if value is None else f"{value:.2f}"
            lines.append(f"  {goal.describe():<46}{shown:>10}  {self.verdict(goal)}")
        lines += ["", *self.notes]
        lines += [f"{name}: {value}" for name, value in machine().items()]
        return "\n".join(lines)

    def _row(self, case: str, name: str, rounds: Rounds) -> str:
        cells = []
        for metric in self._metrics.values():
            value = _overall(rounds, metric)
            seen = [found[metric] for found in rounds if metric in found]
            wild = metric in _SPEEDS and seen and max(seen) > UNSTEADY * min(seen)
            cells.append("-" if value is None else f"{_shown(value)}{'~' if wild else ''}")
        return f"{case:<22}{name:<8}" + "".join(f"{cell:>11}" for cell in cells)


_METRICS = {
    "rate": "rate",
    "speed": "MB/s",
    "p50": "p50 ms",
    "p99": "p99 ms",
    "first": "first %",
    "growth": "RSS +MB",
    "work": "CPU ms",
}
_SPEEDS = {"rate", "MB/s", "seconds"}  # what tells how busy the machine was


def _shown(value: float) -> str:
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{digits}f}"


def _overall(rounds: Rounds, metric: str) -> float | None:
    """Take the median of the rounds; of memory the most."""
    values = [found[metric] for found in rounds if metric in found]
    if not values:
        return None
    return max(values) if metric == _METRICS["growth"] else median(values)
