"""Sparks for all tests of this folder: local, a standalone cluster of two workers, and a Connect server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pennon.core.settings import load_settings
from pennon.pipeline.cluster.session import Sessions
from tests.support.spark import QUICK_DRIVER, STANDALONE, ConnectServer, StandaloneCluster

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="package")
def sessions(standalone: StandaloneCluster, connect_server: ConnectServer) -> Iterator[Sessions]:
    """Warm sessions on all clusters, each opened by the first test that uses it."""
    clusters = {
        "standalone": {"master": standalone.url, "conf": STANDALONE},
        "connect": {"remote": connect_server.url},
    }
    opened = Sessions(load_settings(spark_master="local[2,4]", spark_conf=QUICK_DRIVER, clusters=clusters))
    yield opened
    opened.close()
