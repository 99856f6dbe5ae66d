"""A limit on the time of each call, also for code that cannot be interrupted.

On the main thread a timer's signal interrupts the call. A call that does not come back even so, or that runs on
another thread, can only be ended with its process; whoever started the process knows by ``HUNG_EXIT``.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

#: The exit code of a process that was ended because a call did not come back.
HUNG_EXIT = 124

_RING_AGAIN_SECONDS = 1.0  # for a call that swallowed the first ring, in a bare except or a __del__
_TIMER_ERROR_SECONDS = 0.001


class CallTimedOut(BaseException):
    """A call took too long. It is no Exception, so that the user's "except Exception" lets it pass."""


class Deadline:
    """A context in which calls are limited in time; without seconds they are not, and it costs nothing."""

    def __init__(self, seconds: float | None, grace: float) -> None:
        self.seconds = seconds
        self._grace = grace
        self._due: float | None = None  # of the call that is running
        self._interrupts = False

    def limit(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return the call with the limit on it."""
        seconds = self.seconds
        if seconds is None:
            return call

        def limited(*arguments: Any) -> Any:
            self._due = time.monotonic() + seconds
            try:
                try:
                    return call(*arguments)
                finally:
                    self._due = None
            except CallTimedOut:
                self._due = None  # the ring may have come just before the line above
                raise

        return limited

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Let time pass in a call that is not its own; it has all of its time again after that."""
        if self.seconds is None:
            yield
            return
        self._due = None
        try:
            yield
        finally:
            self._due = time.monotonic() + self.seconds

    def __enter__(self) -> Deadline:
        if self.seconds is None:
            return self
        self._interrupts = threading.current_thread() is threading.main_thread()
        if self._interrupts:
            self._entered = time.monotonic()
            self._outer_timer = signal.setitimer(signal.ITIMER_REAL, 0)
            self._outer_handler = signal.signal(signal.SIGALRM, self._ring)
            signal.setitimer(signal.ITIMER_REAL, self.seconds)
        self._over = threading.Event()
        self._watchdog = threading.Thread(target=self._watch, name="pennon-watchdog", daemon=True)
        self._watchdog.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.seconds is None:
            return
        self._over.set()
        self._watchdog.join()
        if self._interrupts:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._outer_handler)
            left, interval = self._outer_timer
            if left:
                signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - self._entered), 0.001), interval)

    def _ring(self, _number: int, _frame: FrameType | None) -> None:
        """Interrupt a call that is due, or ring again when it will be: calls themselves need not touch the timer."""
        wait = (self.seconds or 0) if self._due is None else self._due - time.monotonic()
        if self._due is None or wait > _TIMER_ERROR_SECONDS:
            signal.setitimer(signal.ITIMER_REAL, max(wait, _TIMER_ERROR_SECONDS))
            return
        signal.setitimer(signal.ITIMER_REAL, _RING_AGAIN_SECONDS)
        raise CallTimedOut

    def _watch(self) -> None:
        """End the process when a call is long overdue."""
        limit = (self.seconds or 0) + self._grace
        pause = min(limit / 4, 1.0)
        while True:
            # For code that never gives this thread a turn, faulthandler ends the process, with exit code 1.
            faulthandler.dump_traceback_later(limit + 2 * pause, exit=True, file=2)
            if self._over.wait(pause):
                break
            due = self._due
            if due is None or time.monotonic() < due:
                continue
            if time.monotonic() > due + self._grace:
                os.write(2, b"A function did not come back from a call; its process ends.\n")
                os._exit(HUNG_EXIT)
            if self._interrupts:
                # The timer's signal may have come to another thread, which does not wake the one that waits.
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)
        faulthandler.cancel_dump_traceback_later()
