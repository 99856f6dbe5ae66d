"""Validation of staged manifests: each must be of this table, branch and version, and follow the latest version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import TYPE_CHECKING
from uuid import uuid4

from cachetools import LRUCache
from lance_namespace.errors import ConcurrentModificationError, InvalidInputError

from pennon.catalog.versions import Statistics, Version
from pennon.commits.append import append_fragments
from pennon.commits.column_writes import ColumnWrite, find_column_write
from pennon.commits.manifest import READABLE_FLAGS, InvalidManifestError, Manifest, parse_manifest, parse_operation
from pennon.commits.publication import digest_of
from pennon.commits.statistics import stale_since
from pennon.core.identifiers import format_identifier
from pennon.storage.file_io import FileTooLargeError
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
    from lance.fragment import FragmentMetadata

    from pennon.catalog.tables import Table
    from pennon.commits.confinement import Confinement
    from pennon.storage.file_io import FileIO

#: How many of the new data files that a manifest names are looked for on storage.
_FILES_PROBED = 8


@dataclass(frozen=True)
class Proposal:
    """A version that a client proposes to commit."""

    version: int
    manifest_path: str
    branch: str = ""
    manifest_size: int | None = None
    e_tag: str | None = None
    naming_scheme: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Staged:
    """A valid proposal, with the content of its manifest."""

    table: Table
    folder: FileIO
    version: Version
    manifest: Manifest
    content: bytes
    #: What it writes in place to fragments of the previous version.
    column_write: ColumnWrite | None = None
    #: The paths of the staged manifest and of all files that are new in it.
    written: tuple[str, ...] = ()


def staged_name(table: Table, folder: FileIO, proposal: Proposal) -> str:
    """Return the file name of the staged manifest; refuse a path that does not name one of this table."""
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
        raise InvalidInputError(
            f"naming_scheme is {scheme!r}, but the staged manifest has a name of scheme {parsed.scheme}."
        )
    return name


@dataclass(frozen=True)
class ManifestLimits:
    """Limits of the memory for manifests."""

    cache_bytes: int
    #: The largest manifest that a client may commit.
    max_bytes: int


class Inspector:
    """Reads staged manifests and compares them with the previous version."""

    def __init__(self, confinement: Confinement, limits: ManifestLimits) -> None:
        self._confinement = confinement
        self._max_bytes = limits.max_bytes
        self._lock = Lock()
        # Only the latest of each branch: no commit is compared with an older one.
        self._seen: LRUCache[tuple[str, str], tuple[str, Manifest]] = LRUCache(
            max(limits.cache_bytes, 1),
            getsizeof=lambda seen: 400 + 250 * (len(seen[1].data_files) + len(seen[1].deletion_files)),
        )

    def inspect(
        self, table: Table, folder: FileIO, proposal: Proposal, latest: Version | None, *, by_client: bool
    ) -> Staged:
        """Return the staged version if it is valid; raises ``FileNotFoundError`` if its manifest does not exist.

        The data files of a client's commit are looked for on storage; Pennon has just written its own.
        """
        branch = check_branch(proposal.branch)
        staged = staged_name(table, folder, proposal)
        scheme = _scheme_of(staged)
        if latest is not None and _scheme_of(latest.manifest) != scheme:
            raise InvalidInputError(
                f"The table's manifests do not use the naming scheme {scheme}; use the scheme of its latest version."
            )
        path = f"{versions_folder(branch)}/{staged}"
        try:
            content, e_tag = folder.read_tagged(path, self._max_bytes if by_client else None)
        except FileTooLargeError as error:
            raise InvalidInputError(
                f"The staged manifest has {error.size} bytes, more than {self._max_bytes} (the server's "
                "max_manifest_bytes). Compact the table, so that it has fewer fragments."
            ) from None
        _check_tag(proposal, len(content), e_tag)
        manifest = _check_content(content, proposal.version, branch)
        follows = latest is not None and latest.version + 1 == proposal.version
        before = self._before(table, folder, latest) if follows or manifest.bases else None
        column_write = None
        if manifest.bases:
            self._confinement.check_staged(table, manifest, before.bases if before is not None else ())
        if follows and before is not None:
            _check_lineage(folder, branch, manifest, before, probe=by_client)
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
            statistics=_statistics(folder, manifest, before if follows else None, latest, by_client=by_client),
        )
        written = (path, *new_files(branch, manifest, before))
        if any(folder.is_link(file) for file in written):
            raise InvalidInputError(
                "The staged manifest names a file that is a link; a table must have its files itself."
            )
        return Staged(table, folder, version, manifest, content, column_write, written)

    def stage_append(
        self, table: Table, folder: FileIO, latest: Version, content: bytes, fragments: Sequence[FragmentMetadata]
    ) -> Staged | None:
        """Write the manifest and the transaction of an append to the latest version; None if Lance must commit it."""
        before = self._manifest_of(folder, latest, content)
        appended = append_fragments(content, before, fragments)
        if appended is None:
            return None
        number = latest.version + 1
        final = manifest_name(number, _scheme_of(latest.manifest))
        version = Version(
            table_id=table.id,
            branch=latest.branch,
            version=number,
            manifest=final,
            staged=f"{final}-{uuid4()}",
            size=len(appended.content),
            digest=digest_of(appended.content),
            pending=True,
            created_at=appended.manifest.timestamp_millis,
            statistics=_statistics(folder, appended.manifest, before, latest, by_client=False),
        )
        home = branch_folder(latest.branch)
        path = f"{versions_folder(latest.branch)}/{version.staged}"
        transaction = f"{home}_transactions/{appended.manifest.transaction_file}"
        try:
            folder.create({transaction: appended.transaction, path: appended.content})
        except FileNotFoundError:
            return None  # the table was dropped meanwhile, or a client has removed the folder of its transactions
        written = (path, *new_files(latest.branch, appended.manifest, before))
        return Staged(table, folder, version, appended.manifest, appended.content, None, written)

    def remember(self, version: Version, manifest: Manifest) -> None:
        """Cache a manifest, with which the next commit of its branch is compared."""
        with self._lock:
            seen = (version.digest, manifest)
            if self._seen.getsizeof(seen) <= self._seen.maxsize:
                self._seen[version.table_id, version.branch] = seen

    def _before(self, table: Table, folder: FileIO, latest: Version | None) -> Manifest | None:
        """Return the manifest of the latest version; None without one, or if another writer's cannot be read."""
        try:
            return self._manifest_of(folder, latest) if latest is not None else None
        except InvalidManifestError:
            if table.managed:
                raise  # it was valid when it was recorded, so the caller recovers it first
            return None

    def _manifest_of(self, folder: FileIO, version: Version, content: bytes | None = None) -> Manifest:
        with self._lock:
            digest, seen = self._seen.get((version.table_id, version.branch), ("", None))
        if seen is None or digest != version.digest or seen.version != version.version:
            content = content or folder.read(f"{versions_folder(version.branch)}/{version.manifest}")
            seen = parse_manifest(content)
            self.remember(version, seen)
        return seen


