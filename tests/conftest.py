"""Fixtures that every test may ask for: real servers on free ports of the loopback address."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest
from scripts.postgres_binaries import find_postgres

from tests.support.components import unavailable
from tests.support.postgres import PostgresServer
from tests.support.rest import RestClient
from tests.support.s3 import S3Root, S3Server
from tests.support.server import PennonProcess

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CHAOS = Path(__file__).parent / "chaos"


class StartPennon(Protocol):
    """Start a server on a folder, by default a fresh one, with more arguments and environment variables."""

    def __call__(
        self, *arguments: str, directory: Path | None = None, env: Mapping[str, str] | None = None
    ) -> PennonProcess: ...


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "chaos: a test in tests/chaos; marked by where it is")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(CHAOS):
            item.add_marker("chaos")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server for all tests of a worker."""
    binaries = find_postgres()
    if binaries is None:
        unavailable("PostgreSQL")
    with PostgresServer(binaries) as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of an empty PostgreSQL database."""
    name = postgres_server.create_database()
    yield postgres_server.url(name)
    postgres_server.drop_database(name)


@pytest.fixture(params=["sqlite", "postgresql"])
def catalog_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database for a catalog; the test runs once on each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'catalog.db'}"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """An S3 server for all tests of a worker."""
    with S3Server() as server:
        yield server


@pytest.fixture
def s3_root(s3_server: S3Server) -> Iterator[S3Root]:
    """A place in an empty bucket: its ``url``, and the storage ``options`` to reach it."""
    root = s3_server.create_root()
    yield root
    s3_server.remove_root(root)


@pytest.fixture(scope="session")
def pennon_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PennonProcess]:
    """A Pennon for all tests of a worker: each must use names of its own in it."""
    with PennonProcess(tmp_path_factory.mktemp("pennon")) as server:
        yield server


@pytest.fixture
def http(pennon_server: PennonProcess) -> Iterator[RestClient]:
    """A client of the shared Pennon."""
    with RestClient(pennon_server.url) as client:
        yield client


@pytest.fixture
def start_pennon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartPennon]:
    """A function that starts servers; all are stopped when the test ends."""
    started: list[PennonProcess] = []

    def start(*arguments: str, directory: Path | None = None, env: Mapping[str, str] | None = None) -> PennonProcess:
        server = PennonProcess(directory or tmp_path_factory.mktemp("pennon"), *arguments, env=env)
        started.append(server)
        return server.start()

    yield start
    _close_all(started)


def _close_all(servers: list[PennonProcess]) -> None:
    """Close every server, even when one of them does not stop as it should, and then say so."""
    errors: list[Exception] = []
    for server in servers:
        try:
            server.close()
        except Exception as error:
            errors.append(error)
    if errors:
        raise ExceptionGroup("servers that did not stop", errors)
