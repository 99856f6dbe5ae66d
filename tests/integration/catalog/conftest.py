"""Lakes for the tests of the catalog: each on SQLite and on PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import pytest

from tests.integration.catalog.lakes import Lake

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class OpenLake(Protocol):
    """Open a lake with more settings; by default the one of the test."""

    def __call__(self, root: Path | None = None, **settings: Any) -> Lake: ...


@pytest.fixture
def open_lake(catalog_url: str, tmp_path: Path) -> Iterator[OpenLake]:
    """A function that opens lakes on the test's catalog; all are closed when the test ends."""
    opened: list[Lake] = []

    def start(root: Path | None = None, **settings: Any) -> Lake:
        settings.setdefault("database", catalog_url)
        opened.append(Lake(root or tmp_path / "lake", **settings))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


@pytest.fixture
def lake(open_lake: OpenLake) -> Lake:
    """An empty catalog with an empty root folder."""
    return open_lake()
