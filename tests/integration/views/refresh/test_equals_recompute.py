"""After any changes of a source, and wherever a worker dies, a refreshed view equals a rebuild."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.integration.views.refresh.faults import STEPS
from tests.integration.views.refresh.model import World
from tests.integration.views.refresh.refresh_harness import RefreshHarness

_names = itertools.count()
#: Examples take seconds: a failing one is not shrunk.
QUIETLY: Any = {
    "deadline": None,
    "suppress_health_check": list(HealthCheck),
    "database": None,
    "phases": [Phase.explicit, Phase.generate],
}

EVENTS = st.tuples(st.sampled_from(World.EVENTS), st.integers(0, 100))
ROUNDS = st.lists(
    st.tuples(st.lists(EVENTS, min_size=1, max_size=4), st.sampled_from(World.KINDS)), min_size=2, max_size=5
)


def play(harness: RefreshHarness, rounds: list[tuple[list[tuple[str, int]], str]]) -> None:
    world = World(harness, f"world{next(_names)}")
    world.refresh("query")
    for events, kind in rounds:
        for what, number in events:
            world.happen(what, number)
        world.refresh(kind)
    for kind in World.KINDS:
        world.refresh(kind)
    world.check_files()


@settings(max_examples=12, **QUIETLY)
@given(rounds=ROUNDS)
def test_views_equal_a_rebuild(harness: RefreshHarness, rounds: list[tuple[list[tuple[str, int]], str]]) -> None:
    play(harness, rounds)


@pytest.mark.long
@settings(max_examples=100, **QUIETLY)
@given(rounds=ROUNDS)
def test_views_equal_a_rebuild_in_many_cases(
    harness: RefreshHarness, rounds: list[tuple[list[tuple[str, int]], str]]
) -> None:
    play(harness, rounds)


@pytest.mark.parametrize("step", STEPS)
def test_death_at_any_step_loses_nothing_and_repeats_nothing(harness: RefreshHarness, step: str) -> None:
    world = World(harness, f"world{next(_names)}")
    for kind in ("query", "chunks", "totals"):
        world.refresh(kind)
    world.happen("append", 5)
    world.happen("update", 3)
    world.happen("delete", 1)
    for kind in ("query", "chunks", "totals"):
        world.refresh(kind, fault=step)
        assert world.refresh(kind)["mode"] == "no_op"
    assert world.deaths >= 2
    world.check_files()


@pytest.mark.parametrize(
    "events", [("update_columns",), ("update_unnamed_columns", "compact"), ("compact", "update_columns", "compact")]
)
def test_columns_written_in_place_are_followed_by_views_of_every_kind(
    harness: RefreshHarness, events: tuple[str, ...]
) -> None:
    world = World(harness, f"world{next(_names)}")
    world.happen("append", 6)
    for kind in World.KINDS:
        world.refresh(kind)
    for what in events:
        world.happen(what, 2)
    for kind in World.KINDS:
        assert world.refresh(kind)["mode"] != "no_op"
