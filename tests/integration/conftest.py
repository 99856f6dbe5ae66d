"""A server with a worker whose Spark is warm, and Sparks beside that one, shared by all tests that need them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.server import PennonProcess
from tests.support.spark import WORKER, ConnectServer, StandaloneCluster

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def spark_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PennonProcess]:
    """A server with one worker; tests that use it are of the group "spark", so that one process starts it."""
    with PennonProcess(tmp_path_factory.mktemp("filled"), env=WORKER) as server:
        yield server


@pytest.fixture(scope="session")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with StandaloneCluster(tmp_path_factory.mktemp("standalone")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def connect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    with ConnectServer(tmp_path_factory.mktemp("connect")) as server:
        yield server
