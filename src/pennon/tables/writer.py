"""Writing rows: create, append, overwrite, and any other change of a table, each in the table's lane."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import lance
import pyarrow as pa
from lance.fragment import write_fragments
from lance_namespace.errors import (
    InternalError,
    LanceNamespaceError,
    TableNotFoundError,
    TableSchemaValidationError,
)

from pennon.catalog import tables, write_transaction
from pennon.commits.durability import flush_fragments, flush_version
from pennon.core.identifiers import format_identifier
from pennon.storage.layout import branch_folder
from pennon.tables.arrow_types import check_type, holds
from pennon.tables.group_commit import Lanes
from pennon.tables.lance_errors import typed_errors

if TYPE_CHECKING:
    from pennon.catalog import Connection, Database
    from pennon.catalog.tables import Table
    from pennon.commits.committer import TableCommitter
    from pennon.commits.ownership import Ownership
    from pennon.storage.root import StorageRoot
    from pennon.tables.arrow_stream import ArrowSource
    from pennon.tables.datasets import Datasets

Result = TypeVar("Result")
Note = Callable[["Connection"], str]

_RESERVED_COLUMNS = frozenset(
    {"_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version", "_row_last_updated_at_version"}
)
#: A file is closed at this size, so that a fragment stays a good unit of work.
_FILE_BYTES = 1024 * 1024 * 1024


@dataclass(frozen=True)
class Written:
    """What a write came to."""

    version: int
    transaction_id: str | None
    rows: int = 0


@dataclass(frozen=True)
class Parts:
    """What the parts of an upload come to: what to commit, and the version it was made for, where that matters."""

    operation: Any
    rows: int
    version: int | None


@dataclass(frozen=True)
class _Append:
    """Rows that wait for the commit that carries them."""

    rows: pa.Table
    note: Note


class Writer:
    """Writes to tables through the commit authority."""

    def __init__(self, database: Database, storage_root: StorageRoot, datasets: Datasets, ownership: Ownership) -> None:
        self._database = database
        self._storage_root = storage_root
        self._ownership = ownership
        self._datasets = datasets
        self._lanes: Lanes[_Append, Written] = Lanes()

    def create(self, table: Table, source: ArrowSource, note: Note) -> Written:
        """Write a new table; it comes into being with its first version, in one transaction."""
        check_schema(source.schema)
        committer = self._datasets.committer(table, note)
        with self._lanes.turn(table.location), self._truthful(table, committer, source, new=True), typed_errors():
            operation = self._write_files(table, "", table.location, source, "create")
            try:
                dataset = self._commit(table.location, operation, 0, committer, "")
            except BaseException:
                self._discard(table, "", operation.fragments, committer)
                raise
        return Written(dataset.version, committer.transaction_id, source.rows)

    def append(self, table: Table, branch: str, source: ArrowSource, note: Note) -> Written:
        """Append rows: few at once together with what others append, many as they come."""
        self._ownership.require_table(table)
        self.fit(table, branch, source)
        if source.is_small:
            waiting = _Append(source.table(), note)
            return self._lanes.join(
                f"{table.id}/{branch}",
                waiting,
                partial(self._append_group, table, branch),
                partial(self._shut, table, alone=False),
            )
        dataset = self._datasets.at(table, branch, None)
        with self._truthful(table, None, source):
            operation = self._write_files(table, branch, dataset, source, "append")
        return self._commit_files(table, branch, note, source, operation, dataset.version)

    def fit(self, table: Table, branch: str, source: ArrowSource) -> None:
        """Give a source the types of a table, where the client has no word for them; before anything is read of it."""
        if any(holds(pa.types.is_struct, field.type) for field in source.schema):
            source.fit(self._datasets.at(table, branch, None).schema)

    def overwrite(self, table: Table, branch: str, source: ArrowSource, note: Note) -> Written:
        """Replace all rows and the schema by those of the source, as a new version."""
        check_schema(source.schema)
        dataset = self._datasets.at(table, branch, None)
        with self._truthful(table, None, source):
            operation = self._write_files(table, branch, dataset, source, "overwrite")
        return self._commit_files(table, branch, note, source, operation)

    def change(
        self, table: Table, branch: str, note: Note, work: Callable[[Any], Result], *, alone: bool = False
    ) -> tuple[Result, Written]:
        """Run work that commits to a table's newest dataset, in the table's lane.

        ``alone`` also keeps the writers of other processes out, for work whose conflicts Lance does not see.
        """
        with self._turn(table, branch, alone=alone), self._truthful(table, None, None):
            dataset, committer = self._datasets.for_writing(table, branch, note)
            with self._truthful(table, committer, None), typed_errors():
                before = dataset.version
                result = work(dataset)
            transaction_id, version = committer.transaction_id, dataset.version
            if version != before and not table.managed:
                flush_version(self._storage_root.folder(table.location), branch, version)
            if transaction_id is None and version != before:
                transaction_id = write_transaction(self._database, note)
            self._datasets.keep_for_writing(branch, dataset, committer)
            return result, Written(version, transaction_id)

    def commit(
        self, table: Table, branch: str, note: Callable[[Connection, int], str], build: Callable[[Any], Any]
    ) -> Written | None:
        """Commit the operation that is built from the newest dataset, in the table's lane; none when it is none.

        The note is told the version it goes with.
        """
        with self._turn(table, branch, alone=False), self._truthful(table, None, None):
            dataset, committer = self._datasets.for_writing(
                table, branch, lambda connection: note(connection, committer.proposed)
            )
            operation = build(dataset)
            if operation is None:
                return None
            with self._truthful(table, committer, None), typed_errors():
                done = self._commit(dataset, operation, dataset.version, committer, branch)
        transaction_id = committer.transaction_id
        if transaction_id is None:
            transaction_id = self._database.write(lambda connection: note(connection, done.version))
        return Written(done.version, transaction_id)

    @contextmanager
    def turn(self, *held: Table) -> Iterator[None]:
        """Hold the lanes of tables inside the block, against all processes: for changes that are not commits."""
        ids = sorted({table.id for table in held})  # everyone in the same order, or they would wait for each other
        with ExitStack() as lanes:
            for table_id in ids:
                lanes.enter_context(self._lanes.turn(f"{table_id}/"))
            lanes.enter_context(self._database.exclusive(*ids))
            yield

    @contextmanager
    def _turn(self, table: Table, branch: str, *, alone: bool) -> Iterator[None]:
        """Hold the lane of a branch, and keep other processes out where that is needed or costs nothing."""
        self._ownership.require_table(table)
        with self._lanes.turn(f"{table.id}/{branch}"), self._shut(table, alone=alone):
            yield

    @contextmanager
    def _shut(self, table: Table, *, alone: bool) -> Iterator[None]:
        if alone or self._database.embedded:
            with self._database.exclusive(table.id):
                yield
        else:
            yield

    def write_part(self, table: Table, branch: str, source: ArrowSource, *, overwrite: bool) -> tuple[list[Any], int]:
        """Write the files of a part of an upload, without committing them; also returns the version they fit."""
        if overwrite:
            check_schema(source.schema)
        else:
            self.fit(table, branch, source)
        dataset = self._datasets.at(table, branch, None)
        with self._truthful(table, None, source):
            operation = self._write_files(table, branch, dataset, source, "overwrite" if overwrite else "append")
        return operation.fragments, dataset.version

    def commit_parts(self, table: Table, branch: str, plan: Callable[[], Parts], note: Note) -> Written:
        """Commit files that were written as parts of an upload, for a version where that matters."""
        with self._turn(table, branch, alone=True):
            parts = plan()
            dataset, committer = self._datasets.for_writing(table, branch, note)
            with self._truthful(table, committer, None), typed_errors():
                done = self._commit(dataset, parts.operation, parts.version or dataset.version, committer, branch)
            return Written(
                done.version, committer.transaction_id or write_transaction(self._database, note), parts.rows
            )

    def _append_group(self, table: Table, branch: str, group: list[_Append]) -> list[Written | Exception]:
        """Append what several callers sent in one commit; whose rows do not fit, or who is refused, fails alone."""
        fitting: list[int] = []
        ids: list[str] = []
        refusals: dict[int, Exception] = {}

        def note_all(connection: Connection) -> str:
            ids.clear()
            for index in fitting:
                try:
                    ids.append(group[index].note(connection))  # each caller gets a transaction of its own
                except LanceNamespaceError as error:
                    refusals[index] = error
                    raise
            return ids[0]

        with self._truthful(table, None, None):
            dataset = self._datasets.at(table, branch, None)
            committer = self._datasets.committer(table, note_all)
            outcomes, fragments = self._write_group(dataset, [waiting.rows for waiting in group])
        fitting += [index for index, outcome in enumerate(outcomes) if outcome is None]
        if fitting:
            try:
                with self._truthful(table, committer, None), typed_errors():
                    append = lance.LanceOperation.Append(fragments)
                    done = self._commit(dataset, append, dataset.version, committer, branch)
            except BaseException:
                self._discard(table, branch, fragments, committer)
                if refusals and len(group) > 1:
                    return self._append_others(table, branch, group, refusals)
                raise
            if committer.committed is not None:
                self._datasets.keep(table, committer.committed, done)
            if not ids:
                self._database.write(note_all)
        written = iter([Written(done.version, ids[n], group[i].rows.num_rows) for n, i in enumerate(fitting)])
        return [next(written) if outcome is None else outcome for outcome in outcomes]

    def _append_others(
        self, table: Table, branch: str, group: list[_Append], refusals: dict[int, Exception]
    ) -> list[Written | Exception]:
        """Append what a group sent but for those who are refused."""
        others = [waiting for index, waiting in enumerate(group) if index not in refusals]
        appended = iter(self._append_group(table, branch, others))
        return [refusals[index] if index in refusals else next(appended) for index in range(len(group))]

    def _write_group(self, dataset: Any, tables: list[pa.Table]) -> tuple[list[Exception | None], list[Any]]:
        """Write the rows of several callers, those of one schema into one file; returns who failed, and the files."""
        outcomes: list[Exception | None] = [None] * len(tables)
        fragments: list[Any] = []
        groups = _by_schema(tables)
        while groups:
            schema, members = groups.pop(0)
            try:
                with typed_errors():
                    rows = pa.concat_tables([tables[index] for index in members])
                    fragments += write_fragments(rows, dataset, mode="append", schema=schema)
            except LanceNamespaceError as error:
                if len(members) == 1:
                    outcomes[members[0]] = error
                # The others may be in order: whose rows it was shows when each is written alone.
                groups += [(schema, [index]) for index in members if len(members) > 1]
        return outcomes, fragments

    def _write_files(self, table: Table, branch: str, target: Any, source: ArrowSource, mode: str) -> Any:
        """Write the files of a source and return the operation that commits them; it has the schema as Lance has it."""
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
        written = sum(fragment.physical_rows for fragment in transaction.operation.fragments)
        if written != source.rows:
            raise InternalError(f"{source.rows} rows came in, but {written} were written; nothing was committed.")
        flush_fragments(self._storage_root.folder(table.location), branch, transaction.operation.fragments)
        return transaction.operation

    def _commit_files(
        self,
        table: Table,
        branch: str,
        note: Note,
        source: ArrowSource,
        operation: Any,
        read_version: int | None = None,
    ) -> Written:
        """Commit files that were made for a version; where that matters, Lance looks at what was done since."""
        committer: TableCommitter | None = None
        try:
            with self._turn(table, branch, alone=False):
                dataset, committer = self._datasets.for_writing(table, branch, note)
                with self._truthful(table, committer, source), typed_errors():
                    done = self._commit(dataset, operation, read_version or dataset.version, committer, branch)
        except BaseException:
            self._discard(table, branch, operation.fragments, committer)
            raise
        return Written(done.version, committer.transaction_id or write_transaction(self._database, note), source.rows)

    def _commit(self, target: Any, operation: Any, read_version: int, committer: TableCommitter, branch: str) -> Any:
        managed = committer.table.managed
        done = lance.LanceDataset.commit(
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

    def _discard(self, table: Table, branch: str, fragments: list[Any], committer: TableCommitter | None) -> None:
        """Remove the files of a commit that failed, unless it may yet turn out to have succeeded."""
        if committer is None or committer.refused:
            self.remove_files(table, branch, fragments)

    def remove_files(self, table: Table, branch: str, fragments: list[Any]) -> None:
        """Remove data files that no version will ever name."""
        folder = self._storage_root.folder(table.location)
        home = branch_folder(branch)
        for fragment in fragments:
            for file in fragment.files:
                path = f"{home}data/{file.path}"
                blobs = list(folder.files(path.removesuffix(".lance")))  # those that are too large for the file itself
                for name in [path, *(blob.path for blob in blobs)]:
                    folder.remove(name)

    @contextmanager
    def _truthful(
        self, table: Table, committer: TableCommitter | None, source: ArrowSource | None, *, new: bool = False
    ) -> Iterator[None]:
        """Raise what really went wrong: in the stream, in the commit, or because the table was dropped meanwhile."""
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


def check_schema(schema: pa.Schema) -> None:
    """Refuse columns that Lance could not write, or write but not read again."""
    check_column_names(schema.names)
    for field in schema:
        check_type(field)


def check_column_names(names: Sequence[str]) -> None:
    """Refuse names of columns that Lance could not read again, or that mean something else to it."""
    for name, count in Counter(names).items():
        if not name or any(char in name for char in ".`\0"):
            raise TableSchemaValidationError(f"{name!r} cannot be a column: a name has no dot, backtick or NUL in it.")
        if name in _RESERVED_COLUMNS:
            raise TableSchemaValidationError(f"{name!r} cannot be a column: it is what Lance calls one of its own.")
        if count > 1:
            raise TableSchemaValidationError(f"There would be two columns {name!r}.")


def _by_schema(group: list[pa.Table]) -> list[tuple[pa.Schema, list[int]]]:
    found: list[tuple[pa.Schema, list[int]]] = []
    for index, rows in enumerate(group):
        for schema, members in found:
            if schema.equals(rows.schema, check_metadata=True):
                members.append(index)
                break
        else:
            found.append((rows.schema, [index]))
    return found
