"""Waiting for something to become true."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

SECONDS = 120.0

Found = TypeVar("Found")


def wait_until(
    condition: Callable[[], Found | None], what: str = "it did not come about", seconds: float = SECONDS
) -> Found:
    """Wait until a condition holds, and return what it found; fail after a generous time, and say what is missing."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.02)
    return found
