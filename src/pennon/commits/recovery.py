"""Recovery of versions whose manifests are damaged or missing, for example after a power failure."""

from __future__ import annotations

import logging
import secrets
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from pennon.catalog import ForeignKeyError, lost_versions, versions
from pennon.commits.manifest import InvalidManifestError, parse_manifest
from pennon.commits.publication import digest_of, finalize, publish, withdraw
from pennon.storage.layout import versions_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pennon.catalog import Connection, Database
    from pennon.catalog.versions import Version
    from pennon.storage.file_io import FileIO

logger = logging.getLogger("pennon.commits")

#: Where damaged manifests are kept: outside ``_versions``, where Lance would read them as versions.
LOST_FOLDER = "_lost_versions"
_PAGE = 100


@dataclass(frozen=True)
class Finding:
    """The state of a recorded version on storage: the version if it can be read, or the reason why it cannot."""

    version: Version | None
    reason: str = ""
    #: The digest of a damaged manifest.
    damaged: str | None = None


def examine(folder: FileIO, version: Version) -> Finding:
    """Read the manifest of a recorded version; a valid manifest of another writer is accepted too."""
    path = f"{versions_folder(version.branch)}/{version.manifest}"
    stored = folder.stat(path)
    try:
        content = folder.read(path)
    except FileNotFoundError:
        return Finding(None, "its manifest is missing")
    digest = digest_of(content)
    if digest != version.digest:
        try:
            manifest = parse_manifest(content)
        except InvalidManifestError as error:
            return Finding(None, f"its manifest is damaged: {error}", digest)
        if (manifest.version, manifest.branch) != (version.version, version.branch):
            return Finding(None, f"its manifest is that of version {manifest.version}", digest)
    tag = stored.e_tag if stored is not None else None
    staged = version.staged if digest == version.digest else None
    return Finding(replace(version, size=len(content), digest=digest, e_tag=tag, staged=staged, pending=False))


def complete(database: Database, folder: FileIO, version: Version) -> Version | None:
    """Complete an interrupted commit; if its manifest is lost, withdraw the version and return None."""
    finding = Finding(None)
    for _ in range(2):  # twice, because the committer may publish it between the two reads
        finding = examine(folder, version)
        if finding.version is not None:
            return _finalize(database, folder, version, finding.version)
        recovered = _recover(database, folder, version, finding)
        if recovered is not None:
            return recovered
    _withdraw_lost(database, folder, [(version, finding)])
    return None


def recover_latest(database: Database, folder: FileIO, newest: Version) -> Version | None:
    """Recover a version that cannot be read, or withdraw it and fall back to the last readable one before it.

    If no version can be read, storage itself may be unavailable, so nothing is withdrawn.
    """
    lost: list[tuple[Version, Finding]] = []
    for row in _newest_first(database, newest):
        finding = examine(folder, row)
        good = finding.version or _recover(database, folder, row, finding)
        if good is None:
            lost.append((row, finding))
            continue
        if good.digest != row.digest:
            database.write(partial(versions.correct, version=good))
        _withdraw_lost(database, folder, lost)
        return good
    return None


def _finalize(database: Database, folder: FileIO, version: Version, published: Version) -> Version:
    if version.staged is not None:
        folder.remove(f"{versions_folder(version.branch)}/{version.staged}")
    database.defer(lambda connection: finalize(connection, version, published))
    return published


def _recover(database: Database, folder: FileIO, version: Version, finding: Finding) -> Version | None:
    """Publish the staged copy of a manifest again, if its digest is the recorded one; None if there is no such copy."""
    if version.staged is None:
        return None
    place = versions_folder(version.branch)
    staged, final = f"{place}/{version.staged}", f"{place}/{version.manifest}"
    try:
        content = folder.read(staged)
    except FileNotFoundError:
        return None
    if digest_of(content) != version.digest:
        return None
    _set_aside(folder, version, finding)
    if version.pending:
        return publish(database, folder, version, content)
    folder.publish_if_absent(staged, final, content)
    found = examine(folder, version).version
    if found is not None:
        database.write(lambda connection: versions.correct(connection, found))
        logger.warning("version %d of table %s was recovered from its staged copy", found.version, found.table_id)
    return found


def _set_aside(folder: FileIO, version: Version, finding: Finding) -> None:
    """Move a damaged manifest to the folder of lost versions; other content stays."""
    path = f"{versions_folder(version.branch)}/{version.manifest}"
    try:
        content = folder.read(path) if finding.damaged is not None else None
    except FileNotFoundError:
        return
    if content is not None and digest_of(content) == finding.damaged:
        folder.put_if_absent(f"{LOST_FOLDER}/{version.manifest}-{secrets.token_hex(4)}", content)
        folder.remove(path)


def _withdraw_lost(database: Database, folder: FileIO, lost: list[tuple[Version, Finding]]) -> None:
    """Withdraw versions whose manifests are lost, and log an error: their rows may have been acknowledged."""

    def work(connection: Connection) -> list[tuple[Version, Finding]]:
        withdrawn = [(version, finding) for version, finding in lost if withdraw(connection, version)]
        for version, finding in withdrawn:
            lost_versions.add(connection, version, finding.reason)
        return withdrawn

    for version, finding in lost:
        _set_aside(folder, version, finding)  # before withdrawal, while no one else can commit the number
    try:
        withdrawn = database.write(work) if lost else []
    except ForeignKeyError:
        return  # the table was dropped meanwhile, and its files with it
    for version, finding in withdrawn:
        logger.error(
            "version %d of table %s%s is lost: %s, and there is no staged copy of it. Readers get the version before "
            "it; `pennon doctor` lists lost versions",
            version.version,
            version.table_id,
            f" on branch {version.branch}" if version.branch else "",
            finding.reason,
        )


def _newest_first(database: Database, newest: Version) -> Iterator[Version]:
    """Return the recorded versions of a branch up to one, newest first."""
    after = newest.version + 1
    page = partial(versions.page, table_id=newest.table_id, branch=newest.branch, descending=True, limit=_PAGE)
    while rows := database.read(partial(page, after=after)):
        yield from rows
        after = rows[-1].version
