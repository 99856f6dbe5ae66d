"""Tables on the shared server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.data.tables import DataTable, rows

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.rest import RestClient
    from tests.support.server import PennonProcess


@pytest.fixture
def new(http: RestClient) -> DataTable:
    """A table that does not exist yet."""
    return DataTable(http)


@pytest.fixture
def root(request: pytest.FixtureRequest, pennon_server: PennonProcess) -> Path:
    """The folder where others may put tables beside the server."""
    if request.config.getoption("--on-s3"):
        pytest.skip("the server has its tables elsewhere")
    return pennon_server.directory


@pytest.fixture
def table(new: DataTable) -> DataTable:
    """A table of a hundred rows."""
    return new.create(rows(100))
