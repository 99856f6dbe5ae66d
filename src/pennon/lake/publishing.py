"""Putting the manifest of a recorded version in its final place, by the committer or by the next reader."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING

from lance_namespace.errors import TableNotFoundError

from pennon.catalog import column_writes, versions
from pennon.lake.layout import versions_folder

if TYPE_CHECKING:
    from pennon.catalog import Connection, Database
    from pennon.catalog.versions import Version
    from pennon.lake.folder import Folder


def digest_of(content: bytes) -> str:
    """Return what tells one manifest's content from another's."""
    return hashlib.sha256(content).hexdigest()


def publish(database: Database, folder: Folder, version: Version, content: bytes) -> Version:
    """Put a recorded version's manifest in place and return the version as it stands there.

    The name may be taken by the same content (another process finished first) or, when a writer went around Pennon,
    by another one: then that one is the version, and its digest tells the committer that it lost.
    """
    place = versions_folder(version.branch)
    final = f"{place}/{version.manifest}"
    stored = None
    if version.staged is not None:
        try:
            stored = folder.promote(f"{place}/{version.staged}", final, content)
        except FileNotFoundError:
            raise _dropped() from None
    if stored is not None:
        settled = replace(version, pending=False, e_tag=stored.e_tag, size=stored.size)
        if not folder.probes_are_cheap:
            _check_kept(database, folder, version, final)
    else:
        settled = _adopt(folder, version, final)
        if version.staged is not None:
            folder.remove(f"{place}/{version.staged}")
    database.defer(lambda connection: _settle(connection, version, settled))
    return settled


def _settle(connection: Connection, version: Version, settled: Version) -> None:
    """Record a version as it stands at its final place; what a writer that lost the place wrote is not there."""
    versions.settle(connection, settled)
    if settled.digest != version.digest:
        column_writes.delete(connection, version.table_id, version.branch, version.version)


def _check_kept(database: Database, folder: Folder, version: Version, final: str) -> None:
    """Take a manifest back whose table was dropped meanwhile: in a bucket, no missing folder tells of that."""
    recorded = version.transaction_id is not None
    if recorded and not database.read(lambda c: versions.find(c, version.table_id, version.branch, version.version)):
        folder.remove(final)
        raise _dropped()


def _dropped() -> TableNotFoundError:
    return TableNotFoundError("The table was dropped while it was written.")


def finish(database: Database, folder: Folder, version: Version) -> Version | None:
    """Finish a version whose committer died half-way; none, and no record any more, when its manifest is lost."""
    place = versions_folder(version.branch)
    if folder.stat(f"{place}/{version.manifest}") is None:
        try:
            content = folder.read(f"{place}/{version.staged}")
        except FileNotFoundError:
            content = None
        if content is not None:
            return publish(database, folder, version, content)
    # Looked at again: the committer may have moved it between the two looks above.
    if folder.stat(f"{place}/{version.manifest}") is None:
        database.write(lambda connection: _withdraw(connection, version))
        return None
    settled = _adopt(folder, version, f"{place}/{version.manifest}")
    if version.staged is not None:
        folder.remove(f"{place}/{version.staged}")
    database.defer(lambda connection: _settle(connection, version, settled))
    return settled


def _withdraw(connection: Connection, version: Version) -> None:
    versions.withdraw(connection, version)
    if versions.find(connection, version.table_id, version.branch, version.version) is None:
        column_writes.delete(connection, version.table_id, version.branch, version.version)


def _adopt(folder: Folder, version: Version, final: str) -> Version:
    """Return a version as it stands at its final place; what was staged for it counts only if it is the same."""
    stored = folder.stat(final)
    try:
        content = folder.read(final)
    except FileNotFoundError:
        raise _dropped() from None
    e_tag, digest = stored.e_tag if stored else None, digest_of(content)
    staged = version.staged if digest == version.digest else None
    return replace(version, pending=False, e_tag=e_tag, size=len(content), digest=digest, staged=staged)
