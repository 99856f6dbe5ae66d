"""Opening a database by its URL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from lance_namespace.errors import InvalidInputError

if TYPE_CHECKING:
    from pennon.catalog.database.protocol import Database


def open_database(url: str, *, pool_size: int = 16, root: str = "") -> Database:
    """Open ``sqlite:///PATH`` or ``postgresql://…``; the driver is imported only if it is needed.

    With a storage root, connections return and take the locations of tables in their absolute form.
    """
    path = url.removeprefix("sqlite:///")
    if path != url and path not in {"", ":memory:"}:
        from pennon.catalog.database.sqlite import SqliteDatabase

        return SqliteDatabase(Path(unquote(path)), root=root)
    if urlsplit(url).scheme in {"postgresql", "postgres"}:
        from pennon.catalog.database.postgres import PostgresDatabase

        return PostgresDatabase(url, pool_size=pool_size, root=root)
    raise InvalidInputError("Invalid database URL: use sqlite:///PATH or postgresql://USER:PASSWORD@HOST/NAME.")
