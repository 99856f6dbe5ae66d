"""Queues and servers of the test's own, on SQLite and on PostgreSQL."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.integration.jobs.queue_fixture import QueueFixture
from tests.integration.jobs.servers import ALONE, JobServer
from tests.support.server import PennonProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import StartPennon
    from tests.support.postgres import PostgresServer


@pytest.fixture
def queue_fixture(catalog_url: str) -> Iterator[QueueFixture]:
    """An empty queue."""
    opened = QueueFixture(catalog_url)
    yield opened
    opened.close()


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobServer]:
    """A running server on either database, and the queue in its catalog; the tests of a module share it."""
    directory = tmp_path_factory.mktemp("pennon")
    database = f"sqlite:///{directory / 'catalog.db'}"
    if request.param == "postgresql":
        postgres: PostgresServer = request.getfixturevalue("postgres_server")
        database = postgres.url(postgres.create_database())
    with (
        PennonProcess(directory, "--database", database, *ALONE) as process,
        closing(JobServer(process, database)) as opened,
    ):
        yield opened


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobServer]:
    """A running server on the embedded database, and the queue in its catalog; the tests of a module share it."""
    with PennonProcess(tmp_path_factory.mktemp("pennon"), *ALONE) as process, closing(JobServer(process)) as opened:
        yield opened


@pytest.fixture
def guarded(catalog_url: str, start_pennon: StartPennon) -> Iterator[JobServer]:
    """A running server of the test's own, on either database, to make keys for."""
    with closing(JobServer(start_pennon("--database", catalog_url, *ALONE), catalog_url)) as opened:
        yield opened
