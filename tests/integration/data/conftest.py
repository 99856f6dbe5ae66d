"""Tables on the shared server."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

from tests.integration.data.tables import DataTable, rows

if TYPE_CHECKING:
    from tests.support.rest import RestClient
    from tests.support.s3 import S3Root, S3Server
    from tests.support.server import PennonProcess

WriteBeside = Callable[..., None]
Stored = Callable[[DataTable], set[str]]


@pytest.fixture
def new(http: RestClient) -> DataTable:
    """A table that does not exist yet."""
    return DataTable(http)


@pytest.fixture
def write_beside(pennon_server: PennonProcess, shared_root: S3Root | None) -> WriteBeside:
    """A function that writes a table where the shared server has its own, without asking it."""
    place, options = (pennon_server.directory, None) if shared_root is None else (shared_root.url, shared_root.options)

    def write(table: DataTable, data: pa.Table, **more: Any) -> None:
        lance.write_dataset(data, f"{place}/{table.names[0]}.lance", storage_options=options, **more)

    return write


@pytest.fixture
def stored(request: pytest.FixtureRequest, pennon_server: PennonProcess, shared_root: S3Root | None) -> Stored:
    """A function that returns the data files of a table in the root, also of one that is not there."""

    def find(table: DataTable) -> set[str]:
        (name,) = table.names
        folder = f"{name}.lance/data"
        if shared_root is None:
            return {str(path) for path in (pennon_server.directory / folder).rglob("*") if path.is_file()}
        s3: S3Server = request.getfixturevalue("s3_server")
        return s3.keys(shared_root, folder)

    return find


@pytest.fixture
def table(new: DataTable) -> DataTable:
    """A table of a hundred rows."""
    return new.create(rows(100))
