"""The result of a task of a refresh, as JSON.

Executors import this module: it imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

from pennon.pipeline.task_records import DataFileRecord, TaskCounters

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pennon.pipeline.refresh.fragments import FragmentWriter
    from pennon.pipeline.run_signals import RunSignals
    from pennon.pipeline.task_metrics import TaskMetrics

#: A task lists this many errors at most; all of them are counted.
MOST_ERRORS = 1000


class NewFragment(TypedDict):
    """A data file that is written, and not committed."""

    file: DataFileRecord
    rows: int


class SourceError(TypedDict):
    """An error of a function for one row of the source, or for one partition of it."""

    #: The first column that the function computes.
    column: str
    row: int | None
    partition: str | None
    error_type: str
    error_message: str
    attempt: int


class RefreshTaskResult(TypedDict):
    """What a task of a refresh has written."""

    fragments: list[NewFragment]
    counters: TaskCounters
    #: The source rows of those rows that the view may have had before; see ``counts.pack_ids``.
    known: str
    errors: list[SourceError]


def finish_task(
    writer: FragmentWriter,
    signals: RunSignals,
    metrics: TaskMetrics,
    known: Sequence[NDArray[np.int64]] = (),
    errors: Sequence[SourceError] = (),
) -> RefreshTaskResult:
    """Complete the files of a task, and return its result; raise RunStoppedError if the driver does not want it."""
    from pennon.pipeline.refresh.counts import pack_ids

    fragments = writer.close()
    signals.check()  # the driver would never find files that are written after its clean-up
    metrics.bytes_written = writer.bytes_written
    counters = metrics.counters()
    return {"fragments": fragments, "counters": counters, "known": pack_ids(known), "errors": list(errors)}
