"""A harness for the tests of a module, each of which has tables of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pennon.namespace.namespace import PennonNamespace
from tests.integration.maintenance.maintenance_harness import MaintenanceHarness

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MaintenanceHarness]:
    """Pennon in this process."""
    with_worker = PennonNamespace(directory=str(tmp_path_factory.mktemp("maintenance")), job_lease_seconds=2)
    yield MaintenanceHarness(with_worker)
    with_worker.close()
