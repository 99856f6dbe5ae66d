"""Options of a rewrite: what it holds in memory depends on the largest rows."""

from __future__ import annotations

from pennon.maintenance.compaction import _options
from pennon.maintenance.policy import MaintenancePolicy
from pennon.maintenance.tiers import FragmentSize

MEGABYTE = 1024 * 1024


def test_large_rows_beside_many_small_ones_decide_how_many_are_read() -> None:
    small, large = FragmentSize(0, 1_000_000, 0, 10 * MEGABYTE), FragmentSize(1, 10, 0, 10 * MEGABYTE)
    assert _options([small], MaintenancePolicy(), 10)["batch_size"] == 8192
    options = _options([small, large], MaintenancePolicy(), 10)
    assert options["batch_size"] == 8
    assert options["compaction_mode"] == "TryBinaryCopy"
