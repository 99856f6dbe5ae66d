"""Connections of Pennon's client to the shared server, and a table with a hundred rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import pennon
from tests.clients.remote.data import new_name, rows

if TYPE_CHECKING:
    from pennon.client import Connection, Table
    from tests.support.server import PennonProcess


@pytest.fixture
def db(pennon_server: PennonProcess) -> Connection:
    """A connection to the shared server."""
    return pennon.connect(pennon_server.url)


@pytest.fixture
def table(db: Connection) -> Table:
    """A table of a hundred rows."""
    return db.create_table(new_name(), rows(100))
