"""Removal of the files of removed versions, once no reader can have them open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pennon.catalog import removals
from pennon.core.clock import now_millis
from pennon.maintenance.live_files import (
    RemovedFiles,
    files_of,
    list_manifests,
    removable_files_of,
    remove_paths,
    subtract_live,
)
from pennon.maintenance.needed_versions import referenced_versions
from pennon.maintenance.removed_manifests import read_archive, remove_archives
from pennon.storage.layout import parse_manifest_name, versions_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pennon.catalog import Connection, Database
    from pennon.catalog.removals import Removal
    from pennon.catalog.tables import Table
    from pennon.storage.file_io import FileIO


def remove_old_files(
    database: Database,
    folder: FileIO,
    table: Table,
    branch: str,
    keep_millis: int,
    check: Callable[[], None],
) -> RemovedFiles:
    """Remove the files that only removed versions need, when those were removed this long ago.

    A file may be needed again by a version that was restored or tagged meanwhile: what any manifest on storage needs
    stays. If the process dies, the next cleanup repeats this.
    """
    every = database.read(lambda connection: removals.of_branch(connection, table.id, branch))
    until = now_millis() - keep_millis
    due = [removal for removal in every if removal.unlisted and removal.removed_at <= until]
    if not due:
        return RemovedFiles()
    referenced = _dangling(folder, branch)
    held = [removal for removal in every if removal not in due or referenced.intersection(removal.versions)]
    going = [removal for removal in due if removal not in held]
    candidates = _files_of(folder, branch, going, check)
    subtract_live(folder, branch, candidates, check)
    _subtract_removed(folder, branch, candidates, held)
    removed = remove_paths(folder, branch, candidates, check)
    _forget(database, folder, [removal.id for removal in going])
    return removed


def _dangling(folder: FileIO, branch: str) -> set[int]:
    """Return versions that a tag or a branch refers to although they were removed: it was set at the same moment."""
    place = f"{versions_folder(branch)}/"
    names = (parse_manifest_name(file.path.removeprefix(place)) for file in list_manifests(folder, branch))
    stored = {name.version for name in names if name is not None}
    return referenced_versions(folder, branch) - stored


def _files_of(folder: FileIO, branch: str, batch: Sequence[Removal], check: Callable[[], None]) -> set[str]:
    found: set[str] = set()
    for removal in batch:
        check()
        for content in read_archive(folder, removal.id).manifests.values():
            found |= removable_files_of(content, branch)
    return found


def _subtract_removed(folder: FileIO, branch: str, candidates: set[str], others: Sequence[Removal]) -> None:
    """Keep the files of versions that were removed later: readers may have those open."""
    for removal in others:
        if not candidates:
            return
        for content in read_archive(folder, removal.id).manifests.values():
            candidates -= files_of(content, branch)


def _forget(database: Database, folder: FileIO, removal_ids: Sequence[str]) -> None:
    def work(connection: Connection) -> None:
        for removal_id in removal_ids:
            removals.delete(connection, removal_id)

    database.write(work)
    remove_archives(folder, removal_ids)
