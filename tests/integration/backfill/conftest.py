"""Tables on the server with a worker, for all tests of this folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

import pennon
from tests.clients.lakes import Lake
from tests.integration.backfill.calls import CallLog
from tests.integration.backfill.sample_tables import SampleTable, new_name, rows
from tests.support.rest import RestClient

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.server import PennonProcess


class NewSample(Protocol):
    """Make a table with rows spread evenly over fragments, and its own log of calls."""

    def __call__(self, count: int = 30, fragments: int = 1, server: PennonProcess | None = None) -> SampleTable: ...


@pytest.fixture
def rest(spark_server: PennonProcess) -> Iterator[RestClient]:
    """A client for requests as they are on the wire."""
    with RestClient(spark_server.url) as client:
        yield client


@pytest.fixture
def log(tmp_path: Path) -> CallLog:
    """An empty log of calls."""
    return CallLog(tmp_path / "calls")


@pytest.fixture
def new_sample(request: pytest.FixtureRequest, log: CallLog) -> NewSample:
    """A function that makes tables."""

    def make(count: int = 30, fragments: int = 1, server: PennonProcess | None = None) -> SampleTable:
        running: PennonProcess = server or request.getfixturevalue("spark_server")
        db, lake = pennon.connect(running.url), Lake(running)
        name, size = new_name(), count // fragments
        db.create_table(name, rows(0, size))
        sample = SampleTable(db, lake, lake.connect(), log, name)
        for start in range(size, size * fragments, size):
            sample.add(start, start + size)
        return sample

    return make
