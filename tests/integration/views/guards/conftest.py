"""Lakes with a table and a view over it, each on SQLite and on PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tests.integration.views.guards.services import ViewLake

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def lake(catalog_url: str, tmp_path: Path) -> Iterator[ViewLake]:
    """A lake with a table ``t`` of three rows, and a view ``v`` over its columns ``a`` and ``b``."""
    opened = ViewLake(tmp_path / "lake", database=catalog_url)
    opened("CreateTable", "t", data=pa.table({"a": [1, 2, 3], "b": ["x", "y", "z"], "c": [0.5, 1.5, 2.5]}))
    opened.view("v", "t", {"a": "a", "text": "b"})
    yield opened
    opened.close()
