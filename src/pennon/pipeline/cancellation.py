"""Waiting for what may take long, for as long as somebody wants it."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")
#: Raises when nobody wants any more what is waited for.
Check = Callable[[], None]

_CHECK_SECONDS = 0.1
#: Time that work has to end after it was given up; what takes longer is left to itself.
_END_SECONDS = 10.0


def always() -> None:
    """Want it, however long it takes."""


def attend(
    work: Callable[[], T], check: Check, give_up: Callable[[], object] | None = None, seconds: float = math.inf
) -> Future[T]:
    """Do work in a thread, and return what came of it: its result, what it raised, or that its time was over.

    Args:
        work: What may take long.
        check: What it raises is raised here.
        give_up: Makes the work end soon, when its time is over or the check raises; without it, it is left to itself.
        seconds: The time that the work has.
    """
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:  # noqa: BLE001 (it is raised where the result is asked for)
            outcome.set_exception(error)

    thread = threading.Thread(target=run, name="pennon-patience", daemon=True)
    end = time.monotonic() + seconds
    thread.start()
    try:
        while thread.is_alive() and time.monotonic() < end:
            thread.join(min(_CHECK_SECONDS, max(end - time.monotonic(), 0.0)))
            check()
    finally:
        is_late = thread.is_alive()
        if is_late and give_up is not None:
            give_up()
            thread.join(_END_SECONDS)
    if is_late:
        outcome = Future()
        outcome.set_exception(TimeoutError(f"It did not answer within {seconds:g} s."))
    return outcome


@contextmanager
def taken(lock: threading.Lock, check: Check) -> Iterator[None]:
    """Hold a lock that others may hold for long."""
    while not lock.acquire(timeout=_CHECK_SECONDS):
        check()
    try:
        yield
    finally:
        lock.release()
