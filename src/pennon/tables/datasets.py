"""Open datasets: one shared session with bounded caches, and handles of versions that cannot change."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import lance
from cachetools import LRUCache
from lance_namespace.errors import TableNotFoundError, TableVersionNotFoundError

from pennon.commits.committer import TableCommitter
from pennon.core.identifiers import format_identifier
from pennon.tables.query.first_rows import Head

if TYPE_CHECKING:
    from collections.abc import Callable

    from pennon.catalog import Connection
    from pennon.catalog.tables import Table
    from pennon.catalog.versions import Version
    from pennon.commits.authority import CommitAuthority
    from pennon.commits.column_writes import ColumnWrite
    from pennon.commits.history import History
    from pennon.storage.root import StorageRoot


#: Tables whose next write starts where the last one ended. Each names all fragments: not too many of them.
_MOST_WRITING = 64

_Key = tuple[str, str, int]


def _key(table: Table, version: Version) -> _Key:
    return (table.id, version.branch, version.version)


def _content(version: Version) -> str | None:
    """Return what a version's content is known by: a branch may be made anew, or a table by others than Pennon."""
    return version.digest or version.e_tag


class Handle:
    """A version that is open for reading: what it shows never changes.

    Threads share the handle, but never its dataset: methods such as ``read_transaction`` borrow a dataset of pylance
    mutably, and whoever uses it at that moment gets "Already mutably borrowed".
    """

    def __init__(self, content: str | None, dataset: Any) -> None:
        #: What the version's content is known by.
        self.content = content
        self.version: int = dataset.version
        #: Its first rows, once somebody asked for them.
        self.known_head: Head | None = None
        self._dataset = dataset

    @property
    def dataset(self) -> Any:
        """A dataset for the caller alone; a copy that shares all it has read costs 2 µs, whatever the table's size."""
        return copy(self._dataset)

    @property
    def head(self) -> Head:
        """The first rows of the version."""
        if self.known_head is None:
            self.known_head = Head(self.dataset)
        return self.known_head