def _check_lineage(folder: FileIO, branch: str, manifest: Manifest, before: Manifest, *, probe: bool) -> None:
    """Refuse a manifest that is derived from another table.

    A writer that opened a table before it was dropped and created again stages manifests that need data files of the
    dropped table, or that lack rows of the new one. A commit that only deletes whole fragments names no new file; it is
    recognized by the highest ids assigned so far, unless they are the same in both tables.
    """
    _check_labels(manifest, before)
    home = branch_folder(branch)
    unknown = sorted(manifest.data_files.keys() - before.data_files.keys())
    probed = unknown if len(unknown) <= _FILES_PROBED else [*unknown[: _FILES_PROBED - 1], unknown[-1]]
    if probe and any(folder.stat(f"{home}data/{name}") is None for name in probed):
        raise ConcurrentModificationError("The staged manifest needs data files that this table does not have.")
    if before.fragment_ids <= manifest.fragment_ids:
        return
    operation = operation_of(folder, branch, manifest)
    if operation == "append" or (operation == "delete" and manifest.counters != before.counters):
        raise ConcurrentModificationError("The staged manifest does not follow the latest version.")


def new_files(branch: str, manifest: Manifest, before: Manifest | None) -> list[str]:
    """Return the paths that are new in a manifest; folders end with a slash."""
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


