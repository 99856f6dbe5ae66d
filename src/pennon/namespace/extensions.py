"""Operations that LanceDB's remote client knows and the specification does not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
from lance_namespace.errors import (
    InvalidInputError,
    TableBranchNotFoundError,
    TableNotFoundError,
    TableVersionNotFoundError,
)

from pennon.catalog import CommitOutcomeUnknownError, clones, tables, versions
from pennon.core.caller import current_caller
from pennon.core.errors import suggest
from pennon.namespace.branches import BranchOperations
from pennon.namespace.operations import transaction_recorder
from pennon.namespace.queries import Answer, Hold
from pennon.namespace.tables import TableOperations
from pennon.namespace.tags import TagOperations
from pennon.storage import refs
from pennon.storage.layout import check_branch
from pennon.storage.links import link
from pennon.tables.blobs import is_blob, open_blobs
from pennon.tables.comparison import bring_over, compare
from pennon.tables.field_paths import find_field
from pennon.tables.lance_errors import typed_errors
from pennon.tables.snapshots import bases_of
from pennon.views import pins

if TYPE_CHECKING:
    from pennon.catalog import Connection
    from pennon.catalog.tables import Table
    from pennon.core.identifiers import Identifier
    from pennon.tables.arrow_stream import ArrowSource
    from pennon.tables.comparison import Comparison

Json = dict[str, Any]


@dataclass(frozen=True)
class BlobRange:
    """Some bytes of a blob, to be read from a file at the first of them; no file where the value is null."""

    file: Any | None
    version: int
    start: int = 0
    #: One more than the last.
    end: int = 0
    #: How many the whole blob has.
    size: int = 0
    hold: Hold | None = None


class ExtensionOperations(TableOperations, TagOperations, BranchOperations):
    """Clone tables, take uploads in parts, compare branches, read blobs."""

    def clone_table(
        self, identifier: Identifier, source: str, version: int | None, tag: str | None, *, shallow: bool
    ) -> Json:
        """Make a new table out of a version of another one, with or without copying its data."""
        origin = self._cloneable(source)
        if version is not None and tag is not None:
            raise InvalidInputError("Name a version or a tag, not both.")
        try:
            return self._clone(identifier, origin, version, tag, shallow=shallow)
        except Exception as error:
            if self._read(lambda connection: tables.find_by_id(connection, origin.id)) is None:
                raise TableNotFoundError("The table at source_location was dropped.") from error
            raise

    def _clone(
        self, identifier: Identifier, origin: Table, version: int | None, tag: str | None, *, shallow: bool
    ) -> Json:
        branch = ""
        if tag is not None:
            found = self._tag(origin, tag)
            branch, version = found.branch, found.version
        dataset = self.services.datasets.reopen(origin, branch, version)
        table = self.plan_table(identifier, None, None)
        own = self.services.storage_root.own_location(identifier, table.id)
        if self.services.storage_root.link_to(own) is not None:
            # Lance puts it there before it is recorded: at the place of its name, whoever lists would find a table.
            table = replace(table, location=own)
        reference = (branch or None, dataset.version)
        options = self.services.storage_root.options or None
        note = transaction_recorder("CloneTable", table)

        def work(connection: Connection) -> str:
            self._insert(connection, table)
            if shallow:
                clones.insert(connection, table.id, origin.id)
                clones.insert_bases(connection, table.id, {origin.location, *bases_of(dataset)})
            for stored in self._versions_on_storage(table):
                versions.insert(connection, stored)
            tables.mark_written(connection, table.id)
            return note(connection)

        kept, copied = self.services.storage_root.folder(origin.location), False
        try:
            if shallow:
                pins.pin(kept, table.id, dataset.version, branch)
            with typed_errors():
                copy = dataset.shallow_clone if shallow else dataset.deep_clone
                copy(table.location, reference, storage_options=options)
            copied = True
            transaction_id = self._write_in_namespace(identifier, work)
        except CommitOutcomeUnknownError:
            raise  # the table may be there, and need its files
        except BaseException:
            if copied or table.location == own:  # otherwise what is there may be another's
                self.services.storage_root.folder(table.location).remove_all()
            pins.release(kept, table.id)
            raise
        link(self.services.database, self.services.storage_root, table)
        return {"transaction_id": transaction_id, "location": table.location}

    def begin_upload(self, identifier: Identifier, branch: str | None) -> Json:
        """Begin an upload in parts."""
        table, name = self._writable(identifier), check_branch(branch)
        self.services.datasets.newest(table, name)  # raises what is missing
        return {"upload_id": self.services.uploads.begin(table, name)}

    def add_part(self, identifier: Identifier, upload_id: str, part_id: str, source: ArrowSource, mode: str) -> Json:
        """Take in one part of an upload; it is not visible before the upload is complete."""
        table = self._writable(identifier)
        if mode == "overwrite":
            self.refuse_other_columns(table, self.services.uploads.branch_of(table, upload_id), source.schema)
        rows = self.services.uploads.add(table, upload_id, part_id, source, overwrite=mode == "overwrite")
        return {"num_inserted_rows": rows}

    def complete_upload(self, identifier: Identifier, upload_id: str) -> Json:
        """Commit all parts of an upload as one version."""
        table = self._writable(identifier)
        written = self.services.uploads.complete(table, upload_id, transaction_recorder("CompleteUpload", table))
        answer = {"version": written.version, "num_inserted_rows": written.rows}
        return {**answer, "transaction_id": written.transaction_id}

    def abort_upload(self, identifier: Identifier, upload_id: str) -> Json:
        """Give an upload up."""
        self.services.uploads.abort(self._table(identifier), upload_id)
        return {}

    def diff_branch(self, identifier: Identifier, branch: str) -> Json:
        """Compare a branch with main."""
        return _told(self._compare(self._table(identifier), branch))

    def cherry_pick(self, identifier: Identifier, branch: str, *, dry_run: bool) -> Json:
        """Bring the columns and rows a branch adds over to main, or tell why that cannot be."""
        table = self._writable(identifier)
        found = self._compare(table, branch)
        promoted = [] if found.obstacles else [item.name for item in found.added]
        answer: Json = {"diff": _told(found), "preview": {"promotedColumns": promoted}}
        if found.obstacles:
            return {"status": "failed", **answer}
        if dry_run:
            return {"status": "ready", **answer}

        def work(target: Any) -> None:
            bring_over(target, found)

        _, written = self.services.writer.change(table, "", transaction_recorder("CherryPick", table), work, alone=True)
        return {"status": "cherryPicked", "mainVersionAfter": written.version, **answer}

    def fetch_blobs(
        self, identifier: Identifier, column: str, row_ids: list[int], version: int | None, branch: str | None
    ) -> Answer:
        """Return the blobs of rows, in the order they were asked for; each is read when it is its turn."""
        dataset, hold = self._blob_dataset(identifier, column, version, branch)
        with typed_errors():
            found = open_blobs(dataset, column, row_ids)
        if len(found) < len(row_ids):
            raise InvalidInputError(f"Only {len(found)} of these {len(row_ids)} rows are there.")
        schema = pa.schema({"_rowid": pa.uint64(), column: pa.large_binary()})
        rows = ({"_rowid": row_id, column: _content(blob)} for row_id, blob in zip(row_ids, found, strict=True))
        batches = (pa.RecordBatch.from_pylist([row], schema) for row in rows)
        return Answer(pa.RecordBatchReader.from_batches(schema, batches), dataset.version, hold)

    def read_blob(
        self, identifier: Identifier, column: str, row_id: int, start: int, end: int | None, **at: Any
    ) -> BlobRange:
        """Return where to read bytes of one blob, from start to end (exclusive)."""
        dataset, hold = self._blob_dataset(identifier, column, at.get("version"), at.get("branch"))
        with typed_errors():
            found = open_blobs(dataset, column, [row_id])
            if not found:
                raise TableVersionNotFoundError(f"There is no row {row_id}.")
            if found[0] is None:
                return BlobRange(None, dataset.version)
            size = found[0].size()
            found[0].seek(min(start, size))
        return BlobRange(found[0], dataset.version, start, size if end is None else min(end, size), size, hold)

    def _blob_dataset(
        self, identifier: Identifier, column: str, version: int | None, branch: str | None
    ) -> tuple[Any, Hold]:
        """Return the dataset with a blob column, which may be nested, and what keeps its files while they are read."""
        table = self._table(identifier)
        dataset = self.services.datasets.at(table, check_branch(branch), version)
        if not is_blob(find_field(dataset.schema, column)):
            raise InvalidInputError(f"The column {column!r} holds no blobs: read its values with a query.")
        return dataset, partial(self.services.removal.hold, table)

    def _compare(self, table: Table, branch: str) -> Comparison:
        name = check_branch(branch)
        known = {ref.name: ref for ref in refs.branches(self.services.storage_root.folder(table.location))}
        if name not in known:
            raise TableBranchNotFoundError(f"The table has no branch {branch!r}.{suggest(name, known)}")
        if known[name].branch:
            raise InvalidInputError(f"The branch {name!r} starts from {known[name].branch!r}, not from main.")
        main = self.services.datasets.at(table, "", None)
        other = self.services.datasets.at(table, name, None)
        with typed_errors():
            return compare(main, other, name, known[name].version, partial(self.services.datasets.at, table, ""))

    def _cloneable(self, source: str) -> Table:
        """Return the table at a location, if the caller may see it."""
        is_uri = source.startswith("file://")
        location = (unquote(source.removeprefix("file://")) if is_uri else source).rstrip("/")
        found = self._read(lambda connection: tables.find_by_location(connection, location))
        if found is None or current_caller().principal.role_on(found.namespace) is None:
            raise TableNotFoundError("There is no table at source_location.")
        return found


def _told(found: Comparison) -> Json:
    """Return a comparison as LanceDB's clients read it; that for Node.js has own names for what is in the way."""
    return {**found.as_json(), "mergeable": not found.obstacles, "mergeBlockers": found.obstacles}


def _content(blob: Any) -> bytes | None:
    if blob is None:
        return None
    with blob:
        return bytes(blob.readall())