class _Kept(NamedTuple):
    """A dataset that went on to the version it committed."""

    dataset: Any
    committer: TableCommitter
    at: Version


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
        self.session = lance.Session(
            index_cache_size_bytes=index_cache_bytes, metadata_cache_size_bytes=metadata_cache_bytes
        )
        self._lock = Lock()
        self._handles: LRUCache[_Key, Handle] = LRUCache(handles)
        self._writing: LRUCache[tuple[str, str], _Kept] = LRUCache(_MOST_WRITING)

    def at(self, table: Table, branch: str, version: int | None) -> Any:
        """Return a dataset of the caller's own at a version, by default the newest; reads through it never move."""
        return self.open(table, branch, version).dataset

    def open(self, table: Table, branch: str, version: int | None) -> Handle:
        """Return the handle of a version, by default the newest."""
        found = self._find(table, branch, version)
        handle = self._opened(table, found)
        if handle is None:
            found, dataset = self._open_whole(table, found, asked=version)
            handle = Handle(_content(found), self._authority.confinement.check_opened(table, dataset))
            with self._lock:
                self._handles[_key(table, found)] = handle
        return handle

    def reopen(self, table: Table, branch: str, version: int | None) -> Any:
        """Return a dataset as storage has it now: for what makes Lance read the manifest from there once more."""
        _, dataset = self._open_whole(table, self._find(table, branch, version), asked=version)
        return self._authority.confinement.check_opened(table, dataset)

    def _open_whole(self, table: Table, found: Version, *, asked: int | None) -> tuple[Version, Any]:
        """Open a version; one whose manifest is damaged is recovered first, or the one before it opened instead."""
        try:
            return found, self._open(table, found.branch, found.version)
        except Exception:
            if not self._history.repair(table, found):
                raise
        found = self._find(table, found.branch, asked)
        return found, self._open(table, found.branch, found.version)

    def opened(self, table: Table, branch: str, version: int | None) -> Handle | None:
        """Return the handle of a version if it is open already."""
        return self._opened(table, self._find(table, branch, version))

    def manifest_tag(self, table: Table, branch: str, version: int | None) -> str | None:
        """Return what tells the manifest of a version, by default the newest, from another one of the same number."""
        return _content(self._find(table, branch, version))

    def column_writes(self, table: Table, branch: str, since: int, until: int) -> list[ColumnWrite]:
        """Return what the versions of a branch after one and up to another wrote in place, oldest first."""
        return self._history.column_writes(table, branch, since, until)

    def _find(self, table: Table, branch: str, version: int | None) -> Version:
        return self._history.find(table, branch, version) if version is not None else self.newest(table, branch)

    def _opened(self, table: Table, found: Version) -> Handle | None:
        with self._lock:
            handle = self._handles.get(_key(table, found))
        return handle if handle is not None and handle.content == _content(found) else None

    def keep(self, table: Table, committed: Version, dataset: Any) -> None:
        """Keep the handle of a version that was just committed: the next reader or writer will want it.

        It takes the place of the one before it: each names all fragments, so that many of them are a lot of memory.
        """
        with self._lock:
            self._handles.pop(_key(table, replace(committed, version=committed.version - 1)), None)
            self._handles[_key(table, committed)] = Handle(_content(committed), copy(dataset))

    def newest(self, table: Table, branch: str) -> Version:
        """Return the newest version of a branch; raises the error that names what is missing."""
        newest = self._history.latest(table, branch)
        if newest is None:
            name = format_identifier(table.identifier)
            raise TableNotFoundError(f"Table {name!r} is declared, but has no data yet.")
        return newest

    def for_writing(self, table: Table, branch: str, note: Callable[[Connection], str]) -> tuple[Any, TableCommitter]:
        """Return the newest dataset of a branch and the committer its commits go through; raises what is missing."""
        newest = self.newest(table, branch)
        try:
            return self._for_writing(table, branch, newest, note)
        except Exception:
            if not self._history.repair(table, newest):
                raise
        return self._for_writing(table, branch, self.newest(table, branch), note)

    def _for_writing(
        self, table: Table, branch: str, newest: Version, note: Callable[[Connection], str]
    ) -> tuple[Any, TableCommitter]:
        with self._lock:
            # Taken out: no two writes share a committer, and one that fails does not come back.
            kept = self._writing.pop((table.id, branch), None)
        if kept is not None and kept.at.digest == newest.digest and kept.committer.table.location == table.location:
            kept.committer.begin(table, note)
            return kept.dataset, kept.committer
        committer = self.committer(table, note)
        try:
            opened = self._open_newest(table, branch, committer)
        except ValueError as error:
            raise _unreadable(table, newest.version) from error
        return self._authority.confinement.check_opened(table, opened), committer

    def _open_newest(self, table: Table, branch: str, committer: TableCommitter) -> Any:
        self._storage_root.check_links(table.location)
        if table.managed:
            dataset = lance.dataset(namespace_client=committer, table_id=list(table.identifier), session=self.session)
        else:
            dataset = lance.dataset(
                table.location, storage_options=self._storage_root.options or None, session=self.session
            )
        return dataset.checkout_version((branch, None)) if branch else dataset

    def keep_for_writing(self, branch: str, dataset: Any, committer: TableCommitter) -> None:
        """Keep the dataset of a branch after a write that succeeded: the next one starts where it has got to."""
        at = committer.committed
        # What was committed may be another branch that was made from this one, under the same number.
        if at is not None and committer.table.managed and (at.branch, at.version) == (branch, dataset.version):
            with self._lock:
                self._writing[at.table_id, branch] = _Kept(dataset, committer, at)

    def committer(self, table: Table, note: Callable[[Connection], str]) -> TableCommitter:
        """Return a committer for one incarnation of a table."""
        folder = self._storage_root.folder(table.location)
        return TableCommitter(table, folder, self._storage_root.options, self._history, self._authority, note)

    def _open(self, table: Table, branch: str, version: int) -> Any:
        self._storage_root.check_links(table.location)
        options = self._storage_root.options or None
        try:
            if branch:
                main = lance.dataset(table.location, storage_options=options, session=self.session)
                return main.checkout_version((branch, version))
            return lance.dataset(table.location, version=version, storage_options=options, session=self.session)
        except ValueError as error:
            raise _unreadable(table, version) from error


def _unreadable(table: Table, version: int) -> TableVersionNotFoundError:
    name = format_identifier(table.identifier)
    return TableVersionNotFoundError(f"Table {name!r} has no readable version {version}.")
