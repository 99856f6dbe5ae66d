"""The Python processes in which Spark runs tasks."""

from __future__ import annotations

import gc
import os

#: Set where a process serves one task after the other.
_REUSED = "SPARK_REUSE_WORKER"
_spared = False


def spare_collection() -> None:
    """Take what such a process has loaded out of the garbage collector, once.

    Spark runs it in full after every task and every plan, for 70 ms where PySpark and Lance are loaded.
    """
    global _spared  # noqa: PLW0603 (once a process)
    if not _spared and _REUSED in os.environ:
        _spared = True
        gc.collect()
        gc.freeze()
