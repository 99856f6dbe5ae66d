"""Work on the event loop: what must wait for a disk or a network refuses to run there, and is run on a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")

_state = threading.local()


class NeedsThreadError(Exception):
    """Work that runs on the event loop would have to wait; run it again on a thread."""


def run_inline(work: Callable[[], Result]) -> Result:
    """Run work on the event loop; raises ``NeedsThreadError`` if it would have to wait."""
    _state.inline = True
    try:
        return work()
    finally:
        _state.inline = False


def is_inline() -> bool:
    """Tell whether this is work on the event loop."""
    return getattr(_state, "inline", False)


def require_thread() -> None:
    """Raise ``NeedsThreadError`` on the event loop; called before anything that may wait."""
    if is_inline():
        raise NeedsThreadError
