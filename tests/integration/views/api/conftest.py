"""Catalogs with tables to make views of: in this process, on SQLite and on PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.views.api.view_catalog import ViewCatalog

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def view_catalog(catalog_url: str, tmp_path: Path) -> Iterator[ViewCatalog]:
    """A catalog with tables, on each kind of database."""
    opened = ViewCatalog(tmp_path / "lake", database=catalog_url)
    yield opened.fill()
    opened.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ViewCatalog]:
    """A catalog that the tests of a module share, for requests that change nothing."""
    opened = ViewCatalog(tmp_path_factory.mktemp("shared"))
    yield opened.fill()
    opened.close()
