"""The pauses between automatic maintenance jobs on a branch."""

from __future__ import annotations

from pennon.catalog.maintenance_state import MaintenanceState
from pennon.core.settings import load_settings
from pennon.maintenance.policy import resolve_policy
from pennon.maintenance.schedule import earliest_start

NOW = 1_000_000


def test_a_branch_that_is_behind_waits_only_for_the_shortest_pause() -> None:
    policy = resolve_policy(load_settings(), [])
    state = MaintenanceState("table", "", ended_at=NOW, duration=3000)
    assert earliest_start(state, policy, NOW) == NOW + 12_000
    assert earliest_start(state, policy, NOW, is_behind=True) == NOW + 1000
