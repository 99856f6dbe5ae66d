"""Fixtures that every test may ask for: real servers on free ports of the loopback address."""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import hypothesis
import pytest

from tests.support.postgres import PostgresServer, running_postgres
from tests.support.rest import RestClient
from tests.support.s3 import S3Root, S3Server
from tests.support.server import PennonProcess
from tests.support.spark import WORKER
from tests.support.xdist_groups import GroupScheduling, order_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from xdist.remote import Producer

CHAOS = Path(__file__).parent / "chaos"

# Many container images turn bytecode files off. Then every test process rewrites the assertions of all tests, and every
# server compiles Pennon. Measured in CPU time: 24 s and 13 s to collect all tests, 1.5 s and 1.3 s to start a server.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell makes a program in the background ignore Ctrl-C, and the servers that it starts: those that a test interrupts
# would never end.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says nothing on a machine that runs other tests beside it.
hypothesis.settings.register_profile("pennon", deadline=None)
hypothesis.settings.load_profile("pennon")


class StartPennon(Protocol):
    """Start a server on a folder, by default a fresh one, with more arguments and environment variables."""

    def __call__(
        self, *arguments: str, directory: Path | None = None, env: Mapping[str, str] | None = None
    ) -> PennonProcess: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    said = "let the server that most tests share have its catalog in PostgreSQL, and its tables on object storage"
    parser.addoption("--on-s3", action="store_true", help=said)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "chaos: a test in tests/chaos; marked by where it is")
    for name in [name for name in os.environ if name.startswith("PENNON_")]:
        del os.environ[name]  # what the developer's own shell says of a Pennon is not for those under test


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: order_of(item.nodeid))
    for item in items:
        if item.path.is_relative_to(CHAOS):
            item.add_marker("chaos")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> GroupScheduling:
    return GroupScheduling(config, log)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server for all tests of a worker."""
    with running_postgres() as server:
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
def pennon_server(
    request: pytest.FixtureRequest, shared_root: S3Root | None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PennonProcess]:
    """A Pennon for all tests of a worker: each must use names of its own in it."""
    with PennonProcess(tmp_path_factory.mktemp("pennon"), *storage_root_with(shared_root, request)) as server:
        yield server


@pytest.fixture(scope="session")
def shared_root(request: pytest.FixtureRequest) -> S3Root | None:
    """Where the shared server has its tables; none when that is its folder."""
    return new_root(request)


def new_root(request: pytest.FixtureRequest) -> S3Root | None:
    """Return an empty place on object storage, if that is where tests are to run."""
    if not request.config.getoption("--on-s3"):
        return None
    s3: S3Server = request.getfixturevalue("s3_server")
    return s3.create_root()


def storage_root_with(root: S3Root | None, request: pytest.FixtureRequest) -> list[str]:
    """Return the arguments of a server whose tables are on object storage, and whose catalog is in PostgreSQL."""
    if root is None:
        return []
    postgres: PostgresServer = request.getfixturevalue("postgres_server")
    return ["--database", postgres.url(postgres.create_database()), *root.arguments]


@pytest.fixture(scope="session")
def spark_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PennonProcess]:
    """A Pennon with a worker whose Spark is warm; tests that use it are of one portion, so that it is started once."""
    with PennonProcess(tmp_path_factory.mktemp("filled"), env=WORKER) as server:
        yield server


@pytest.fixture(scope="session")
def silence() -> Iterator[int]:
    """A port where somebody listens and never says a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listening:
        yield listening.getsockname()[1]


@pytest.fixture
def http(pennon_server: PennonProcess) -> Iterator[RestClient]:
    """A client of the shared Pennon."""
    with RestClient(pennon_server.url) as client:
        yield client


@pytest.fixture
def start_pennon(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> StartPennon:
    """A function that starts servers; all are stopped when the test ends, before the fixtures that they may use."""

    def start(*arguments: str, directory: Path | None = None, env: Mapping[str, str] | None = None) -> PennonProcess:
        server = PennonProcess(directory or tmp_path_factory.mktemp("pennon"), *arguments, env=env)
        request.node.addfinalizer(server.close)
        return server.start()

    return start
