"""Removal of files that no version ever needed: those of writers that died, and staged manifests they have left."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pennon.catalog import jobs, maintenance_state, removals, uploads
from pennon.core.clock import now_millis
from pennon.core.job_model import MAINTENANCE
from pennon.maintenance.live_files import RemovedFiles, files_of, subtract_live
from pennon.maintenance.removed_manifests import FOLDER, archive_path, read_archive
from pennon.maintenance.schedule import UNCOMMITTED_MILLIS
from pennon.storage.layout import branch_folder, parse_staged_name, versions_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pennon.catalog import Connection, Database
    from pennon.catalog.tables import Table
    from pennon.storage.file_io import FileIO, StoredFile

_DAY_MILLIS = 24 * 3600 * 1000
#: Files that Lance writes, relative to the folder of their branch. Others are left alone.
_FILES = re.compile(
    r"data/(?P<data>[^/]+)\.lance|data/(?P<blobs>[^/]+)/.+|_deletions/[^/]+\.(arrow|bin)|_transactions/[^/]+\.txn"
    r"|_indices/(?P<index>[^/]+)/.+"
)


def remove_orphans_daily(
    database: Database, folder: FileIO, table: Table, branch: str, check: Callable[[], None]
) -> RemovedFiles:
    """Remove orphan files of a branch if that was not done for a day.

    A job or an upload that is not complete has files that no version needs yet: then they are looked for later.
    """
    now = now_millis()
    found = database.read(lambda connection: maintenance_state.find(connection, table.id, branch))
    if found is None or now - (found.state.orphans_at or 0) < _DAY_MILLIS:
        return RemovedFiles()
    if database.read(lambda connection: _has_uncommitted(connection, table, branch)):
        return RemovedFiles()
    removed = remove_orphans(database, folder, table, branch, now - UNCOMMITTED_MILLIS, check)
    database.write(lambda connection: maintenance_state.record_orphans(connection, table.id, branch, now))
    return removed


def remove_orphans(
    database: Database, folder: FileIO, table: Table, branch: str, until: int, check: Callable[[], None]
) -> RemovedFiles:
    """Remove the files of a branch that were written before a time, and that no version needs.

    Files are listed before manifests are read, so that a commit in between is seen.
    """
    home = branch_folder(branch)
    old = [file for file in _files_below(folder, branch) if file.modified_millis < until]
    by_owner: dict[str, list[StoredFile]] = {}
    for file in old:
        owner = _owner(file.path.removeprefix(home))
        if owner is not None:
            by_owner.setdefault(home + owner, []).append(file)
    staged = {file.path: [file] for file in old if _is_staged(file.path, branch)}
    candidates = set(by_owner)
    subtract_live(folder, branch, candidates, check, skip=staged)
    kept = database.read(lambda connection: removals.of_branch(connection, table.id, branch))
    for removal in kept if candidates else ():
        for content in read_archive(folder, removal.id).manifests.values():
            candidates -= files_of(content, branch)
    lost = [file for file in folder.files(FOLDER) if file.modified_millis < until] if not branch else []
    archives = {archive_path(each) for each in database.read(lambda c: removals.of_table(c, table.id))}
    going = [file for owner in candidates for file in by_owner[owner]]
    going += [file for files in staged.values() for file in files]
    going += [file for file in lost if file.path not in archives]
    check()
    folder.remove_files([file.path for file in going])
    return RemovedFiles(len(going), sum(file.size for file in going))


def _files_below(folder: FileIO, branch: str) -> Iterator[StoredFile]:
    home = branch_folder(branch)
    for place in ("data", "_deletions", "_transactions", "_indices"):
        yield from folder.walk(f"{home}{place}")
    yield from folder.files(versions_folder(branch))


def _owner(path: str) -> str | None:
    """Return the path by which a manifest's files are known, of a file in the folder of a branch."""
    match = _FILES.fullmatch(path)
    if match is None:
        return None
    if match["blobs"]:
        return f"data/{match['blobs']}/"
    return f"_indices/{match['index']}/" if match["index"] else path


def _is_staged(path: str, branch: str) -> bool:
    return parse_staged_name(path.removeprefix(f"{versions_folder(branch)}/")) is not None


def _has_uncommitted(connection: Connection, table: Table, branch: str) -> bool:
    active = jobs.active_on(connection, table.id)
    is_working = any(job.kind not in MAINTENANCE and job.branch == branch for job in active)
    return is_working or uploads.exist(connection, table.id)
