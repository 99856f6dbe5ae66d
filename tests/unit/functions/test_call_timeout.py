"""Deadlines: calls end in time, and what cannot be ended ends its process."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from pennon.functions.call_timeout import TIMEOUT_EXIT_CODE, CallTimedOut, Deadline
from tests.support.coverage import environment_without_coverage

HANG = """
import ctypes, sys, threading, time
from pennon.functions.call_timeout import Deadline

def hang_in_c():
    mutex = ctypes.create_string_buffer(64)
    lock = ctypes.CDLL(None).pthread_mutex_lock
    lock(mutex), lock(mutex)

def hold_the_interpreter():
    mutex = ctypes.create_string_buffer(64)
    lock = ctypes.PyDLL(None).pthread_mutex_lock
    lock(mutex), lock(mutex)

def sleep():
    time.sleep(600)

def work():
    with Deadline(0.2, grace=0.3) as deadline:
        deadline.limit(globals()[sys.argv[1]])()

if sys.argv[2] == "main":
    work()
else:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
"""


@pytest.fixture(autouse=True)
def alarm_is_left_alone() -> Iterator[None]:
    """The timer and handler of the one around us, pytest's own, are as they were."""
    handler = signal.getsignal(signal.SIGALRM)
    left, interval = signal.getitimer(signal.ITIMER_REAL)
    yield
    assert signal.getsignal(signal.SIGALRM) is handler
    assert bool(signal.getitimer(signal.ITIMER_REAL)[0]) == bool(left)
    assert signal.getitimer(signal.ITIMER_REAL)[1] == interval


def test_a_call_that_takes_too_long_is_interrupted() -> None:
    with Deadline(0.05, grace=60) as deadline, pytest.raises(CallTimedOut):
        deadline.limit(time.sleep)(60)


def test_each_call_has_the_whole_time() -> None:
    with Deadline(1.5, grace=60) as deadline:
        limited = deadline.limit(time.sleep)
        for _ in range(4):
            limited(0.5)
        time.sleep(2)  # what is no call is not limited
        with pytest.raises(CallTimedOut):
            limited(60)
        limited(0.01)


def test_a_call_that_swallows_the_first_interrupt_gets_another() -> None:
    def deaf() -> None:
        try:
            time.sleep(60)
        except BaseException:
            time.sleep(60)

    with Deadline(0.05, grace=60) as deadline, pytest.raises(CallTimedOut):
        deadline.limit(deaf)()


def test_a_call_is_interrupted_even_if_the_first_interrupt_was_lost() -> None:
    def lose_the_ring() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        time.sleep(60)

    with Deadline(0.05, grace=60) as deadline, pytest.raises(CallTimedOut):
        deadline.limit(lose_the_ring)()


def test_without_a_limit_nothing_is_wrapped() -> None:
    with Deadline(None, grace=1) as deadline:
        assert deadline.limit(len) is len


def test_an_outer_timer_still_rings() -> None:
    rings = []
    handler = signal.signal(signal.SIGALRM, lambda *_: rings.append(1))
    outer = signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with Deadline(5, grace=1) as deadline:
            deadline.limit(time.sleep)(0.3)
        until = time.monotonic() + 30
        while not rings and time.monotonic() < until:
            time.sleep(0.01)
        assert rings
    finally:
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, *outer)


@pytest.mark.parametrize(
    ("call", "thread", "code"),
    [
        ("hang_in_c", "main", TIMEOUT_EXIT_CODE),
        ("sleep", "other", TIMEOUT_EXIT_CODE),
        ("hold_the_interpreter", "main", 1),
    ],
)
def test_a_call_that_does_not_come_back_ends_its_process(call: str, thread: str, code: int) -> None:
    command, environment = [sys.executable, "-c", HANG, call, thread], environment_without_coverage()
    ended = subprocess.run(command, capture_output=True, timeout=60, env=environment)
    assert ended.returncode == code, ended.stderr
