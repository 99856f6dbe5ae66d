"""Maintenance beside storms of upserts and deletes: answers stay exact, no row is lost, and the table stays small."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.chaos.maintenance_storm import POLICY, Storm
from tests.support.server import PennonProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The most fragments of a table at rest: less than `max_small_fragments` in each tier and index segment, and full ones.
FRAGMENTS = 24


@pytest.fixture(scope="module")
def maintained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PennonProcess]:
    """A server with a worker that maintains tables often, without Spark."""
    with PennonProcess(tmp_path_factory.mktemp("maintained"), env=POLICY) as server:
        yield server


def test_answers_stay_exact_while_rows_are_replaced_and_deleted(maintained: PennonProcess) -> None:
    _run(maintained, seed=1, changes=40)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 7))
def test_answers_stay_exact_for_long(maintained: PennonProcess, seed: int) -> None:
    _run(maintained, seed=seed, changes=300)


def _run(server: PennonProcess, seed: int, changes: int) -> None:
    print(f"seed {seed}")
    storm = Storm(server, f"storm{seed}", seed)
    storm.run(changes)
    assert storm.check() == storm.model
    storm.settle(FRAGMENTS)
    assert storm.check() == storm.model
    assert storm.checks >= 5
