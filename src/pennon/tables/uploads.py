"""Multipart uploads: the files of each part are written as it arrives, and all are committed together at the end.

Adding a part, completing an upload and aborting it hold the table's lock: no file is committed twice or after its
removal.
"""

from __future__ import annotations

import json
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
from lance.fragment import FragmentMetadata
from lance_namespace.errors import InvalidInputError, TableNotFoundError, TableSchemaValidationError

from pennon.catalog import ForeignKeyError, tables, uploads
from pennon.catalog.uploads import Upload, UploadPart
from pennon.core.identifiers import new_id
from pennon.tables.writer import UploadCommit

if TYPE_CHECKING:
    from pennon.catalog import Connection, Database
    from pennon.catalog.tables import Table
    from pennon.tables.arrow_stream import ArrowSource
    from pennon.tables.writer import OnCommit, Writer, WriteResult


class Uploads:
    """Multipart uploads to tables."""

    def __init__(self, database: Database, writer: Writer) -> None:
        self._database = database
        self._writer = writer

    def begin(self, table: Table, branch: str) -> str:
        """Begin an upload and return its id."""
        upload = Upload(new_id(), table.id, branch)
        self._database.write(lambda connection: uploads.insert(connection, upload))
        return upload.id

    def branch_of(self, table: Table, upload_id: str) -> str:
        """Return the target branch of an upload."""
        return self._find(table, upload_id).branch

    def add(self, table: Table, upload_id: str, part_id: str, source: ArrowSource, *, overwrite: bool) -> int:
        """Write the files of a part; a part that is sent again replaces the earlier one."""
        upload = self._find(table, upload_id)
        fragments, version = self._writer.write_part(table, upload.branch, source, overwrite=overwrite)
        part = UploadPart(
            part_id,
            json.dumps({"version": version, "fragments": [fragment.to_json() for fragment in fragments]}),
            source.schema.serialize().to_pybytes().hex(),
            source.rows,
            overwrite,
        )
        try:
            with self._writer.lock(table):
                before = self._database.write(lambda connection: uploads.put_part(connection, upload.id, part))
        except ForeignKeyError:
            self._writer.remove_files(table, upload.branch, fragments)
            raise _gone() from None
        if before is not None:
            self._writer.remove_files(table, upload.branch, _fragments(before))
        return source.rows

    def complete(self, table: Table, upload_id: str, on_commit: OnCommit) -> WriteResult:
        """Commit all parts as one version."""
        upload = self._find(table, upload_id)

        def finish(connection: Connection) -> str:
            if not uploads.delete(connection, upload.id):
                raise _gone()
            return on_commit(connection)

        return self._writer.commit_parts(table, upload.branch, lambda: self._plan(table, upload_id), finish)

    def _plan(self, table: Table, upload_id: str) -> UploadCommit:
        """Return the commit of all parts of an upload."""
        upload = self._find(table, upload_id)
        parts = self._database.read(lambda connection: uploads.parts(connection, upload.id))
        if not parts:
            raise InvalidInputError("The upload has no parts.")
        if len({part.overwrite for part in parts}) > 1:
            raise InvalidInputError("The parts of an upload must all append, or all overwrite.")
        fragments = [fragment for part in parts for fragment in _fragments(part)]
        rows = sum(part.rows for part in parts)
        if parts[0].overwrite:
            return UploadCommit(lance.LanceOperation.Overwrite(_common_schema(parts), fragments), rows, None)
        version = min(json.loads(part.fragments)["version"] for part in parts)
        return UploadCommit(lance.LanceOperation.Append(fragments), rows, version)

    def abort(self, table: Table, upload_id: str) -> None:
        """Abort an upload and remove its files."""
        with self._writer.lock(table):
            upload = self._find(table, upload_id)
            parts = self._database.read(lambda connection: uploads.parts(connection, upload.id))
            self._database.write(lambda connection: uploads.delete(connection, upload.id))
            for part in parts:
                self._writer.remove_files(table, upload.branch, _fragments(part))

    def sweep(self, millis: int) -> None:
        """Abort uploads that began before a time and were never completed."""
        for upload in self._database.read(lambda connection: uploads.created_before(connection, millis)):
            table = self._database.read(partial(tables.find_by_id, table_id=upload.table_id))
            if table is not None:
                with suppress(TableNotFoundError):  # another process may abort it at the same time
                    self.abort(table, upload.id)

    def _find(self, table: Table, upload_id: str) -> Upload:
        found = self._database.read(lambda connection: uploads.find(connection, upload_id))
        if found is None or found.table_id != table.id:
            raise _gone()
        return found


def _gone() -> TableNotFoundError:
    return TableNotFoundError("The upload was not found for this table; it may already be complete or aborted.")


def _common_schema(parts: list[UploadPart]) -> pa.Schema:
    """Return the schema of parts that replace a table's rows; all parts must have the same one."""
    schemas = [pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(part.schema))) for part in parts]
    for part, schema in zip(parts, schemas, strict=True):
        if not schema.equals(schemas[0]):
            raise TableSchemaValidationError(f"The parts {parts[0].id!r} and {part.id!r} do not have the same schema.")
    return schemas[0]


def _fragments(part: UploadPart) -> list[FragmentMetadata]:
    return [FragmentMetadata.from_json(json.dumps(fragment)) for fragment in json.loads(part.fragments)["fragments"]]
