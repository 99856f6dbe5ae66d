"""``python -m tests.chaos.faulty_server serve …``: the real server, with steps at which it dies as by ``kill -9``.

The steps are harmless until the file that ``FAULT_ARMED`` names is there. It holds a number and a step, such as
``1 before pennon.commits.authority:CommitAuthority.publish``: the number of times that step is reached in this life.
"""

from __future__ import annotations

import functools
import importlib
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.chaos.faults import FAULTS


class Fault:
    """Counts how often a step is reached once it is armed, and ends the process at the last."""

    def __init__(self, step: str, armed: Path) -> None:
        self._step = step
        self._armed = armed
        self._lock = threading.Lock()
        self._reached = 0

    def reach(self) -> None:
        """Come to the step."""
        with self._lock:
            if not self._armed.exists():
                return
            times, _, step = self._armed.read_text(encoding="utf-8").partition(" ")
            self._reached += step == self._step
            if self._reached == int(times):
                os.kill(os.getpid(), signal.SIGKILL)

    def install(self) -> None:
        """Put the step where its description says."""
        when, target = self._step.split()
        module, _, path = target.partition(":")
        *owners, name = path.split(".")
        owner: Any = importlib.import_module(module)
        for each in owners:
            owner = getattr(owner, each)
        setattr(owner, name, self._wrap(getattr(owner, name), when))

    def _wrap(self, original: Callable[..., Any], when: str) -> Callable[..., Any]:
        @functools.wraps(original)
        def step(*arguments: Any, **options: Any) -> Any:
            if when == "before":
                self.reach()
            result = original(*arguments, **options)
            if when == "after":
                self.reach()
            return result

        return step


def main() -> None:
    """Install the faults and be the ``pennon`` command."""
    from pennon.cli.main import main as pennon
    from pennon.tables import removal

    # What a process removes is its own for a while, even when it is dead; most tests need not wait for that.
    removal._LEASE_MILLIS = int(os.environ["FAULT_LEASE_MILLIS"])
    for step in FAULTS:
        Fault(step, Path(os.environ["FAULT_ARMED"])).install()
    pennon()


if __name__ == "__main__":
    main()
