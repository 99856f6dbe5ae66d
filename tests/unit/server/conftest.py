"""What the tests of the server's parts share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pennon.catalog import open_database
from pennon.catalog.schema import migrate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pennon.catalog import Database


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = open_database(f"sqlite:///{tmp_path / 'catalog.db'}")
    migrate(opened)
    yield opened
    opened.close()
