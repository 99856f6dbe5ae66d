"""Recovery of versions whose manifests are damaged or gone, as a power cut or a failing disk leaves them."""

from __future__ import annotations

import logging
import secrets
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from pennon.catalog import StillReferencedError, lost_versions, versions
from pennon.commits.manifest import BadManifestError, parse_manifest
from pennon.commits.publication import digest_of, publish, settle, withdraw
from pennon.storage.layout import versions_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pennon.catalog import Connection, Database
    from pennon.catalog.versions import Version
    from pennon.storage.file_io import FileIO

logger = logging.getLogger("pennon.commits")

#: Where damaged manifests are kept: beside ``_versions``, where Lance would take them for versions.
LOST_FOLDER = "_lost_versions"
_PAGE = 100


@dataclass(frozen=True)
class Finding:
    """What is on storage for a recorded version: the version as it can be read, or why it cannot."""

    version: Version | None
    reason: str = ""
    #: The digest of a damaged manifest.
    damaged: str | None = None


def examine(folder: FileIO, version: Version) -> Finding:
    """Read a recorded version's manifest; content that another writer put there in its place counts, too."""
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
        except BadManifestError as error:
            return Finding(None, f"its manifest is damaged: {error}", digest)
        if (manifest.version, manifest.branch) != (version.version, version.branch):
            return Finding(None, f"its manifest is that of version {manifest.version}", digest)
    tag = stored.e_tag if stored is not None else None
    staged = version.staged if digest == version.digest else None
    return Finding(replace(version, size=len(content), digest=digest, e_tag=tag, staged=staged, pending=False))


def finish(database: Database, folder: FileIO, version: Version) -> Version | None:
    """Finish a version whose committer died half-way; none, and no record any more, when its manifest is lost."""
    finding = Finding(None)
    for _ in range(2):  # looked at again: the committer may have moved it between the two looks
        finding = examine(folder, version)
        if finding.version is not None:
            return _settle(database, folder, version, finding.version)
        recovered = _recover(database, folder, version, finding)
        if recovered is not None:
            return recovered
    _give_up(database, folder, [(version, finding)])
    return None


def heal(database: Database, folder: FileIO, newest: Version) -> Version | None:
    """Recover a version that cannot be read, or fall back to the last one before it that can be.

    Where none can be read, storage itself may be out of reach, so nothing is given up.
    """
    lost: list[tuple[Version, Finding]] = []
    for row in _downwards(database, newest):
        finding = examine(folder, row)
        good = finding.version or _recover(database, folder, row, finding)
        if good is None:
            lost.append((row, finding))
            continue
        if good.digest != row.digest:
            database.write(partial(versions.correct, version=good))
        _give_up(database, folder, lost)
        return good
    return None


def _settle(database: Database, folder: FileIO, version: Version, settled: Version) -> Version:
    if version.staged is not None:
        folder.remove(f"{versions_folder(version.branch)}/{version.staged}")
    database.defer(lambda connection: settle(connection, version, settled))
    return settled


def _recover(database: Database, folder: FileIO, version: Version, finding: Finding) -> Version | None:
    """Put a version's manifest back from the staged copy whose digest was recorded; none when there is no such copy."""
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
        logger.warning("version %d of table %s was put back from its staged copy", found.version, found.table_id)
    return found


def _set_aside(folder: FileIO, version: Version, finding: Finding) -> None:
    """Move a damaged manifest out of the way of the version that takes its place; never any other content."""
    path = f"{versions_folder(version.branch)}/{version.manifest}"
    try:
        content = folder.read(path) if finding.damaged is not None else None
    except FileNotFoundError:
        return
    if content is not None and digest_of(content) == finding.damaged:
        folder.put_if_absent(f"{LOST_FOLDER}/{version.manifest}-{secrets.token_hex(4)}", content)
        folder.remove(path)


def _give_up(database: Database, folder: FileIO, lost: list[tuple[Version, Finding]]) -> None:
    """Withdraw versions whose manifests cannot be recovered, loudly: their rows may have been acknowledged."""

    def work(connection: Connection) -> list[tuple[Version, Finding]]:
        withdrawn = [(version, finding) for version, finding in lost if withdraw(connection, version)]
        for version, finding in withdrawn:
            lost_versions.add(connection, version, finding.reason)
        return withdrawn

    for version, finding in lost:
        _set_aside(folder, version, finding)  # while the record keeps others from committing the same number
    try:
        given_up = database.write(work) if lost else []
    except StillReferencedError:
        return  # the table was dropped meanwhile, and its files with it
    for version, finding in given_up:
        logger.error(
            "version %d of table %s%s is lost: %s, and there is no staged copy of it. Readers get the version before "
            "it; `pennon doctor` lists such losses",
            version.version,
            version.table_id,
            f" on branch {version.branch}" if version.branch else "",
            finding.reason,
        )


def _downwards(database: Database, newest: Version) -> Iterator[Version]:
    """Return the recorded versions of a branch from one on, the newest first."""
    after = newest.version + 1
    page = partial(versions.page, table_id=newest.table_id, branch=newest.branch, descending=True, limit=_PAGE)
    while rows := database.read(partial(page, after=after)):
        yield from rows
        after = rows[-1].version
