"""Open datasets: one shared session with bounded caches, and cached handles of immutable versions."""

from __future__ import annotations

from contextlib import suppress
from copy import copy
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

import lance
import pyarrow as pa
from cachetools import LRUCache
from lance import LanceDataset
from lance_namespace.errors import TableNotFoundError, TableVersionNotFoundError

from pennon.commits.append import MAX_MANIFEST_BYTES
from pennon.commits.committer import TableCommitter
from pennon.commits.manifest import manifest_message
from pennon.commits.publication import digest_of
from pennon.core.identifiers import format_identifier
from pennon.storage.layout import versions_folder
from pennon.tables.arrow_types import contains_type
from pennon.tables.query.first_rows import FirstRowsCache
from pennon.tables.query.row_sizes import RowSizes, keep_row_sizes, measure_rows
from pennon.tables.snapshots import new_session

if TYPE_CHECKING:
    from collections.abc import Callable

    from pennon.catalog import Connection
    from pennon.catalog.tables import Table
    from pennon.catalog.versions import Version
    from pennon.commits.authority import CommitAuthority
    from pennon.commits.column_writes import ColumnWrite
    from pennon.commits.history import History
    from pennon.storage.root import StorageRoot


#: Datasets that the next write of a table reuses. Each lists all fragments, so only a few are kept.
_MAX_WRITERS = 64

