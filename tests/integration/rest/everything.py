"""All that a server holds, to see that nothing of it has changed."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

RECORDS = (
    "SELECT path, properties FROM namespaces ORDER BY path",
    "SELECT id, namespace, name, location, properties FROM tables ORDER BY id",
    "SELECT table_id, branch, version, manifest, digest FROM versions ORDER BY table_id, branch, version",
    "SELECT id, status, properties FROM transactions ORDER BY id",
    "SELECT location FROM garbage ORDER BY location",
)


def everything_in(directory: Path) -> Any:
    """Return the records of an embedded catalog, and size and time of each file beside it."""
    with closing(sqlite3.connect(directory / ".pennon" / "catalog.db")) as connection:
        records = [connection.execute(sql).fetchall() for sql in RECORDS]
    files = {path: path.lstat() for path in directory.rglob("*") if ".pennon" not in path.parts}
    return records, {str(path): (found.st_size, found.st_mtime_ns) for path, found in files.items()}
