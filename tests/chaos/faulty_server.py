"""``python -m tests.chaos.faulty_server serve …``: the real server, and a step at which it dies as by ``kill -9``.

The variable ``FAULT`` names the step, such as ``before pennon.lake.authority:CommitAuthority.publish``. It is harmless
until the file that ``FAULT_ARMED`` names is there; the number in it tells at which time the step is the last.
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


class Fault:
    """Counts the times a step is reached once it is armed, and ends the process at the last."""

    def __init__(self, armed: Path) -> None:
        self._armed = armed
        self._lock = threading.Lock()
        self._reached = 0

    def reach(self) -> None:
        """Come to the step."""
        with self._lock:
            if not self._armed.exists():
                return
            self._reached += 1
            if self._reached == int(self._armed.read_text(encoding="utf-8")):
                os.kill(os.getpid(), signal.SIGKILL)


def wrap(original: Callable[..., Any], fault: Fault, when: str) -> Callable[..., Any]:
    """Return a function that comes to the step before or after it does what the original does."""

    @functools.wraps(original)
    def step(*arguments: Any, **options: Any) -> Any:
        if when == "before":
            fault.reach()
        result = original(*arguments, **options)
        if when == "after":
            fault.reach()
        return result

    return step


def install(description: str, fault: Fault) -> None:
    """Put the step where it is described to be."""
    when, target = description.split()
    module, _, path = target.partition(":")
    *owners, name = path.split(".")
    owner: Any = importlib.import_module(module)
    for each in owners:
        owner = getattr(owner, each)
    setattr(owner, name, wrap(getattr(owner, name), fault, when))


def main() -> None:
    """Install the fault and be the ``pennon`` command."""
    from pennon.cli.main import main as pennon
    from pennon.lake import removal

    # What a process removes is its own for a while, even when it is dead; most tests need not wait for that.
    removal._LEASE_MILLIS = int(os.environ.get("FAULT_LEASE_MILLIS", "0"))
    install(os.environ["FAULT"], Fault(Path(os.environ["FAULT_ARMED"])))
    pennon()


if __name__ == "__main__":
    main()