_TEXT_KINDS = (
    *(pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    *(pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary),
)

_Key = tuple[str, str, int]


def _key(table: Table, version: Version) -> _Key:
    return (table.id, version.branch, version.version)


def _content(version: Version) -> str | None:
    """Return the identity of a version's content: a recreated branch or table can have the same version number."""
    return version.digest or version.e_tag


class Handle:
    """An open, immutable version.

    Threads share the handle, but never its dataset: methods such as ``read_transaction`` borrow a pylance dataset
    mutably, and concurrent calls then fail with "Already mutably borrowed".
    """

    def __init__(self, content: str | None, dataset: LanceDataset) -> None:
        #: The identity of the version's content.
        self.content = content
        self.version: int = dataset.version
        #: The first rows, once a query has read them.
        self.cached_first_rows: FirstRowsCache | None = None
        self._row_sizes: RowSizes | None = None
        self._text_columns: frozenset[str] | None = None
        self._dataset = dataset

    @property
    def dataset(self) -> LanceDataset:
        """A dataset for the caller alone; the copy shares all caches and costs 2 µs, whatever the table's size."""
        copied = copy(self._dataset)
        if self._row_sizes is not None:
            keep_row_sizes(copied, self._row_sizes)
        return copied

    @property
    def row_sizes(self) -> RowSizes:
        """The sizes of the version's rows; a column takes about a millisecond to measure, once."""
        if self._row_sizes is None:
            self._row_sizes = measure_rows(self._dataset)
        return self._row_sizes

    @property
    def text_columns(self) -> frozenset[str]:
        """The columns with texts or bytes in them, in lower case; kept, because every filter is checked for them."""
        if self._text_columns is None:
            schema = self.dataset.schema
            self._text_columns = frozenset(
                field.name.lower() for field in schema if contains_type(_is_text, field.type)
            )
        return self._text_columns

    @property
    def first_rows(self) -> FirstRowsCache:
        """The first rows of the version."""
        if self.cached_first_rows is None:
            self.cached_first_rows = FirstRowsCache(self.dataset)
        return self.cached_first_rows


def _is_text(kind: pa.DataType) -> bool:
    return any(is_kind(kind) for is_kind in _TEXT_KINDS)


class _Writer(NamedTuple):
    """A dataset at the version that it last committed."""

    dataset: LanceDataset
    committer: TableCommitter
    version: Version


class AppendBase(NamedTuple):
    """A version that the next small append follows."""

    version: Version
    #: Of this version, or of one before it from which it differs by appends alone.
    dataset: LanceDataset
    #: The content of its manifest; empty if Lance must commit the append.
    content: bytes


class Datasets:
    """Opens tables for reading, pinned to a version, and for writing, through the commit authority."""

    def __init__(
        self,
        storage_root: StorageRoot,
        history: History,
        authority: CommitAuthority,
        *,
        index_cache_bytes: int,
        metadata_cache_bytes: int,
        handles: int,
    ) -> None:
        self._storage_root = storage_root
        self._history = history
        self._authority = authority
        self.session = new_session(index_cache_bytes=index_cache_bytes, metadata_cache_bytes=metadata_cache_bytes)
        self._lock = Lock()
        self._handles: LRUCache[_Key, Handle] = LRUCache(handles)
        self._writers: LRUCache[tuple[str, str], _Writer] = LRUCache(_MAX_WRITERS)
        self._append_bases: LRUCache[tuple[str, str], AppendBase] = LRUCache(_MAX_WRITERS)

    def at(self, table: Table, branch: str, version: int | None) -> LanceDataset:
        """Return a dataset for the caller alone, pinned to a version, by default the newest."""
        return self.open(table, branch, version).dataset

    def open(self, table: Table, branch: str, version: int | None) -> Handle:
        """Return the handle of a version, by default the newest."""
        found = self._find(table, branch, version)
        handle = self._cached(table, found)
        if handle is None:
            dataset = self._open_appended(table, found)
            if dataset is None:
                found, dataset = self._open_repaired(table, found, requested=version)
            handle = Handle(_content(found), self._authority.confinement.check_opened(table, dataset))
            with self._lock:
                self._handles[_key(table, found)] = handle
        return handle

    def reopen(self, table: Table, branch: str, version: int | None) -> LanceDataset:
        """Open a version from storage, bypassing the cache: for calls that make Lance read the manifest again."""
        _, dataset = self._open_repaired(table, self._find(table, branch, version), requested=version)
        checked: LanceDataset = self._authority.confinement.check_opened(table, dataset)
        return checked

    def _open_repaired(self, table: Table, found: Version, *, requested: int | None) -> tuple[Version, LanceDataset]:
        """Open a version; if its manifest is damaged, repair it first or open the version before it."""
        try:
            return found, self._open(table, found.branch, found.version)
        except Exception:
            if not self._history.repair(table, found):
                raise
        found = self._find(table, found.branch, requested)
        return found, self._open(table, found.branch, found.version)

    def find_open(self, table: Table, branch: str, version: int | None) -> Handle | None:
        """Return the handle of a version if it is already open."""
        return self._cached(table, self._find(table, branch, version))

    def manifest_tag(self, table: Table, branch: str, version: int | None) -> str | None:
        """Return the identity of a version's manifest, by default of the newest: a version number can be reused."""
        return _content(self._find(table, branch, version))

    def column_writes(self, table: Table, branch: str, since: int, until: int) -> list[ColumnWrite]:
        """Return the columns that versions after ``since`` and up to ``until`` wrote in place, oldest first."""
        return self._history.column_writes(table, branch, since, until)

    def _find(self, table: Table, branch: str, version: int | None) -> Version:
        return self._history.find(table, branch, version) if version is not None else self.newest(table, branch)

    def _cached(self, table: Table, found: Version) -> Handle | None:
        with self._lock:
            handle = self._handles.get(_key(table, found))
        return handle if handle is not None and handle.content == _content(found) else None

    def cache_committed(self, table: Table, committed: Version, dataset: LanceDataset) -> None:
        """Cache the handle of a new version for the next reader or writer.

        It replaces the handle of the previous version: each handle lists all fragments, and takes much memory.
        """
        with self._lock:
            self._handles.pop(_key(table, replace(committed, version=committed.version - 1)), None)
            self._handles[_key(table, committed)] = Handle(_content(committed), copy(dataset))

    def append_base(self, table: Table, branch: str) -> AppendBase:
        """Return the newest version of a branch for a small append."""
        with self._lock:
            base = self._append_bases.get((table.id, branch))
        newest = self.newest(table, branch)
        if base is not None and _content(base.version) == _content(newest) and base.version.version == newest.version:
            return base
        handle = self._cached(table, newest)
        content = self._manifest_content(table, newest) if table.managed and not branch else b""
        if handle is None and content:
            dataset = self._open_content(table, newest, content)
            if dataset is not None:
                return AppendBase(newest, self._authority.confinement.check_opened(table, dataset), content)
        handle = handle or self.open(table, branch, None)
        return AppendBase(newest, handle.dataset, content if handle.content == _content(newest) else b"")

    def _manifest_content(self, table: Table, version: Version) -> bytes:
        """Return the content of a manifest; empty if it is large, or not the one that was recorded."""
        if version.size > MAX_MANIFEST_BYTES:
            return b""
        with suppress(FileNotFoundError):
            folder = self._storage_root.folder(table.location)
            content = folder.read(f"{versions_folder(version.branch)}/{version.manifest}")
            if digest_of(content) == version.digest:
                return content
        return b""

    def keep_append_base(self, table: Table, base: AppendBase) -> None:
        """Keep a version that was just appended, for the next append, and for readers to open."""
        with self._lock:
            self._handles.pop(_key(table, replace(base.version, version=base.version.version - 1)), None)
            self._append_bases[table.id, base.version.branch] = base

    def _open_appended(self, table: Table, found: Version) -> LanceDataset | None:
        """Open a version that was just appended without reading its manifest."""
        with self._lock:
            base = self._append_bases.get((table.id, found.branch))
        if base is None or not base.content or base.version.digest != found.digest:
            return None
        return self._open_content(table, found, base.content)

    def _open_content(self, table: Table, version: Version, content: bytes) -> LanceDataset | None:
        """Open a version by the content of its manifest; None if the manifest was removed or damaged meanwhile."""
        self._storage_root.check_links(table.location)
        try:
            return LanceDataset(
                table.location,
                version=version.version,
                storage_options=self._storage_root.options or None,
                serialized_manifest=manifest_message(content),
                session=self.session,
            )
        except (OSError, ValueError):
            return None

    def newest(self, table: Table, branch: str) -> Version:
        """Return the newest version of a branch; raises ``TableNotFoundError`` if the table has no data yet."""
        newest = self._history.latest(table, branch)
        if newest is None:
            name = format_identifier(table.identifier)
            raise TableNotFoundError(f"Table {name!r} is declared but has no data yet.")
        return newest

    def open_for_writing(
        self, table: Table, branch: str, on_commit: Callable[[Connection], str]
    ) -> tuple[LanceDataset, TableCommitter]:
        """Return the newest dataset of a branch and the committer of its commits."""
        newest = self.newest(table, branch)
        try:
            return self._open_for_writing(table, branch, newest, on_commit)
        except Exception:
            if not self._history.repair(table, newest):
                raise
        return self._open_for_writing(table, branch, self.newest(table, branch), on_commit)

    def _open_for_writing(
        self, table: Table, branch: str, newest: Version, on_commit: Callable[[Connection], str]
    ) -> tuple[LanceDataset, TableCommitter]:
        with self._lock:
            # Removed from the cache: no two writes share a committer, and a failed write does not return it.
            writer = self._writers.pop((table.id, branch), None)
        if (
            writer is not None
            and writer.version.digest == newest.digest
            and writer.committer.table.location == table.location
        ):
            writer.committer.begin(table, on_commit)
            return writer.dataset, writer.committer
        committer = self.committer(table, on_commit)
        try:
            dataset = self._open_newest(table, branch, committer)
        except BaseException as error:
            if isinstance(error, ValueError) or type(error).__name__ == "PanicException":
                raise _unreadable(table, newest.version) from error
            raise
        return self._authority.confinement.check_opened(table, dataset), committer

    def _open_newest(self, table: Table, branch: str, committer: TableCommitter) -> LanceDataset:
        self._storage_root.check_links(table.location)
        if table.managed:
            dataset = lance.dataset(namespace_client=committer, table_id=list(table.identifier), session=self.session)
        else:
            dataset = lance.dataset(
                table.location, storage_options=self._storage_root.options or None, session=self.session
            )
        return dataset.checkout_version((branch, None)) if branch else dataset

    def return_writer(self, branch: str, dataset: LanceDataset, committer: TableCommitter) -> None:
        """Keep the dataset of a branch after a successful write, for the next write to start from."""
        committed = committer.committed
        # The commit may have created another branch from this one, with the same version number.
        if (
            committed is not None
            and committer.table.managed
            and (committed.branch, committed.version) == (branch, dataset.version)
        ):
            with self._lock:
                self._writers[committed.table_id, branch] = _Writer(dataset, committer, committed)

    def committer(self, table: Table, on_commit: Callable[[Connection], str]) -> TableCommitter:
        """Return a committer for one incarnation of a table."""
        folder = self._storage_root.folder(table.location)
        return TableCommitter(table, folder, self._storage_root.options, self._history, self._authority, on_commit)

    def _open(self, table: Table, branch: str, version: int) -> LanceDataset:
        self._storage_root.check_links(table.location)
        options = self._storage_root.options or None
        try:
            if branch:
                main = lance.dataset(table.location, storage_options=options, session=self.session)
                return main.checkout_version((branch, version))
            return lance.dataset(table.location, version=version, storage_options=options, session=self.session)
        except BaseException as error:
            if isinstance(error, ValueError) or type(error).__name__ == "PanicException":
                raise _unreadable(table, version) from error
            raise


def _unreadable(table: Table, version: int) -> TableVersionNotFoundError:
    name = format_identifier(table.identifier)
    return TableVersionNotFoundError(f"Table {name!r} has no readable version {version}.")
