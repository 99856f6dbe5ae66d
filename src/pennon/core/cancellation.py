"""Cancellation of requests: set by the server when a client disconnects, read by long work."""

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
        """Whether the request was cancelled."""
        return self._cancelled

    def cancel(self) -> None:
        """Cancel the request, and call the registered callbacks."""
        with self._lock:
            self._cancelled = True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    @contextmanager
    def on_cancel(self, callback: Callable[[], None]) -> Iterator[None]:
        """Call ``callback`` if the request is cancelled before or inside the block."""
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
    """Set the cancellation of the current request."""
    _current.set(cancellation)


def current_cancellation() -> Cancellation:
    """Return the cancellation of the current request; outside a request, one that is never cancelled."""
    return _current.get() or Cancellation()
