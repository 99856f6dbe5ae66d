"""The namespace that a request works in."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from pennon.catalog import namespaces, open_database
from pennon.catalog.changes import namespace_subject
from pennon.catalog.database.sqlite import SqliteDatabase
from pennon.catalog.schema import migrate
from pennon.core.caller import ANONYMOUS_ADMIN
from pennon.core.identifiers import MAX_NAME_BYTES, ROOT
from pennon.server.auth.callers import Callers
from tests.unit.server.exchanges import exchange

Result = TypeVar("Result")


def in_thread(work: Callable[[], Result]) -> Awaitable[Result]:
    return asyncio.to_thread(work)


@pytest.mark.parametrize(
    ("name", "is_kept"), [("shop", True), ("x" * MAX_NAME_BYTES, True), ("x" * 60_000, False), ("a$b", False)]
)
def test_only_names_that_a_database_can_have_are_cached(tmp_path: Path, name: str, *, is_kept: bool) -> None:
    """A header may have a megabyte, and the cache has a place for each name."""
    database = open_database(f"sqlite:///{tmp_path}/catalog.db")
    assert isinstance(database, SqliteDatabase)
    migrate(database)
    callers = Callers(database, in_thread, insecure=False)
    request = exchange(headers={"x-lancedb-database": name})

    async def find() -> tuple[str, ...]:
        fresh = await callers.refresh()
        return await callers.database_of(request, ANONYMOUS_ADMIN, is_fresh=fresh)

    assert asyncio.run(find()) == ROOT
    kept = database.cache.find(namespace_subject((name,)), (namespaces.exists, ((name,),)))
    assert (kept is not None) == is_kept
    database.close()
