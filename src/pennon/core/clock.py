"""The time, in the one unit the protocol uses."""

from __future__ import annotations

import time


def now_millis() -> int:
    """Return the time since the epoch in milliseconds."""
    return time.time_ns() // 1_000_000
