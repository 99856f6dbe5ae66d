"""A log of calls: functions write down the rows they are called with, wherever they run."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path

_TRIAL = "trial "


def note(path: str, *keys: int) -> None:
    """Write down, in one write, that rows are computed; runs on executors."""
    lines = "".join(f"{_trial()}{key}\n" for key in keys)
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, lines.encode())
    finally:
        os.close(descriptor)


def _trial() -> str:
    """Tell calls that only try whether the function works from those that compute."""
    # Importing Spark may take longer than a call may; where nobody has, no task runs in this very process.
    spark = sys.modules.get("pyspark")
    context = spark.TaskContext.get() if spark is not None else None
    group = context.getLocalProperty("spark.jobGroup.id") if context is not None else None
    return _TRIAL if group is not None and "preflight" in group else ""


class CallLog:
    """The calls so far."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._read = 0

    def counts(self) -> Counter[int]:
        """Return how often each row was computed."""
        return Counter(int(line) for line in self._lines() if not line.startswith(_TRIAL))

    def new(self) -> list[int]:
        """Return the rows that were computed since this was last asked, sorted."""
        lines = [line for line in self._lines() if not line.startswith(_TRIAL)]
        fresh, self._read = lines[self._read :], len(lines)
        return sorted(map(int, fresh))

    def trials(self) -> Counter[int]:
        """Return how often each row was computed only to try the function."""
        return Counter(int(line.removeprefix(_TRIAL)) for line in self._lines() if line.startswith(_TRIAL))

    def _lines(self) -> list[str]:
        path = Path(self.path)
        return path.read_text().splitlines() if path.exists() else []
