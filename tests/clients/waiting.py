"""Waiting for something to become true."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

SECONDS = 120.0


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Wait until a condition holds; after a generous time, fail by saying what did not come true."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"in vain waited until {what}"
        time.sleep(0.02)
