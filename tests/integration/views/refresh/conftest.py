"""One Spark for all tests of this folder, and a lab for each of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pennon.core.settings import load_settings
from pennon.namespace.namespace import PennonNamespace
from pennon.pipeline.cluster.session import Sessions
from tests.integration.backfill.calls import CallLog
from tests.integration.views.refresh.refresh_harness import RefreshHarness, open_lab
from tests.support.spark import QUICK_DRIVER

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="package")
def local_sessions() -> Iterator[Sessions]:
    """A warm Spark in this process, which can have one: it ends with this folder."""
    opened = Sessions(load_settings(spark_master="local[2,4]", spark_conf=QUICK_DRIVER))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def harness(local_sessions: Sessions, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RefreshHarness]:
    """A lab for the tests of a module; each test has its own tables."""
    folder = tmp_path_factory.mktemp("lab")
    namespace = PennonNamespace(directory=str(folder), job_lease_seconds=1)
    yield open_lab(namespace, local_sessions)
    namespace.close()


@pytest.fixture
def log(tmp_path: Path) -> CallLog:
    """An empty log of calls."""
    return CallLog(tmp_path / "calls")
