"""How many rows a task reads, computes and checkpoints at a time.

Executors import this module: it imports nothing heavy.
"""

from __future__ import annotations

from dataclasses import dataclass

# None of these was measured on its own; the benchmarks of docs/explanation/performance.md ran with these values.
#: The rows of the first call.
_FIRST_ROWS = 8
#: A call that is too short has at most this many times more rows the next time.
_GROWTH = 8
#: No call is made shorter than this for the sake of checkpoints.
_SHORTEST_CALL_SECONDS = 0.05
#: No call that takes this long gets more rows.
_LONGEST_CALL_SECONDS = 10.0
#: A larger call is worth it when it computes this many times more rows a second.
_BETTER_SPEED = 1.25
#: The results of a call have at most this many bytes, about as much as a processor's cache holds.
_RESULT_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class BatchLimits:
    """Limits of what is read, computed and checkpointed at a time."""

    batch_rows: int = 32768
    batch_bytes: int = 32 * 1024 * 1024
    #: Results are checkpointed once computing them took this long, and they have at least the least rows.
    checkpoint_seconds: float = 0.1
    least_checkpoint_rows: int = 1
    most_checkpoint_rows: int = 1024 * 1024
    threads: int = 1


class BatchSizer:
    """Adapts the number of rows of a call to the speed of the function.

    A call should take about ``checkpoint_seconds``. A slower call gets more rows for as long as that increases the rows
    per second, because part of its cost does not depend on the rows.
    """

    def __init__(self, limits: BatchLimits, least: int, most: int) -> None:
        self._seconds = max(limits.checkpoint_seconds, _SHORTEST_CALL_SECONDS)
        self._bytes = min(limits.batch_bytes, _RESULT_BYTES)
        #: The rows that a call has at least, where there are as many.
        self.least = least
        self._most = most
        self.rows = max(least, min(_FIRST_ROWS, most))
        #: The last size that was given up for a larger one, and its rows per second.
        self._previous: tuple[int, float] = (self.rows, 0.0)

    def update(self, rows: int, seconds: float, size: int) -> None:
        """Adapt to a call: its rows, its seconds, and the bytes of its results."""
        if rows < self.rows:
            return  # the rest of a batch says little about a full call
        speed = rows / max(seconds, 1e-6)
        if seconds < self._seconds:
            wanted = min(int(speed * self._seconds), rows * _GROWTH)
        elif seconds < _LONGEST_CALL_SECONDS and speed > _BETTER_SPEED * self._previous[1]:
            self._previous, wanted = (rows, speed), 2 * rows
        else:
            wanted = min(rows, self._previous[0])
        fitting = rows * self._bytes // max(size, 1)
        self.rows = max(1, min(max(wanted, self.least), fitting, self._most))
