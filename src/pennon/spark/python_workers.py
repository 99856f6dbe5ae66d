"""The Python worker processes in which Spark runs tasks."""

from __future__ import annotations

import gc
import os

#: Set if a process runs several tasks.
_REUSED = "SPARK_REUSE_WORKER"
_is_frozen = False


def freeze_garbage_collector() -> None:
    """Exclude loaded modules from garbage collection, once per process.

    Spark runs a full collection after every task and every plan; it takes 70 ms with PySpark and Lance loaded.
    """
    global _is_frozen  # noqa: PLW0603 (once a process)
    if not _is_frozen and _REUSED in os.environ:
        _is_frozen = True
        gc.collect()
        gc.freeze()