def _check_tag(proposal: Proposal, size: int, e_tag: str | None) -> None:
    if proposal.manifest_size is not None and proposal.manifest_size != size:
        raise InvalidInputError(f"manifest_size is {proposal.manifest_size}, but the staged manifest has {size} bytes.")
    if proposal.e_tag is not None and e_tag is not None and _plain_tag(e_tag) != _plain_tag(proposal.e_tag):
        raise InvalidInputError("e_tag does not match the staged manifest: it was overwritten since.")


def _plain_tag(tag: str) -> str:
    return tag.removeprefix("W/").strip('"')


def _check_content(content: bytes, version: int, branch: str) -> Manifest:
    try:
        manifest = parse_manifest(content)
    except InvalidManifestError as error:
        raise InvalidInputError(f"The staged file is not a Lance manifest: {error}.") from None
    if manifest.version != version:
        raise InvalidInputError(f"The staged manifest is of version {manifest.version}, not {version}.")
    if manifest.branch != branch:
        named = manifest.branch or "main"
        raise InvalidInputError(f"The staged manifest is of branch {named!r}, not {branch or 'main'!r}.")
    if manifest.reader_flags & ~READABLE_FLAGS:
        raise InvalidInputError(
            f"The staged manifest needs features that this server cannot read (flags {manifest.reader_flags}), so the "
            "table would become unreadable."
        )
    return manifest


def column_write_of(
    folder: FileIO, branch: str, content: bytes, manifest: Manifest, before: Manifest | None
) -> ColumnWrite | None:
    """Return what a manifest writes in place to the previous version; None if nothing.

    If all new files belong to new fragments, as in an append, its transaction is not read.
    """
    new = manifest.data_files.keys() - before.data_files.keys() if before is not None else ()
    if before is not None and new and before.fragment_ids.isdisjoint(manifest.data_files[name] for name in new):
        return None
    return find_column_write(content, before, manifest.version, operation_of(folder, branch, manifest))


def _statistics(
    folder: FileIO, manifest: Manifest, before: Manifest | None, latest: Version | None, *, by_client: bool
) -> Statistics:
    """Return the statistics of a manifest. Pennon's own compactions leave no stale entries in indices."""
    if latest is None or before is None or not manifest.vector_segments:
        return manifest.statistics
    known = latest.statistics.stale_since if latest.statistics is not None else None
    operation = operation_of(folder, manifest.branch, manifest) if by_client else None
    return replace(manifest.statistics, stale_since=stale_since(manifest, before, known, operation))


def _check_labels(manifest: Manifest, before: Manifest) -> None:
    """Refuse to relabel values as blobs, or blobs as other values."""
    keeps_files = manifest.data_files.keys() & before.data_files.keys() or (
        manifest.has_base_files and before.has_base_files
    )
    if keeps_files and manifest.blob_fields != before.blob_fields:
        common = manifest.field_ids & before.field_ids
        if any(manifest.blob_fields.get(number) != before.blob_fields.get(number) for number in common):
            raise InvalidInputError(
                "The staged manifest relabels the values of a field as blobs, or blobs as other values; write a new "
                "column instead."
            )


def operation_of(folder: FileIO, branch: str, manifest: Manifest) -> str | None:
    """Return the operation of a commit; None if its transaction cannot be read."""
    if manifest.operation is not None or not manifest.transaction_file or "/" in manifest.transaction_file:
        return manifest.operation
    try:
        return parse_operation(folder.read(f"{branch_folder(branch)}_transactions/{manifest.transaction_file}"))
    except (FileNotFoundError, InvalidManifestError):
        return None
