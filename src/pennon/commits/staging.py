"""Checking a staged manifest: that it is one, of this very table, branch and version, and that it follows the last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING

from cachetools import LRUCache
from lance_namespace.errors import ConcurrentModificationError, InvalidInputError

from pennon.catalog.versions import Version
from pennon.commits.column_writes import ColumnWrite, find_column_write
from pennon.commits.manifest import READABLE_FLAGS, BadManifestError, Manifest, parse_manifest, parse_operation
from pennon.commits.publication import digest_of
from pennon.core.identifiers import format_identifier
from pennon.storage.layout import (
    Scheme,
    branch_folder,
    check_branch,
    manifest_name,
    parse_manifest_name,
    parse_staged_name,
    versions_folder,
)

if TYPE_CHECKING:
    from pennon.catalog.tables import Table
    from pennon.commits.confinement import Confinement
    from pennon.storage.file_io import FileIO

#: Files looked for when a manifest names data the version before it did not have.
_FILES_PROBED = 8


@dataclass(frozen=True)
class Proposal:
    """A version that a client asks to be recorded."""

    version: int
    manifest_path: str
    branch: str = ""
    manifest_size: int | None = None
    e_tag: str | None = None
    naming_scheme: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Staged:
    """A proposal that was found good, with the bytes that will become the manifest."""

    table: Table
    folder: FileIO
    version: Version
    manifest: Manifest
    content: bytes
    #: What it writes in place to fragments of the version before it.
    column_write: ColumnWrite | None = None
    #: The paths of the staged manifest and of all that it names and the version before did not.
    written: tuple[str, ...] = ()


def staged_name(table: Table, folder: FileIO, proposal: Proposal) -> str:
    """Return the file name of the staged manifest, or refuse a path that could name anything else."""
    place = f"{folder.store_path}/{versions_folder(check_branch(proposal.branch))}/"
    path = proposal.manifest_path.removeprefix("/")
    name = path.removeprefix(place)
    parsed = parse_staged_name(name)
    if name == path or parsed is None or parsed.version != proposal.version:
        raise InvalidInputError(
            f"manifest_path does not name a staged manifest for version {proposal.version} of table "
            f"{format_identifier(table.identifier)!r}: stage it in the table's own _versions folder."
        )
    scheme = proposal.naming_scheme
    if scheme is not None and scheme.upper() != parsed.scheme:
        raise InvalidInputError(f"naming_scheme is {scheme!r}, but the staged manifest is named as {parsed.scheme}.")
    return name


class Inspector:
    """Reads staged manifests and compares them with the version they follow."""

    def __init__(self, confinement: Confinement, cache_bytes: int) -> None:
        self._confinement = confinement
        self._lock = Lock()
        # Of each branch the newest only: no commit is ever compared with an older one.
        self._seen: LRUCache[tuple[str, str], tuple[str, Manifest]] = LRUCache(
            max(cache_bytes, 1),
            getsizeof=lambda seen: 400 + 250 * (len(seen[1].data_files) + len(seen[1].deletion_files)),
        )

    def inspect(self, table: Table, folder: FileIO, proposal: Proposal, latest: Version | None) -> Staged:
        """Return the staged version, or raise what is wrong with it; raises ``FileNotFoundError`` if it is gone."""
        branch = check_branch(proposal.branch)
        staged = staged_name(table, folder, proposal)
        scheme = _scheme_of(staged)
        if latest is not None and _scheme_of(latest.manifest) != scheme:
            raise InvalidInputError(f"The table's manifests are not named as {scheme}; use its naming scheme.")
        path = f"{versions_folder(branch)}/{staged}"
        content = folder.read(path)
        _check_tag(folder, path, proposal, len(content))
        manifest = _check_content(content, proposal.version, branch)
        follows = latest is not None and latest.version + 1 == proposal.version
        before = self._before(table, folder, latest) if follows or manifest.bases else None
        column_write = None
        if manifest.bases:
            self._confinement.check_staged(table, manifest, before.bases if before is not None else ())
        if follows and before is not None:
            _check_lineage(folder, branch, manifest, before)
            column_write = column_write_of(folder, branch, content, manifest, before)
        version = Version(
            table_id=table.id,
            branch=branch,
            version=proposal.version,
            manifest=manifest_name(proposal.version, scheme),
            staged=staged,
            size=len(content),
            digest=digest_of(content),
            metadata=dict(proposal.metadata),
            pending=True,
            created_at=manifest.timestamp_millis,
        )
        written = (path, *new_files(branch, manifest, before))
        if any(folder.is_link(file) for file in written):
            raise InvalidInputError("The staged manifest names a file that is a link; a table holds files of its own.")
        return Staged(table, folder, version, manifest, content, column_write, written)

    def remember(self, version: Version, manifest: Manifest) -> None:
        """Keep a manifest that the next commit of its branch will be compared with."""
        with self._lock:
            seen = (version.digest, manifest)
            if self._seen.getsizeof(seen) <= self._seen.maxsize:
                self._seen[version.table_id, version.branch] = seen

    def _before(self, table: Table, folder: FileIO, latest: Version | None) -> Manifest | None:
        """Return the latest version's manifest; none where there is no version, or another writer's is unreadable."""
        try:
            return self._manifest_of(folder, latest) if latest is not None else None
        except BadManifestError:
            if table.managed:
                raise  # it was good when it was recorded, so it is recovered first
            return None

    def _manifest_of(self, folder: FileIO, version: Version) -> Manifest:
        with self._lock:
            digest, seen = self._seen.get((version.table_id, version.branch), ("", None))
        if seen is None or digest != version.digest or seen.version != version.version:
            seen = parse_manifest(folder.read(f"{versions_folder(version.branch)}/{version.manifest}"))
            self.remember(version, seen)
        return seen


def _check_lineage(folder: FileIO, branch: str, manifest: Manifest, before: Manifest) -> None:
    """Refuse a manifest that was derived from another table than this one.

    A writer that opened a table of the same name before it was dropped and made again stages manifests whose
    earlier data files went with the old table, or that forget the rows of the new one. What deletes whole fragments
    names no file: it is known by the ids that were given so far, unless both tables have given the same.
    """
    _check_labels(manifest, before)
    home = branch_folder(branch)
    unknown = sorted(manifest.data_files.keys() - before.data_files.keys())
    probed = unknown if len(unknown) <= _FILES_PROBED else [*unknown[: _FILES_PROBED - 1], unknown[-1]]
    if any(folder.stat(f"{home}data/{name}") is None for name in probed):
        raise ConcurrentModificationError("The staged manifest needs data files that this table does not have.")
    if before.fragment_ids <= manifest.fragment_ids:
        return
    operation = operation_of(folder, branch, manifest)
    if operation == "append" or (operation == "delete" and manifest.counters != before.counters):
        raise ConcurrentModificationError("The staged manifest follows another state than the latest version.")


def new_files(branch: str, manifest: Manifest, before: Manifest | None) -> list[str]:
    """Return the paths of what a manifest names and the version before did not; a folder ends with a slash."""
    home = branch_folder(branch)
    data, deletions, indices = set(manifest.data_files), manifest.deletion_files, manifest.index_folders
    if before is not None:
        data, deletions = data - before.data_files.keys(), deletions - before.deletion_files
        indices = indices - before.index_folders
    paths = [f"{home}data/{name}" for name in sorted(data)]
    paths += [f"{home}data/{name.removesuffix('.lance')}/" for name in sorted(data)]  # blobs beside a data file
    paths += [f"{home}_deletions/{name}" for name in sorted(deletions)]
    paths += [f"{home}_indices/{name}/" for name in sorted(indices)]
    if manifest.transaction_file and "/" not in manifest.transaction_file:
        paths.append(f"{home}_transactions/{manifest.transaction_file}")
    return paths


def _scheme_of(name: str) -> Scheme:
    parsed = parse_staged_name(name) or parse_manifest_name(name)
    return parsed.scheme if parsed else "V2"


def _check_tag(folder: FileIO, path: str, proposal: Proposal, size: int) -> None:
    if proposal.manifest_size is not None and proposal.manifest_size != size:
        raise InvalidInputError(f"manifest_size is {proposal.manifest_size}, but the staged manifest has {size} bytes.")
    if proposal.e_tag is None:
        return
    stored = folder.stat(path)
    if stored is not None and stored.e_tag is not None and _plain_tag(stored.e_tag) != _plain_tag(proposal.e_tag):
        raise InvalidInputError("e_tag is not that of the staged manifest: it was written again since.")


def _plain_tag(tag: str) -> str:
    return tag.removeprefix("W/").strip('"')


def _check_content(content: bytes, version: int, branch: str) -> Manifest:
    try:
        manifest = parse_manifest(content)
    except BadManifestError as error:
        raise InvalidInputError(f"The staged file is not a Lance manifest: {error}.") from None
    if manifest.version != version:
        raise InvalidInputError(f"The staged manifest is that of version {manifest.version}, not {version}.")
    if manifest.branch != branch:
        named = manifest.branch or "main"
        raise InvalidInputError(f"The staged manifest is that of branch {named!r}, not {branch or 'main'!r}.")
    if manifest.reader_flags & ~READABLE_FLAGS:
        raise InvalidInputError(
            f"The staged manifest needs features no reader here has (flags {manifest.reader_flags}); "
            "committing it would make the table unreadable."
        )
    return manifest


def column_write_of(
    folder: FileIO, branch: str, content: bytes, manifest: Manifest, before: Manifest | None
) -> ColumnWrite | None:
    """Return what a manifest writes in place to the version before it, if that is known; None if nothing.

    Its transaction is not read where all new files are of new fragments, as those of an append are.
    """
    new = manifest.data_files.keys() - before.data_files.keys() if before is not None else ()
    if before is not None and new and before.fragment_ids.isdisjoint(manifest.data_files[name] for name in new):
        return None
    return find_column_write(content, before, manifest.version, operation_of(folder, branch, manifest))


def _check_labels(manifest: Manifest, before: Manifest) -> None:
    """Refuse to make blobs of values that were written as something else, or the other way round."""
    keeps_files = manifest.data_files.keys() & before.data_files.keys() or (
        manifest.has_base_files and before.has_base_files
    )
    if keeps_files and manifest.blob_fields != before.blob_fields:
        common = manifest.field_ids & before.field_ids
        if any(manifest.blob_fields.get(number) != before.blob_fields.get(number) for number in common):
            raise InvalidInputError(
                "The staged manifest makes blobs of a field that held other values, or other values of one that held "
                "blobs; write a new column instead."
            )


def operation_of(folder: FileIO, branch: str, manifest: Manifest) -> str | None:
    """Return what a manifest's commit does; none when its transaction cannot be read."""
    if manifest.operation is not None or not manifest.transaction_file or "/" in manifest.transaction_file:
        return manifest.operation
    try:
        return parse_operation(folder.read(f"{branch_folder(branch)}_transactions/{manifest.transaction_file}"))
    except (FileNotFoundError, BadManifestError):
        return None
