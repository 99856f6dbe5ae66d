"""Sparks beside the one that most tests share: starting one takes long, so these are shared, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.clients.lakes import Lake
from tests.support.server import PennonProcess
from tests.support.spark import WORKER, ConnectServer, StandaloneCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.postgres import PostgresServer
    from tests.support.s3 import S3Server


@pytest.fixture(scope="session")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with StandaloneCluster(tmp_path_factory.mktemp("standalone")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def connect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    with ConnectServer(tmp_path_factory.mktemp("connect")) as server:
        yield server


@pytest.fixture(scope="session")
def distant_lake(
    postgres_server: PostgresServer, s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lake]:
    """A Pennon with a worker whose catalog is in PostgreSQL, and whose tables are on object storage."""
    root = s3_server.create_root()
    database = ("--database", postgres_server.url(postgres_server.create_database()))
    with PennonProcess(tmp_path_factory.mktemp("distant"), *database, *root.arguments, env=WORKER) as server:
        yield Lake(server, root.options, s3_server)
