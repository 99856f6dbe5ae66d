"""The Python processes in which Spark runs tasks."""

from __future__ import annotations

import gc

_spared = False


def spare_collection() -> None:
    """Take what a process has loaded out of the garbage collector, once.

    Spark runs it in full after every task and every plan, for 70 ms where PySpark and Lance are loaded.
    """
    global _spared  # noqa: PLW0603 (once a process)
    if not _spared:
        _spared = True
        gc.collect()
        gc.freeze()
