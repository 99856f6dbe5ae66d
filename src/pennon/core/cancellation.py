"""Whether somebody still waits for the result of a request: set by the binding, read by work that takes long."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock


class Cancellation:
    """A request that can be cancelled, from any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._callbacks: list[Callable[[], None]] = []
        self._cancelled = False

    @property
    def is_cancelled(self) -> bool:
        """Whether nobody waits for the result any more."""
        return self._cancelled

    def cancel(self) -> None:
        """Cancel the request, and call what was registered for that."""
        with self._lock:
            self._cancelled = True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    @contextmanager
    def calling(self, callback: Callable[[], None]) -> Iterator[None]:
        """Call ``callback`` when the request is cancelled inside the block, or was before."""
        with self._lock:
            if not self._cancelled:
                self._callbacks.append(callback)
        if self._cancelled:
            callback()
        try:
            yield
        finally:
            with self._lock:
                if callback in self._callbacks:
                    self._callbacks.remove(callback)


_current: ContextVar[Cancellation | None] = ContextVar("cancellation", default=None)


def set_cancellation(cancellation: Cancellation) -> None:
    """Let work of this context see whether its request was cancelled."""
    _current.set(cancellation)


def current_cancellation() -> Cancellation:
    """Return the cancellation of the request at hand; one that never comes where there is none."""
    return _current.get() or Cancellation()
