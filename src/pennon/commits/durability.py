"""Durability: a commit's files are flushed to disk, so that no recorded version lacks files after a power failure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pennon.commits.history import stored_manifest
from pennon.commits.manifest import parse_manifest
from pennon.commits.staging import new_files
from pennon.storage.layout import branch_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance.fragment import FragmentMetadata

    from pennon.storage.file_io import FileIO


def flush_fragments(folder: FileIO, branch: str, fragments: Sequence[FragmentMetadata]) -> None:
    """Flush data files before their commit, so that large ones are not flushed while the commit lock is held."""
    home = branch_folder(branch)
    names = [f"{home}data/{file.path}" for fragment in fragments for file in fragment.files]
    folder.sync([*names, *(f"{name.removesuffix('.lance')}/" for name in names)])


def flush_version(folder: FileIO, branch: str, version: int) -> None:
    """Flush a version of an unmanaged table, which Lance has committed itself."""
    if not folder.is_local:
        return
    stored = stored_manifest(folder, branch, version)
    if stored is None:
        return
    before = stored_manifest(folder, branch, version - 1)
    known = parse_manifest(folder.read(before.path)) if before is not None else None
    folder.sync([stored.path, *new_files(branch, parse_manifest(folder.read(stored.path)), known)])
