"""The files of a branch that its versions need, and the removal of others."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pennon.commits.manifest import InvalidManifestError, parse_manifest
from pennon.commits.staging import new_files
from pennon.storage.layout import branch_folder, parse_manifest_name, parse_staged_name, versions_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pennon.storage.file_io import FileIO, StoredFile

#: Manifests that are read at the same time from an object store.
_READ_THREADS = 8


@dataclass(frozen=True)
class RemovedFiles:
    """The number and size of files that were removed."""

    files: int = 0
    bytes: int = 0


def files_of(content: bytes, branch: str) -> set[str]:
    """Return the paths of a manifest in the folder of its branch; those of folders end with a slash."""
    return set(new_files(branch, parse_manifest(content), None))


def removable_files_of(content: bytes, branch: str) -> set[str]:
    """Return the paths of a manifest like ``files_of``, but the folders of blobs only if it has blobs."""
    manifest = parse_manifest(content)
    blobs = f"{branch_folder(branch)}data/"
    return {
        path
        for path in new_files(branch, manifest, None)
        if manifest.blob_fields or not (path.startswith(blobs) and path.endswith("/"))
    }


def list_manifests(folder: FileIO, branch: str) -> list[StoredFile]:
    """Return the manifests of a branch, published or staged, the newest version first."""
    place = versions_folder(branch)
    found = []
    for file in folder.files(place):
        name = file.path.removeprefix(place + "/")
        parsed = parse_manifest_name(name) or parse_staged_name(name)
        if parsed is not None:
            found.append((-parsed.version, file))
    return [file for _, file in sorted(found, key=lambda each: each[0])]


def subtract_live(
    folder: FileIO, branch: str, candidates: set[str], check: Callable[[], None], *, skip: Iterable[str] = ()
) -> None:
    """Remove from the candidates all paths that a manifest on storage needs; raises if one cannot be read.

    Every manifest is read: a version may need files that the one before it does not, such as a restored one. Of staged
    ones only those that can still be committed: a writer that died leaves its manifest, which names nearly all files,
    and an invalid one will not be committed.
    """
    found = list_manifests(folder, branch)
    ignored = {*skip, *_lost(found, branch)}
    paths = [file.path for file in found if file.path not in ignored]
    for path, content in zip(paths, _read_all(folder, paths), strict=True):
        check()
        try:
            candidates -= files_of(content, branch) if content is not None else set()
        except InvalidManifestError:
            if parse_staged_name(path.removeprefix(f"{versions_folder(branch)}/")) is None:
                raise
        if not candidates:
            return


def _lost(manifests: Iterable[StoredFile], branch: str) -> Iterator[str]:
    """Return the staged manifests that cannot be committed, because a version of their number was published."""
    place = f"{versions_folder(branch)}/"
    names = [file.path.removeprefix(place) for file in manifests]
    newest = max((name.version for name in map(parse_manifest_name, names) if name is not None), default=0)
    for name in names:
        staged = parse_staged_name(name)
        if staged is not None and staged.version <= newest:
            yield place + name


def remove_paths(folder: FileIO, branch: str, paths: set[str], check: Callable[[], None]) -> RemovedFiles:
    """Remove files and whole folders, and count those that existed."""
    home = branch_folder(branch)
    found: list[StoredFile] = []
    for place in (f"{home}data", f"{home}_deletions", f"{home}_transactions"):
        if any(path.startswith(f"{place}/") for path in paths):
            found += [file for file in folder.files(place) if file.path in paths]
    for path in paths:
        if path.endswith("/"):
            check()
            found += folder.walk(path.rstrip("/"))
    check()
    folder.remove_files([file.path for file in found])
    return RemovedFiles(len(found), sum(file.size for file in found))


def _read_all(folder: FileIO, paths: list[str]) -> Iterator[bytes | None]:
    if folder.is_local:
        yield from (_read(folder, path) for path in paths)
        return
    with ThreadPoolExecutor(_READ_THREADS, "pennon-manifests") as threads:
        for start in range(0, len(paths), _READ_THREADS * 4):  # a few at a time, because they may be large
            yield from threads.map(lambda path: _read(folder, path), paths[start : start + _READ_THREADS * 4])


def _read(folder: FileIO, path: str) -> bytes | None:
    try:
        return folder.read(path)
    except FileNotFoundError:
        return None  # a client's cleanup, or the end of a commit, has removed it
