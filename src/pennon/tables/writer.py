"""Writes to tables: create, append, overwrite and any other change, one at a time for each table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar, cast

import pyarrow as pa
from lance import LanceDataset, LanceOperation
from lance.fragment import FragmentMetadata, write_fragments
from lance_namespace.errors import InternalError, LanceNamespaceError, TableNotFoundError

from pennon.catalog import tables, write_at_least_once
from pennon.commits.append import MAX_MANIFEST_BYTES
from pennon.commits.durability import flush_fragments, flush_version
from pennon.core.identifiers import format_identifier
from pennon.tables.arrow_types import contains_type
from pennon.tables.datasets import AppendBase
from pennon.tables.fragment_files import remove_fragment_files, write_group
from pennon.tables.group_commit import CommitQueue
from pennon.tables.lance_errors import typed_errors
from pennon.tables.schema_checks import check_schema

if TYPE_CHECKING:
    from pennon.catalog import Connection, Database
    from pennon.catalog.tables import Table
    from pennon.commits.committer import TableCommitter
    from pennon.commits.ownership import Ownership
    from pennon.storage.root import StorageRoot
    from pennon.tables.arrow_stream import ArrowSource
    from pennon.tables.datasets import Datasets

Result = TypeVar("Result")
#: Runs in the transaction of a commit: records the request's transaction and returns its id.
OnCommit = Callable[["Connection"], str]
#: An operation that commits new files.
FileOperation: TypeAlias = "LanceOperation.Append | LanceOperation.Overwrite"

#: The largest data file: a fragment stays a good unit of work.
_FILE_BYTES = 1024 * 1024 * 1024


@dataclass(frozen=True)
class WriteResult:
    """The outcome of a write."""

    version: int
    transaction_id: str | None
    rows: int = 0


@dataclass(frozen=True)
class UploadCommit:
    """The commit of all parts of an upload."""

    operation: FileOperation
    rows: int
    #: The version that the files were written for; None if it does not matter.
    version: int | None


@dataclass(frozen=True)
class _Append:
    """Rows that wait for a group commit."""

    rows: pa.Table
    on_commit: OnCommit


class Writer:
    """Writes to tables through the commit authority."""

    def __init__(self, database: Database, storage_root: StorageRoot, datasets: Datasets, ownership: Ownership) -> None:
        self._database = database
        self._storage_root = storage_root
        self._ownership = ownership
        self._datasets = datasets
        self._queue: CommitQueue[_Append, WriteResult] = CommitQueue()

    def create(self, table: Table, source: ArrowSource, on_commit: OnCommit) -> WriteResult:
        """Create a table and its first version in one transaction."""
        check_schema(source.schema)
        committer = self._datasets.committer(table, on_commit)
        with (
            self._queue.lock(table.location),
            self._original_errors(table, committer, source, new=True),
            typed_errors(),
        ):
            operation = self._write_files(table, "", table.location, source, "create")
            try:
                dataset = self._commit(table.location, operation, 0, committer, "")
            except BaseException:
                self._discard(table, "", operation.fragments, committer)
                raise
        return WriteResult(dataset.version, committer.transaction_id, source.rows)

    def append(self, table: Table, branch: str, source: ArrowSource, on_commit: OnCommit) -> WriteResult:
        """Append rows: a few in a group commit with other callers, many as a stream."""
        self._ownership.require_table(table)
        self.adapt_source(table, branch, source)
        if source.is_small:
            return self._queue.submit(
                f"{table.id}/{branch}",
                _Append(source.table(), on_commit),
                partial(self._append_group, table, branch),
                partial(self._exclusive, table, required=False),
            )
        dataset = self._datasets.at(table, branch, None)
        with self._original_errors(table, None, source):
            operation = self._write_files(table, branch, dataset, source, "append")
        return self._commit_files(table, branch, on_commit, source, operation, dataset.version)

    def adapt_source(self, table: Table, branch: str, source: ArrowSource) -> None:
        """Convert a source to a table's types that the client cannot express; call it before reading the source."""
        if any(contains_type(pa.types.is_struct, field.type) for field in source.schema):
            source.adapt_to(self._datasets.at(table, branch, None).schema)

    def overwrite(self, table: Table, branch: str, source: ArrowSource, on_commit: OnCommit) -> WriteResult:
        """Replace all rows and the schema by those of the source, in a new version."""
        check_schema(source.schema)
        dataset = self._datasets.at(table, branch, None)
        with self._original_errors(table, None, source):
            operation = self._write_files(table, branch, dataset, source, "overwrite")
        return self._commit_files(table, branch, on_commit, source, operation)

    def change(
        self,
        table: Table,
        branch: str,
        on_commit: OnCommit,
        work: Callable[[LanceDataset], Result],
        *,
        exclusive: bool = False,
    ) -> tuple[Result, WriteResult]:
        """Run work that commits to a table's newest dataset, holding the table's lock.

        ``exclusive`` also locks out the writers of other processes, for work whose conflicts Lance does not detect.
        """
        with self._lock_branch(table, branch, exclusive=exclusive), self._original_errors(table, None, None):
            dataset, committer = self._datasets.open_for_writing(table, branch, on_commit)
            with self._original_errors(table, committer, None), typed_errors():
                before = dataset.version
                result = work(dataset)
            transaction_id, version = committer.transaction_id, dataset.version
            if version != before and not table.managed:
                flush_version(self._storage_root.folder(table.location), branch, version)
            if transaction_id is None and version != before:
                transaction_id = write_at_least_once(self._database, on_commit)
            self._datasets.return_writer(branch, dataset, committer)
            return result, WriteResult(version, transaction_id)

    def commit(
        self,
        table: Table,
        branch: str,
        on_commit: Callable[[Connection, int], str],
        build: Callable[[LanceDataset], LanceOperation.BaseOperation | None],
    ) -> WriteResult | None:
        """Build an operation from the newest dataset and commit it, holding the table's lock; None if there is none.

        ``on_commit`` also gets the new version.
        """
        with self._lock_branch(table, branch, exclusive=False), self._original_errors(table, None, None):
            dataset, committer = self._datasets.open_for_writing(
                table, branch, lambda connection: on_commit(connection, committer.proposed)
            )
            operation = build(dataset)
            if operation is None:
                return None
            with self._original_errors(table, committer, None), typed_errors():
                done = self._commit(dataset, operation, dataset.version, committer, branch)
        transaction_id = committer.transaction_id
        if transaction_id is None:
            transaction_id = self._database.write(lambda connection: on_commit(connection, done.version))
        return WriteResult(done.version, transaction_id)

    @contextmanager
    def lock(self, *held: Table) -> Iterator[None]:
        """Lock tables against all processes inside the block: for changes that are not commits."""
        ids = sorted({table.id for table in held})  # always in the same order, to prevent deadlocks
        with ExitStack() as locks:
            for table_id in ids:
                locks.enter_context(self._queue.lock(f"{table_id}/"))
            locks.enter_context(self._database.exclusive(*ids))
            yield

    @contextmanager
    def _lock_branch(self, table: Table, branch: str, *, exclusive: bool) -> Iterator[None]:
        """Lock a branch in this process, and the table in others if that is required or costs nothing."""
        self._ownership.require_table(table)
        with self._queue.lock(f"{table.id}/{branch}"), self._exclusive(table, required=exclusive):
            yield

    @contextmanager
    def _exclusive(self, table: Table, *, required: bool) -> Iterator[None]:
        if required or self._database.embedded:
            with self._database.exclusive(table.id):
                yield
        else:
            yield

    def write_part(
        self, table: Table, branch: str, source: ArrowSource, *, overwrite: bool
    ) -> tuple[list[FragmentMetadata], int]:
        """Write the files of an upload's part without a commit; returns them and the version they were written for."""
        if overwrite:
            check_schema(source.schema)
        else:
            self.adapt_source(table, branch, source)
        dataset = self._datasets.at(table, branch, None)
        with self._original_errors(table, None, source):
            operation = self._write_files(table, branch, dataset, source, "overwrite" if overwrite else "append")
        return list(operation.fragments), dataset.version

    def commit_parts(
        self, table: Table, branch: str, plan: Callable[[], UploadCommit], on_commit: OnCommit
    ) -> WriteResult:
        """Commit the files of an upload's parts."""
        with self._lock_branch(table, branch, exclusive=True):
            parts = plan()
            dataset, committer = self._datasets.open_for_writing(table, branch, on_commit)
            with self._original_errors(table, committer, None), typed_errors():
                done = self._commit(dataset, parts.operation, parts.version or dataset.version, committer, branch)
            return WriteResult(
                done.version, committer.transaction_id or write_at_least_once(self._database, on_commit), parts.rows
            )

    def _append_group(self, table: Table, branch: str, group: list[_Append]) -> list[WriteResult | Exception]:
        """Append the rows of several callers in one commit; rows that do not fit or are refused fail alone."""
        fitting: list[int] = []
        ids: list[str] = []
        refusals: dict[int, Exception] = {}

        def record_all(connection: Connection) -> str:
            ids.clear()
            for index in fitting:
                try:
                    ids.append(group[index].on_commit(connection))  # each caller gets its own transaction
                except LanceNamespaceError as error:
                    refusals[index] = error
                    raise
            return ids[0]

        with self._original_errors(table, None, None):
            base = self._datasets.append_base(table, branch)
            committer = self._datasets.committer(table, record_all)
            outcomes, fragments = write_group(base.dataset, [waiting.rows for waiting in group])
        fitting += [index for index, outcome in enumerate(outcomes) if outcome is None]
        if fitting:
            try:
                with self._original_errors(table, committer, None), typed_errors():
                    version = self._commit_append(table, base, fragments, committer)
            except BaseException:
                self._discard(table, branch, fragments, committer)
                if refusals and len(group) > 1:
                    return self._append_others(table, branch, group, refusals)
                raise
            if not ids:
                self._database.write(record_all)
        written = iter([WriteResult(version, ids[n], group[i].rows.num_rows) for n, i in enumerate(fitting)])
        return [next(written) if outcome is None else outcome for outcome in outcomes]

    def _commit_append(
        self, table: Table, base: AppendBase, fragments: list[FragmentMetadata], committer: TableCommitter
    ) -> int:
        """Commit the fragments of a small append and return its version."""
        done = committer.append(base.version, base.content, fragments) if base.content and fragments else None
        if done is not None:
            version, content = done
            if len(content) <= MAX_MANIFEST_BYTES:
                self._datasets.keep_append_base(table, AppendBase(version, base.dataset, content))
            return version.version
        dataset = self._datasets.at(table, base.version.branch, None)
        append = LanceOperation.Append(fragments)
        committed = self._commit(dataset, append, base.version.version, committer, base.version.branch)
        if committer.committed is not None:
            self._datasets.cache_committed(table, committer.committed, committed)
        return committed.version

    def _append_others(
        self, table: Table, branch: str, group: list[_Append], refusals: dict[int, Exception]
    ) -> list[WriteResult | Exception]:
        """Append the rows of a group except the refused ones."""
        others = [waiting for index, waiting in enumerate(group) if index not in refusals]
        appended = iter(self._append_group(table, branch, others))
        return [refusals[index] if index in refusals else next(appended) for index in range(len(group))]

    def _write_files(
        self,
        table: Table,
        branch: str,
        target: str | LanceDataset,
        source: ArrowSource,
        mode: Literal["create", "append", "overwrite"],
    ) -> FileOperation:
        """Write the files of a source and return the operation that commits them, with Lance's own schema."""
        self._ownership.require_table(table)
        with typed_errors():
            transaction = write_fragments(
                source.reader(),
                target,
                schema=source.schema,
                mode=mode,
                max_bytes_per_file=_FILE_BYTES,
                storage_options=self._storage_root.options or None,
                enable_stable_row_ids=mode == "create",
                return_transaction=True,
            )
        operation = cast("FileOperation", transaction.operation)
        written = sum(fragment.physical_rows for fragment in operation.fragments)
        if written != source.rows:
            raise InternalError(f"Received {source.rows} rows but wrote {written}; nothing was committed.")
        flush_fragments(self._storage_root.folder(table.location), branch, list(operation.fragments))
        return operation

    def _commit_files(
        self,
        table: Table,
        branch: str,
        on_commit: OnCommit,
        source: ArrowSource,
        operation: FileOperation,
        read_version: int | None = None,
    ) -> WriteResult:
        """Commit files; with a ``read_version``, Lance checks for conflicts with commits since that version."""
        committer: TableCommitter | None = None
        try:
            with self._lock_branch(table, branch, exclusive=False):
                dataset, committer = self._datasets.open_for_writing(table, branch, on_commit)
                with self._original_errors(table, committer, source), typed_errors():
                    done = self._commit(dataset, operation, read_version or dataset.version, committer, branch)
        except BaseException:
            self._discard(table, branch, operation.fragments, committer)
            raise
        return WriteResult(
            done.version, committer.transaction_id or write_at_least_once(self._database, on_commit), source.rows
        )

    def _commit(
        self,
        target: str | LanceDataset,
        operation: LanceOperation.BaseOperation,
        read_version: int,
        committer: TableCommitter,
        branch: str,
    ) -> LanceDataset:
        managed = committer.table.managed
        done = LanceDataset.commit(
            target,
            operation,
            read_version=read_version,
            storage_options=self._storage_root.options or None,
            enable_v2_manifest_paths=True,
            enable_stable_row_ids=True if read_version == 0 else None,
            namespace_client=committer if managed else None,
            table_id=list(committer.table.identifier) if managed else None,
            namespace_client_managed_versioning=managed,
        )
        if not managed:
            flush_version(self._storage_root.folder(committer.table.location), branch, done.version)
        return done

    def _discard(
        self, table: Table, branch: str, fragments: Iterable[FragmentMetadata], committer: TableCommitter | None
    ) -> None:
        """Remove the files of a failed commit, unless its outcome is unknown."""
        if committer is None or committer.is_refused:
            self.remove_files(table, branch, fragments)

    def remove_files(self, table: Table, branch: str, fragments: Iterable[FragmentMetadata]) -> None:
        """Remove data files that no version refers to."""
        remove_fragment_files(self._storage_root.folder(table.location), branch, fragments)

    @contextmanager
    def _original_errors(
        self, table: Table, committer: TableCommitter | None, source: ArrowSource | None, *, new: bool = False
    ) -> Iterator[None]:
        """Raise the original error that Lance wraps: of the stream, of the commit, or of a table dropped meanwhile."""
        try:
            yield
        except Exception as error:
            if source is not None and source.failure is not None:
                raise source.failure from error
            if committer is not None and isinstance(committer.failure, LanceNamespaceError):
                raise committer.failure from error
            if not new and not self._exists(table):
                raise TableNotFoundError(f"Table {format_identifier(table.identifier)!r} was dropped.") from error
            raise

    def _exists(self, table: Table) -> bool:
        return self._database.read(lambda connection: tables.find_by_id(connection, table.id)) is not None
