"""Random operations while the server is killed at random moments: every acknowledged effect is there at the end."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.chaos.storm import SHARED, Killer, Worker, check_versions
from tests.clients.lakes import ClientTable, Lake, rows
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.conftest import StartPennon

WORKERS = 4


def run_storm(lake: Lake, seed: int, *, steps: int, kills: int, whole: bool) -> None:
    """Let clients work while the server dies again and again, then compare the tables with their responses."""
    chance = random.Random(seed)  # noqa: S311 (a test that can be repeated)
    killer = Killer(lake.server, seed)
    workers = [Worker(number, lake, killer, seed * 1000 + number) for number in range(WORKERS)]
    ClientTable(lake, workers[0].client, SHARED).write(rows(0), "create")
    for worker in workers:
        worker.start()
    moments = sorted(chance.sample(range(2, WORKERS * steps - 5), kills))
    over = threading.Event()

    def kill_repeatedly() -> None:
        for moment in moments:
            wait_until(lambda: over.is_set() or sum(worker.done for worker in workers) >= moment, "work is done")  # noqa: B023
            killer.kill(whole=whole)  # also when the work was faster: what is there must outlast it

    def work(worker: Worker) -> None:
        for _ in range(steps):
            worker.step()

    with ThreadPoolExecutor(WORKERS + 1) as threads:
        storm = threads.submit(kill_repeatedly)
        working = [threads.submit(work, worker) for worker in workers]
        try:
            for each in working:
                each.result()
        finally:
            over.set()
        storm.result()
    assert killer.kill_count == kills
    for worker in workers:
        worker.check()
    shared = ClientTable(lake, workers[0].client, SHARED)
    assert workers[0].contents(SHARED) == set().union(*(worker.shared for worker in workers))
    check_versions(shared)
    for worker in workers:
        worker.http.close()


def storm_on(start_pennon: StartPennon, seed: int, *, steps: int, kills: int) -> None:
    """Kill the whole server with even seeds, and one of its two processes with odd ones."""
    whole = seed % 2 == 0
    lake = Lake(start_pennon("--processes", "1" if whole else "2"))
    run_storm(lake, seed, steps=steps, kills=kills, whole=whole)


@pytest.mark.parametrize("seed", range(3))
def test_what_was_acknowledged_survives(start_pennon: StartPennon, seed: int) -> None:
    storm_on(start_pennon, seed, steps=25, kills=3)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(100, 150))
def test_what_was_acknowledged_survives_for_long(start_pennon: StartPennon, seed: int) -> None:
    storm_on(start_pennon, seed, steps=60, kills=8)
