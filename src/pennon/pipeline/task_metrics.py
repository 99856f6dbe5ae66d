"""Metrics of a task: rows, bytes, seconds and memory.

Executors import this module: it imports nothing heavy.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from pennon.core.process import peak_memory_bytes

if TYPE_CHECKING:
    import pyarrow as pa

    from pennon.pipeline.task_records import TaskCounters


@dataclass
class TaskMetrics:
    """What the work of a task amounts to."""

    rows_computed: int = 0
    rows_failed: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    read_seconds: float = 0.0
    udf_seconds: float = 0.0
    write_seconds: float = 0.0

    def counters(self) -> TaskCounters:
        """Return the metrics, with the peak of this process's memory."""
        return cast("TaskCounters", {**vars(self), "peak_memory_bytes": _peak_memory()})

    def measure_reads(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return batches, and measure the seconds and the bytes of reading them."""
        while True:
            began = time.perf_counter()
            batch = next(batches, None)
            self.read_seconds += time.perf_counter() - began
            if batch is None:
                return
            self.bytes_read += batch.nbytes
            yield batch


def reset_peak_memory() -> None:
    """Reset the peak of this process's memory, because Python workers outlive their tasks. Linux only."""
    with suppress(OSError), Path("/proc/self/clear_refs").open("w", encoding="ascii") as file:
        file.write("5")


def _peak_memory() -> int:
    """Return the peak of this process's memory, in bytes."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return peak_memory_bytes()
