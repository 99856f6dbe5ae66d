"""Sparks for all tests of this folder: local, a standalone cluster of two workers, and a Connect server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pennon.core.settings import load_settings
from pennon.pipeline.session import Sessions
from tests.support.spark import QUICK_JAVA, ConnectServer, StandaloneCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
QUICK_DRIVER = {"spark.driver.extraJavaOptions": QUICK_JAVA}
#: A cluster decides which Python runs its tasks; this one has Pennon installed.
STANDALONE = {
    **QUICK_DRIVER,
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.executor.extraJavaOptions": QUICK_JAVA,
    "spark.executor.memory": "512m",
    "spark.pyspark.python": sys.executable,
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            # One process runs them all: a second one would start all these Sparks again.
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with StandaloneCluster(tmp_path_factory.mktemp("standalone")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def connect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    with ConnectServer(tmp_path_factory.mktemp("connect")) as server:
        yield server


@pytest.fixture(scope="session")
def sessions(standalone: StandaloneCluster, connect_server: ConnectServer) -> Iterator[Sessions]:
    """Warm sessions on all clusters, each opened by the first test that uses it."""
    clusters = {
        "standalone": {"master": standalone.url, "conf": STANDALONE},
        "connect": {"remote": connect_server.url},
    }
    opened = Sessions(load_settings(spark_master="local[2,4]", spark_conf=QUICK_DRIVER, clusters=clusters))
    yield opened
    opened.close()
