"""Connections of LanceDB's remote client to the shared server, and a table with a hundred rows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import lancedb
import pytest

from tests.clients.remote.data import new_name, rows

if TYPE_CHECKING:
    from tests.support.server import PennonProcess

#: What the client does after a failure is its own affair; here every answer is to be seen.
NO_RETRIES = {"retry_config": {"retries": 0}}

Run = Callable[[Callable[[Any], Awaitable[None]]], None]


@pytest.fixture
def db(pennon_server: PennonProcess) -> Any:
    """A connection of the blocking client."""
    return connect(pennon_server.url)


@pytest.fixture
def table(db: Any) -> Any:
    """A table of a hundred rows."""
    return db.create_table(new_name(), rows(100))


@pytest.fixture
def run(pennon_server: PennonProcess) -> Run:
    """Run a coroutine function that takes a connection of the asynchronous client."""

    def start(work: Callable[[Any], Awaitable[None]]) -> None:
        async def with_connection() -> None:
            await work(
                await lancedb.connect_async(
                    "db://lake", api_key="none", host_override=pennon_server.url, client_config=NO_RETRIES
                )
            )

        asyncio.run(with_connection())

    return start


def connect(url: str) -> Any:
    """Return a connection of the blocking client."""
    return lancedb.connect("db://lake", api_key="none", host_override=url, client_config=NO_RETRIES)
