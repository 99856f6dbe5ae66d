"""Putting the manifest of a recorded version in its final place, by the committer or by the next reader."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING

from lance_namespace.errors import TableNotFoundError

from pennon.catalog import column_writes, versions
from pennon.commits.column_writes import ColumnWrite
from pennon.storage.layout import versions_folder

if TYPE_CHECKING:
    from pennon.catalog import Connection, Database
    from pennon.catalog.versions import Version
    from pennon.storage.file_io import FileIO


def digest_of(content: bytes) -> str:
    """Return what tells one manifest's content from another's."""
    return hashlib.sha256(content).hexdigest()


def publish(database: Database, folder: FileIO, version: Version, content: bytes) -> Version:
    """Put a recorded version's manifest in place and return the version as it stands there.

    The name may be taken by the same content (another process finished first) or, when a writer went around Pennon,
    by another one: then that one is the version, and its digest tells the committer that it lost.
    """
    place = versions_folder(version.branch)
    final = f"{place}/{version.manifest}"
    stored = None
    if version.staged is not None:
        try:
            stored = folder.publish_if_absent(f"{place}/{version.staged}", final, content)
        except FileNotFoundError:
            raise _dropped() from None
    if stored is not None:
        settled = replace(version, pending=False, e_tag=stored.e_tag, size=stored.size)
        if not folder.is_local:
            _check_kept(database, folder, version, final)
    else:
        settled = _adopt(folder, version, final)
        if version.staged is not None:
            folder.remove(f"{place}/{version.staged}")
    if version.transaction_id is None:
        folder.sync([final])  # of a table that Pennon does not manage, nothing but the file tells of the version
    database.defer(lambda connection: settle(connection, version, settled))
    return settled


def settle(connection: Connection, version: Version, settled: Version) -> None:
    """Record a version as it stands at its final place; what a writer that lost the place wrote is not there."""
    versions.settle(connection, settled)
    is_recorded = versions.find(connection, version.table_id, version.branch, version.version) is not None
    if settled.digest != version.digest and is_recorded:  # nobody compared the one that is there with the one before it
        unknown = ColumnWrite.unknown(version.version).encode()
        column_writes.save(connection, version.table_id, version.branch, version.version, unknown)


def _check_kept(database: Database, folder: FileIO, version: Version, final: str) -> None:
    """Take a manifest back whose table was dropped meanwhile: in a bucket, no missing folder tells of that."""
    recorded = version.transaction_id is not None
    if recorded and not database.read(lambda c: versions.find(c, version.table_id, version.branch, version.version)):
        folder.remove(final)
        raise _dropped()


def _dropped() -> TableNotFoundError:
    return TableNotFoundError("The table was dropped while it was written.")


def withdraw(connection: Connection, version: Version) -> bool:
    """Remove the record of a version, with what it wrote in place, and tell whether there was one."""
    withdrawn = versions.withdraw(connection, version)
    if withdrawn:
        column_writes.delete(connection, version.table_id, version.branch, version.version)
    return withdrawn


def _adopt(folder: FileIO, version: Version, final: str) -> Version:
    """Return a version as it stands at its final place; what was staged for it counts only if it is the same."""
    stored = folder.stat(final)
    try:
        content = folder.read(final)
    except FileNotFoundError:
        raise _dropped() from None
    e_tag, digest = stored.e_tag if stored else None, digest_of(content)
    staged = version.staged if digest == version.digest else None
    return replace(version, pending=False, e_tag=e_tag, size=len(content), digest=digest, staged=staged)
