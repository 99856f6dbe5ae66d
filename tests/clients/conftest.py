"""Servers for the clients: one on the embedded catalog and a folder, one on PostgreSQL and object storage."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import lance_namespace as ln
import pytest

from tests.clients.lakes import ClientTable, Lake
from tests.support.server import PennonProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.postgres import PostgresServer
    from tests.support.s3 import S3Server


@pytest.fixture(scope="session", params=["sqlite and a folder", "postgresql and s3"])
def lake(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A server for all tests of a worker; the test runs once on each pair of catalog and storage."""
    directory = tmp_path_factory.mktemp("lake")
    if request.param == "sqlite and a folder":
        with PennonProcess(directory) as server:
            yield Lake(server)
        return
    postgres: PostgresServer = request.getfixturevalue("postgres_server")
    s3: S3Server = request.getfixturevalue("s3_server")
    root = s3.create_root()
    database = postgres.url(postgres.create_database())
    with PennonProcess(directory, "--database", database, *root.arguments) as server:
        yield Lake(server, root.options, s3)


@pytest.fixture
def local_lake(pennon_server: PennonProcess) -> Lake:
    """The shared server on the embedded catalog and a folder."""
    return Lake(pennon_server)


@pytest.fixture
def client(lake: Lake) -> ln.LanceNamespace:
    """Pylance's client of the server."""
    return lake.connect()


@pytest.fixture
def space(client: ln.LanceNamespace) -> str:
    """A namespace that the test has for itself."""
    name = f"space_{secrets.token_hex(6)}"
    client.create_namespace(ln.CreateNamespaceRequest(id=[name]))
    return name


@pytest.fixture
def table(lake: Lake, client: ln.LanceNamespace, space: str) -> ClientTable:
    """A table that is not written yet."""
    return ClientTable(lake, client, space, "table")
