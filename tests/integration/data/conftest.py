"""Tables on the shared server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.data.tables import DataTable, rows

if TYPE_CHECKING:
    from tests.support.rest import RestClient


@pytest.fixture
def new(http: RestClient) -> DataTable:
    """A table that does not exist yet."""
    return DataTable(http)


@pytest.fixture
def table(new: DataTable) -> DataTable:
    """A table of a hundred rows."""
    return new.create(rows(100))
