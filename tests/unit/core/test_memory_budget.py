"""A budget of memory that threads share: nobody holds more than there is, and nobody waits for ever."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from lance_namespace.errors import ThrottlingError

from pennon.core.memory_budget import MemoryBudget, Reservation


def test_the_only_one_gets_what_it_asks_for_and_others_wait_for_it() -> None:
    budget = MemoryBudget(100)
    got = threading.Event()

    def second() -> None:
        with Reservation(budget) as other:
            other.grow(60)
            got.set()

    with Reservation(budget) as first:
        first.grow(500)
        thread = threading.Thread(target=second)
        thread.start()
        assert not got.wait(0.1)
        first.shrink(40)
        assert got.wait(10)
    thread.join()
    assert budget.used == 0


def test_a_wait_that_would_never_end_is_refused() -> None:
    budget = MemoryBudget(100)
    first, second = Reservation(budget), Reservation(budget)
    first.grow(60)
    second.grow(40)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(first.grow, 10)
        while not budget._waiting_holders:
            pass
        with pytest.raises(ThrottlingError):
            second.grow(10)  # the first waits for it, and it would wait for the first
        second.shrink(0)
        waiting.result(10)
    first.shrink(0)
    assert budget.used == 0


def test_a_wait_ends_after_its_time() -> None:
    budget = MemoryBudget(100, wait_seconds=0.05)
    with Reservation(budget) as first, Reservation(budget) as second:
        first.grow(100)
        with pytest.raises(ThrottlingError, match="nothing was done"):
            second.grow(1)


def test_threads_that_grow_in_any_order_all_end_and_stay_within_it() -> None:
    budget = MemoryBudget(100)
    most = []

    def work(seed: int) -> None:
        random_sizes = random.Random(seed)  # noqa: S311
        for _ in range(100):
            with Reservation(budget) as mine:
                try:
                    for _ in range(3):
                        mine.grow(random_sizes.randint(0, 30))
                        most.append(budget.used)
                except ThrottlingError:
                    pass

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(work, seed) for seed in range(8)]:
            done.result(60)
    assert budget.used == 0
    assert max(most) <= 100
