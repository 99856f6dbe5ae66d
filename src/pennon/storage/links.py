"""Links by which LanceDB finds root tables by their names that have folders of their own; on disks only."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from pennon.catalog import tables
from pennon.storage.layout import TABLE_SUFFIX

if TYPE_CHECKING:
    from pennon.catalog import Database
    from pennon.catalog.tables import Table
    from pennon.storage.root import StorageRoot

logger = logging.getLogger("pennon.storage")


def link(database: Database, storage_root: StorageRoot, table: Table) -> None:
    """Let a name lead to a table, unless it is the place of another."""
    place = storage_root.link_to(table.location)
    if place is None or not storage_root.is_root_table(table.identifier, place):
        return
    if database.read(lambda connection: tables.find_overlapping(connection, place)) is not None:
        return
    try:
        Path(place).symlink_to(Path(table.location).name)
    except FileExistsError:
        return  # to the same table, or a folder of LanceDB's own
    except OSError:
        logger.warning("LanceDB will not find table %s in the folder: it cannot have a link", table.name, exc_info=True)


def link_namesake(database: Database, storage_root: StorageRoot, location: str) -> None:
    """Let a location that has become free lead to the table that has its name by now."""
    name = Path(location).name.removesuffix(TABLE_SUFFIX)
    found = database.read(lambda connection: tables.find(connection, (name,)))
    if found is not None and not found.declared:
        link(database, storage_root, found)


def unlink(storage_root: StorageRoot, location: str) -> None:
    """Let a name not lead to a location any more, whose files are about to go."""
    place = storage_root.link_to(location)
    if place is not None and _target_of(place) == location:
        Path(place).unlink(missing_ok=True)


def is_link(storage_root: StorageRoot, location: str) -> bool:
    """Tell whether a location in the root only leads to a table that has a folder of its own."""
    target = None if "://" in location else _target_of(location)
    return target is not None and storage_root.link_to(target) == location


def _target_of(place: str) -> str | None:
    """Return where a link leads to; none of what is no link."""
    try:
        return str(Path(place).parent / Path(place).readlink())
    except OSError:
        return None
