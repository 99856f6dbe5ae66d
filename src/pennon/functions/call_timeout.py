"""A time limit for each call, also for calls that cannot be interrupted.

On the main thread, a timer signal interrupts the call. A call that ignores the signal, or that runs on another thread,
can only be stopped by ending its process, which then exits with ``TIMEOUT_EXIT_CODE``.
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
from typing import ParamSpec, TypeVar

#: The exit code of a process that was ended because a call did not return.
TIMEOUT_EXIT_CODE = 124

_REPEAT_ALARM_SECONDS = 1.0  # for a call that swallowed the first alarm, in a bare except or a __del__
_TIMER_ERROR_SECONDS = 0.001

_P = ParamSpec("_P")
_T = TypeVar("_T")


class CallTimedOut(BaseException):
    """A call exceeded its time limit. Not an Exception, so that the user's ``except Exception`` does not catch it."""


class Deadline:
    """A context in which calls have a time limit; without ``seconds`` they have none, at no cost."""

    def __init__(self, seconds: float | None, grace: float) -> None:
        self.seconds = seconds
        self._grace = grace
        self._due: float | None = None  # when the running call must have returned
        self._can_interrupt = False

    def limit(self, call: Callable[_P, _T]) -> Callable[_P, _T]:
        """Return the call with the time limit applied."""
        seconds = self.seconds
        if seconds is None:
            return call

        def limited(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            self._due = time.monotonic() + seconds
            try:
                try:
                    return call(*args, **kwargs)
                finally:
                    self._due = None
            except CallTimedOut:
                self._due = None  # the alarm may have come just before the line above
                raise

        return limited

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Suspend the limit within a call, while it waits for Pennon; afterwards the call has its full time again."""
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
        self._can_interrupt = threading.current_thread() is threading.main_thread()
        if self._can_interrupt:
            self._entered = time.monotonic()
            self._outer_timer = signal.setitimer(signal.ITIMER_REAL, 0)
            self._outer_handler = signal.signal(signal.SIGALRM, self._on_alarm)
            signal.setitimer(signal.ITIMER_REAL, self.seconds)
        self._exited = threading.Event()
        self._watchdog = threading.Thread(target=self._watch, name="pennon-watchdog", daemon=True)
        self._watchdog.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.seconds is None:
            return
        self._exited.set()
        self._watchdog.join()
        if self._can_interrupt:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._outer_handler)
            left, interval = self._outer_timer
            if left:
                signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - self._entered), 0.001), interval)

    def _on_alarm(self, _number: int, _frame: FrameType | None) -> None:
        """Interrupt a call that is due, or set the timer to when it will be: calls do not touch the timer."""
        wait = (self.seconds or 0) if self._due is None else self._due - time.monotonic()
        if self._due is None or wait > _TIMER_ERROR_SECONDS:
            signal.setitimer(signal.ITIMER_REAL, max(wait, _TIMER_ERROR_SECONDS))
            return
        signal.setitimer(signal.ITIMER_REAL, _REPEAT_ALARM_SECONDS)
        raise CallTimedOut

    def _watch(self) -> None:
        """End the process when a call is overdue by more than the grace period."""
        limit = (self.seconds or 0) + self._grace
        pause = min(limit / 4, 1.0)
        while True:
            # Code that never releases the GIL stops this thread, too; then faulthandler ends the process (exit code 1).
            faulthandler.dump_traceback_later(limit + 2 * pause, exit=True, file=2)
            if self._exited.wait(pause):
                break
            due = self._due
            if due is None or time.monotonic() < due:
                continue
            if time.monotonic() > due + self._grace:
                os.write(2, b"A function call exceeded its timeout and cannot be interrupted; ending its process.\n")
                os._exit(TIMEOUT_EXIT_CODE)
            if self._can_interrupt:
                # The timer's signal may have been delivered to another thread, which does not wake the main thread.
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)
        faulthandler.cancel_dump_traceback_later()
