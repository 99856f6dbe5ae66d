"""How long an operation takes on the event loop, which it must not block."""

from __future__ import annotations

import time

#: Limit of the EWMA (weight 0.1) of inline latency; above it, the operation uses the thread pool for 10 s. One sample
#: counts for at most four times the limit, so that a single pause of the process does not exceed it.
_LIMIT_SECONDS = 0.005
_PAUSE_SECONDS = 10.0
_WEIGHT = 0.1
_MAX_SAMPLE = 4 * _LIMIT_SECONDS


class InlineLatency:
    """The latency of one operation on the event loop, for example on a network file system that is slow now."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._paused_until = 0.0

    def is_low(self, now: float) -> bool:
        """Tell whether the operation may run on the event loop."""
        return now >= self._paused_until

    def add(self, started: float) -> None:
        """Add the latency of a request that was started at a time."""
        seconds = min(time.monotonic() - started, _MAX_SAMPLE)
        self._seconds += _WEIGHT * (seconds - self._seconds)
        if self._seconds > _LIMIT_SECONDS:
            self._seconds, self._paused_until = 0.0, started + _PAUSE_SECONDS
