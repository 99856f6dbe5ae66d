"""Long waits of a driver that end as soon as its job is to stop.

This is the driver's side alone, inside one process; ``run_signals`` carries a stop on to the tasks.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")
#: Raises when the wait is to be cancelled.
Check = Callable[[], None]

#: Not measured: a cancelled job leaves a wait within this time.
_CHECK_SECONDS = 0.1
#: How long to wait for cancelled work to end; after that it is abandoned.
_CANCEL_SECONDS = 10.0


def never() -> None:
    """Never cancel."""


def run_cancellable(
    work: Callable[[], T], check: Check, cancel: Callable[[], object] | None = None, seconds: float = math.inf
) -> Future[T]:
    """Run work in a thread, and return its outcome: a result, the error it raised, or a TimeoutError.

    Args:
        work: What may take long.
        check: Called while the work runs; what it raises is raised here.
        cancel: Makes the work end soon, after a timeout or when the check raises; without it, the work is abandoned.
        seconds: The timeout.
    """
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:  # noqa: BLE001 (raised again by the future)
            outcome.set_exception(error)

    thread = threading.Thread(target=run, name="pennon-cancellable", daemon=True)
    end = time.monotonic() + seconds
    thread.start()
    try:
        while thread.is_alive() and time.monotonic() < end:
            thread.join(min(_CHECK_SECONDS, max(end - time.monotonic(), 0.0)))
            check()
    finally:
        is_late = thread.is_alive()
        if is_late and cancel is not None:
            cancel()
            thread.join(_CANCEL_SECONDS)
    if is_late:
        outcome = Future()
        outcome.set_exception(TimeoutError(f"It did not answer within {seconds:g} s."))
    return outcome


@contextmanager
def acquire(lock: threading.Lock, check: Check) -> Iterator[None]:
    """Hold a lock that others may hold for long."""
    while not lock.acquire(timeout=_CHECK_SECONDS):
        check()
    try:
        yield
    finally:
        lock.release()
