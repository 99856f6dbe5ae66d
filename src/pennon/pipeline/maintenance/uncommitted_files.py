"""Files that a maintenance job has written and not committed, found by the job's events.

Each group of fragments has three events: "rewritten" with its new files, "committing" in the transaction of a commit,
with the version, and "committed" afterwards. A worker may die between any two of them. The commit of a compaction makes
two versions, and the first only reserves fragment numbers. So a group without the last event was committed if such
a version has its files.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING

from lance_namespace.errors import TableVersionNotFoundError

from pennon.storage.layout import branch_folder

if TYPE_CHECKING:
    from pennon.pipeline.maintenance.table_work import TableWork
    from pennon.storage.file_io import FileIO


def remove_uncommitted_files(work: TableWork, folder: FileIO) -> None:
    """Remove the files of groups that no version has."""
    queue, job = work.services.queue, work.lease.job
    committed = {unit for event in queue.events_of_kind(job, "committed") for unit in event.data.get("units", ())}
    proposed: dict[str, list[int]] = defaultdict(list)
    for event in queue.events_of_kind(job, "committing"):
        for unit in event.data["units"]:
            proposed[unit].append(event.data["version"])
    home = branch_folder(work.branch)
    for event in queue.events_of_kind(job, "rewritten"):
        files = event.data["files"]
        if event.unit in committed or not files or _is_in_a_version(work, files[0], proposed[event.unit]):
            continue
        for name in files:
            path = f"{home}data/{name}"
            for blob in list(folder.files(path.removesuffix(".lance"))):
                folder.remove(blob.path)
            folder.remove(path)


def _is_in_a_version(work: TableWork, file: str, versions: list[int]) -> bool:
    """Return whether one of some versions has a file; also if one of them was removed, as older ones may be."""
    for version in versions:
        try:
            dataset = work.services.datasets.at(work.table, work.branch, version)
        except TableVersionNotFoundError:
            return True
        with suppress(StopIteration):
            if any(each.path == file for fragment in dataset.get_fragments() for each in fragment.metadata.files):
                return True
    return False
