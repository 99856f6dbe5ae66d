"""Symbolic links ``<name>.lance`` to root tables in unique folders, so that LanceDB finds them; on disks only."""

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
    """Create the link of a root table, unless another table has its path."""
    place = storage_root.link_path(table.location)
    if place is None or not storage_root.is_root_table(table.identifier, place):
        return
    if database.read(lambda connection: tables.find_overlapping(connection, place)) is not None:
        return
    try:
        Path(place).symlink_to(Path(table.location).name)
    except FileExistsError:
        return  # a link to the same table, or a folder that LanceDB created
    except OSError:
        logger.warning("cannot create a link to table %s, so LanceDB will not find it", table.name, exc_info=True)


def link_namesake(database: Database, storage_root: StorageRoot, location: str) -> None:
    """Create the link of the table that has the name of a removed location, if there is one."""
    name = Path(location).name.removesuffix(TABLE_SUFFIX)
    found = database.read(lambda connection: tables.find(connection, (name,)))
    if found is not None and not found.declared:
        link(database, storage_root, found)


def unlink(storage_root: StorageRoot, location: str) -> None:
    """Remove the link to a location before its files are removed."""
    place = storage_root.link_path(location)
    if place is not None and _target_of(place) == location:
        Path(place).unlink(missing_ok=True)


def is_link(storage_root: StorageRoot, location: str) -> bool:
    """Tell whether a location in the root is a link to a table in a unique folder."""
    target = None if "://" in location else _target_of(location)
    return target is not None and storage_root.link_path(target) == location


def _target_of(place: str) -> str | None:
    """Return the target of a link; None if it is not a link."""
    try:
        return str(Path(place).parent / Path(place).readlink())
    except OSError:
        return None
