"""Storage checks and repairs of ``pennon doctor``: ownership of the storage root, and readable versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pennon.catalog import lost_versions, tables, versions
from pennon.cli.catalog import open_catalog
from pennon.cli.output import print_note
from pennon.core.identifiers import ROOT, format_identifier

if TYPE_CHECKING:
    from pennon.catalog import Database
    from pennon.catalog.tables import Table
    from pennon.catalog.versions import Version
    from pennon.core.settings import Settings
    from pennon.storage.root import StorageRoot

_MAX_NAMED = 5
_MAX_LISTED = 1000


def storage_root_of(settings: Settings) -> StorageRoot:
    """Return the storage root of the settings."""
    from pennon.storage.root import StorageRoot

    return StorageRoot(
        settings.root_url,
        settings.storage_options,
        allowed_locations=settings.allowed_locations,
        durable_writes=settings.durable_writes,
    )


def adopt_root(settings: Settings) -> None:
    """Take ownership of the storage root for this catalog, and print what changed."""
    from pennon.commits.ownership import Ownership

    storage_root = storage_root_of(settings)
    with open_catalog(settings, root=storage_root.root_location) as database:
        done = Ownership(database, storage_root).adopt()
    print_note(f"This catalog now owns the storage root. Catalog id: {done.catalog_id}.")
    if done.relocated:
        print_note(f"Found in the storage root: {name_some(done.relocated)}.")
    if done.outside:
        print_note(f"Still outside the storage root, and read-only: {name_some(done.outside)}.")


def repair_versions(settings: Settings) -> None:
    """Recover newest versions that cannot be read, or fall back to older ones, and print which."""
    from pennon.commits.history import History
    from pennon.commits.ownership import Ownership

    storage_root = storage_root_of(settings)
    with open_catalog(settings, root=storage_root.root_location) as database:
        history = History(database, storage_root, Ownership(database, storage_root))
        for table, version in unreadable_versions(database, storage_root):
            name = format_identifier(table.identifier)
            done = history.repair(table, version)
            kept = database.read(lambda c, table=table: versions.latest(c, table.id, ""))  # type: ignore[misc]
            number = kept.version if done and kept is not None else None
            print_note(
                f"{name}: version {number} is now the newest readable version." if number else f"{name}: not repaired."
            )


def unreadable_versions(database: Database, storage_root: StorageRoot) -> list[tuple[Table, Version]]:
    """Return the tables whose newest version has no readable manifest, in place or staged."""
    from pennon.commits.recovery import examine

    found = []
    for table in database.read(lambda connection: tables.all_below(connection, ROOT)):
        newest = database.read(lambda c, table=table: versions.latest(c, table.id, ""))  # type: ignore[misc]
        is_readable = (
            newest is None or newest.pending or examine(storage_root.folder(table.location), newest).version is not None
        )
        if table.managed and newest is not None and not is_readable:
            found.append((table, newest))
    return found


def describe_lost_versions(database: Database) -> list[str]:
    """Describe the versions that are lost, with the names of their tables."""
    found = []
    for one in database.read(lambda connection: lost_versions.listing(connection, _MAX_LISTED)):
        table = database.read(lambda c, one=one: tables.find_by_id(c, one.table_id))  # type: ignore[misc]
        branch = f" on branch {one.branch}" if one.branch else ""
        if table is not None:
            found.append(f"version {one.version} of {format_identifier(table.identifier)}{branch}")
    return found


def name_some(names: list[str]) -> str:
    """List the first names, and whether there are more."""
    return ", ".join(names[:_MAX_NAMED]) + (", …" if len(names) > _MAX_NAMED else "")
