"""The current time in milliseconds, the unit of the protocol."""

from __future__ import annotations

import time


def now_millis() -> int:
    """Return the time since the epoch in milliseconds."""
    return time.time_ns() // 1_000_000
