"""``python -m tests.chaos.cleanup_process FOLDER DATABASE STEP``: a cleanup that dies as by ``kill -9`` at a step.

Each write to storage or to the catalog is two steps, one before it and one after it. The process prints the number of
steps if it reaches the end.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pennon.storage.local import LocalFileIO
from tests.integration.catalog.cleanups import begin, policy, table_of
from tests.integration.catalog.lakes import Lake

if TYPE_CHECKING:
    from pennon.catalog import Database

#: The writes of a cleanup to storage.
STORAGE_WRITES = ("replace", "remove", "put_if_absent")


class Steps:
    """Counts steps, and ends the process at one."""

    def __init__(self, last: int) -> None:
        self.count = 0
        self._last = last

    def reach(self) -> None:
        self.count += 1
        if self.count == self._last:
            os.kill(os.getpid(), signal.SIGKILL)

    def wrap(self, owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def step(*arguments: Any, **options: Any) -> Any:
            self.reach()
            result = original(*arguments, **options)
            self.reach()
            return result

        setattr(owner, name, step)


def count_writes(database: Database, last: int) -> Steps:
    """Count the writes to storage and to the catalog from now on, and end the process at one."""
    steps = Steps(last)
    for name in STORAGE_WRITES:
        steps.wrap(LocalFileIO, name)
    steps.wrap(database, "write")
    return steps


def main() -> None:
    """Run the cleanup of table ``t``."""
    from pennon.maintenance import retention

    folder, database, last = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    lake = Lake(folder, database=database)
    held, table, rules = begin(lake, "t"), table_of(lake, "t"), policy(max_versions=2)
    steps = count_writes(lake.ns.services.database, last)
    retention.clean(lake.ns.services, held, table, "", rules)
    print(steps.count, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)  # nothing of it is closed in order


if __name__ == "__main__":
    main()
