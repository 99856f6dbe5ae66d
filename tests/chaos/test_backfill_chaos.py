"""Backfills while rows come, go and change and processes die: the end is that of a quiet run, without double work."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.chaos.fill_storm import BOLTS, forecast, run_storm

if TYPE_CHECKING:
    from pathlib import Path

    from tests.clients.lakes import Lake

#: Which of the short runs see a process die that takes Spark with it.
BOLTS_OF = {3: ("kill_worker",), 10: ("kill_java",)}


@pytest.mark.parametrize("seed", range(20))
def test_a_backfill_ends_as_without_faults(stormy: Lake, tmp_path: Path, seed: int) -> None:
    bolts = BOLTS_OF.get(seed, ())
    run_storm(stormy, forecast(seed, gusts=1 - len(bolts), bolts=bolts), tmp_path)


@pytest.mark.parametrize("seed", range(20, 26))
def test_a_backfill_of_one_fragment_ends_as_without_faults(stormy: Lake, tmp_path: Path, seed: int) -> None:
    run_storm(stormy, replace(forecast(seed, gusts=1, bolts=()), fragments=1, rows=600), tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 200))
def test_a_backfill_ends_as_without_faults_for_long(stormy: Lake, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 (a test that can be repeated)
    bolts = tuple(chance.choices(BOLTS, k=chance.choice([0, 0, 1, 2])))
    run_storm(stormy, forecast(seed, gusts=chance.randint(1, 3), bolts=bolts), tmp_path)
