"""Waiting for something to become true."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

SECONDS = 120.0

Found = TypeVar("Found")


def wait_until(condition: Callable[[], Found], what: str = "it was so", seconds: float = SECONDS) -> Found:
    """Wait until a condition holds and return what it found; after a generous time, fail by saying what did not come.

    Args:
        condition: Asked again and again.
        what: What is waited for, to be read after "in vain waited until".
        seconds: How long.
    """
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"in vain waited until {what}"
        time.sleep(0.02)
    return found
