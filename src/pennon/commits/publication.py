"""Publishing the manifest of a recorded version, by its committer or by the next reader."""

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
    """Return the digest of a manifest."""
    return hashlib.sha256(content).hexdigest()


def publish(database: Database, folder: FileIO, version: Version, content: bytes) -> Version:
    """Publish the manifest of a recorded version, and return the version as it is on storage.

    The final name may be taken by the same content, if another process was faster, or by the manifest of a writer that
    committed around Pennon. In that case its content is the version, and its digest tells the committer that it lost.
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
        published = replace(version, pending=False, e_tag=stored.e_tag, size=stored.size)
        if not folder.is_local:
            _check_kept(database, folder, version, final)
    else:
        published = _adopt(folder, version, final)
        if version.staged is not None:
            folder.remove(f"{place}/{version.staged}")
    if version.transaction_id is None:
        folder.sync([final])  # an unmanaged table has no other record of the version
    database.defer(lambda connection: finalize(connection, version, published))
    return published


def finalize(connection: Connection, version: Version, published: Version) -> None:
    """Record that a version is published, with the content that is on storage."""
    versions.finalize(connection, published)
    is_recorded = versions.find(connection, version.table_id, version.branch, version.version) is not None
    if (
        published.digest != version.digest and is_recorded
    ):  # the published content was not compared with the version before it
        unknown = ColumnWrite.unknown(version.version).encode()
        column_writes.save(connection, version.table_id, version.branch, version.version, unknown)


def _check_kept(database: Database, folder: FileIO, version: Version, final: str) -> None:
    """Remove a manifest whose table was dropped meanwhile: a bucket has no missing folder that would tell."""
    recorded = version.transaction_id is not None
    if recorded and not database.read(lambda c: versions.find(c, version.table_id, version.branch, version.version)):
        folder.remove(final)
        raise _dropped()


def _dropped() -> TableNotFoundError:
    return TableNotFoundError("The table was dropped during the commit.")


def withdraw(connection: Connection, version: Version) -> bool:
    """Remove the record of a version and of what it wrote in place; false if there was none."""
    withdrawn = versions.withdraw(connection, version)
    if withdrawn:
        column_writes.delete(connection, version.table_id, version.branch, version.version)
    return withdrawn


def _adopt(folder: FileIO, version: Version, final: str) -> Version:
    """Return a version with the content that is published under its name."""
    stored = folder.stat(final)
    try:
        content = folder.read(final)
    except FileNotFoundError:
        raise _dropped() from None
    e_tag, digest = stored.e_tag if stored else None, digest_of(content)
    staged = version.staged if digest == version.digest else None
    return replace(version, pending=False, e_tag=e_tag, size=len(content), digest=digest, staged=staged)
