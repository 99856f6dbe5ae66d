"""A running server, a connection to it, and a namespace of one's own on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.rest.samples import Home
from tests.integration.rest.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.server import PennonProcess


@pytest.fixture
def wire(pennon_server: PennonProcess) -> Iterator[Wire]:
    """A connection to the shared server; the folder's name may not be in what it says of errors."""
    opened = Wire(pennon_server.url, [str(pennon_server.directory), pennon_server.directory.name])
    yield opened
    opened.close()


@pytest.fixture
def home(wire: Wire, pennon_server: PennonProcess) -> Home:
    """An empty namespace of the test's own."""
    return Home(wire, pennon_server.directory)


@pytest.fixture(scope="module")
def shared_home(pennon_server: PennonProcess) -> Iterator[Home]:
    """A namespace with a table that the tests of a module share, and only read."""
    opened = Wire(pennon_server.url, [str(pennon_server.directory), pennon_server.directory.name])
    yield Home(opened, pennon_server.directory).fill()
    opened.close()
