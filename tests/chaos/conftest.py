"""Servers for the races and crashes. Starting one takes seconds, so tests share them and use names of their own."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.chaos.crashing import Mortal
from tests.chaos.fill_storm import TASKS
from tests.clients.lakes import Lake
from tests.support.server import PennonProcess
from tests.support.spark import WORKER

if TYPE_CHECKING:
    from tests.conftest import StartPennon
    from tests.support.s3 import S3Root, S3Server

#: Returns a running server that can be killed from within, by the kind of its catalog and storage.
FindMortal = Callable[[str], Mortal]
STORMY = {
    **WORKER,
    "PENNON_JOB_LEASE_SECONDS": "4",
    "PENNON_CHECKPOINT_SECONDS": "0",
    "PENNON_SPARK_MASTER": f"local[{TASKS},4]",
}
SQLITE, POSTGRESQL, BUCKET = "sqlite", "postgresql", "postgresql and s3"


def database_arguments(request: pytest.FixtureRequest, kind: str) -> list[str]:
    """Return the arguments of a server on an empty catalog of a kind."""
    if kind == SQLITE:
        return []
    postgres = request.getfixturevalue("postgres_server")
    return ["--database", postgres.url(postgres.create_database())]


@pytest.fixture(scope="session")
def mortal(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FindMortal]:
    """Servers that die and live again, one of each kind that is asked for."""
    started: dict[str, Mortal] = {}

    def find(kind: str) -> Mortal:
        if kind not in started:
            arguments, s3 = database_arguments(request, kind), None
            if kind == BUCKET:
                s3 = request.getfixturevalue("s3_server")
                arguments += s3.create_root().arguments
            started[kind] = Mortal(tmp_path_factory.mktemp("mortal"), *arguments, s3=s3)
        server = started[kind].server
        if server._process is None or server.returncode is not None:
            server.start()  # for the first time, or because a test failed before it did
        return started[kind]

    yield find
    for each in started.values():
        each.close()


@pytest.fixture(scope="session", params=[SQLITE, POSTGRESQL])
def twins(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Lake]]:
    """Two servers on one catalog and one folder; the test runs once on each kind of catalog."""
    directory = tmp_path_factory.mktemp("twins")
    arguments = ["--processes", "1", *database_arguments(request, request.param)]
    with ExitStack() as stack:
        yield [Lake(stack.enter_context(PennonProcess(directory, *arguments))) for _ in range(2)]


@pytest.fixture(scope="session")
def stormy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A server with a worker, for all storms: starting Spark takes long."""
    with PennonProcess(tmp_path_factory.mktemp("stormy"), env=STORMY) as server:
        yield Lake(server)


@pytest.fixture
def s3_lake(s3_server: S3Server, s3_root: S3Root, start_pennon: StartPennon) -> Lake:
    """A server on object storage, with the embedded catalog."""
    return Lake(start_pennon("--processes", "1", *s3_root.arguments), s3_root.options, s3_server)


@pytest.fixture
def name() -> str:
    """A name that no other test has."""
    return f"t{secrets.token_hex(6)}"
