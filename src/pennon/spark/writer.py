"""The writer of the Spark source: tasks write data files, and the driver commits them as one version.

A marker file beside the data files has the state of the write; the names of the data files begin with its name.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
from lance_namespace.errors import LanceNamespaceError, TableNotFoundError, TableSchemaValidationError
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from pennon.spark.table_address import TableAddress
from pennon.spark.types import arrow_schema, check_writable, to_lance
from pennon.storage.root import open_file_io
from pennon.tables.data_files import DataFileWriter, WrittenFile

if TYPE_CHECKING:
    from lance.fragment import DataFile, FragmentMetadata
    from lance_namespace import DeclareTableResponse, DescribeTableResponse
    from pyspark.sql.types import StructType

    from pennon.storage.file_io import FileIO

_FORMAT = "2.2"
#: The content of the marker file.
_WRITING, _COMMITTING = b"writing", b"committing"
#: Errors after which a commit certainly has not happened.
_REFUSALS = (LanceNamespaceError, ValueError)


@dataclass
class Written(WriterCommitMessage):
    """The data files of one task."""

    files: list[WrittenFile]


@dataclass(frozen=True)
class WriteTarget:
    """The table to write to."""

    address: TableAddress
    location: str
    options: dict[str, str]
    schema: pa.Schema
    #: Whether commits go through the server.
    managed: bool
    format: str = _FORMAT
    #: The version to append to or to replace; none for a new table.
    version: int | None = None
    #: Whether this write declared the table, and must drop it if it fails.
    is_new: bool = False


class LanceWriter(DataSourceArrowWriter):
    """Appends rows to a table, or replaces its rows."""

    def __init__(self, target: WriteTarget, *, overwrite: bool, max_rows: int | None, rounding: bool) -> None:
        self._target = target
        self._overwrite = overwrite
        self._max_rows = max_rows
        self._rounding = rounding
        self._mark = f"spark-{uuid.uuid4().hex}"

    @classmethod
    def prepare(
        cls, address: TableAddress, rows: StructType, *, overwrite: bool, max_rows: int | None, rounding: bool
    ) -> LanceWriter:
        """Find or declare the table, check that the types of the rows fit, and begin the write."""
        target = _find_target(address, rows, overwrite=overwrite)
        writer = cls(target, overwrite=overwrite, max_rows=max_rows, rounding=rounding)
        writer.begin()
        return writer

    def begin(self) -> None:
        """Create the marker file."""
        self._folder().replace(self._marker, _WRITING)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:  # type: ignore[override]  # PySpark's base says Row
        """Write the rows of a partition into new data files."""
        target, written = self._target, Written([])

        def finished(file: WrittenFile) -> None:
            written.files.append(file)
            # Spark stops a cancelled task only seconds later, when the files of the write were already removed.
            if self._folder().stat(self._marker) is None:
                raise RuntimeError("The write has already ended.")

        files = DataFileWriter(
            target.location, target.options, target.schema, target.format, self._mark, self._max_rows, finished
        )
        try:
            for batch in iterator:
                files.write(to_lance(batch, target.schema, rounding=self._rounding))
            files.close()
        except BaseException:
            files.abort()  # another attempt would not know of these files
            raise
        return written

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the files of all tasks as one version, and remove those of failed attempts."""
        files = [file for message in messages if isinstance(message, Written) for file in message.files]
        if files or self._overwrite or self._target.version is None:
            self._folder().replace(self._marker, _COMMITTING)
            try:
                self._commit(files)
            except _REFUSALS:
                self._folder().replace(self._marker, _WRITING)
                raise
        self._end(kept={file.name for file in files})

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002 (files are known by name)
        """Remove all files of this write, and the table if this write declared it."""
        import lance_namespace as ln

        if self._folder().read(self._marker) == _COMMITTING:
            return  # the response to the commit was lost, so a version may have these files
        self._end(kept=set())
        address = self._target.address
        if self._target.is_new:
            client = address.connect()
            if address.describe(client).is_only_declared:
                client.drop_table(ln.DropTableRequest(id=list(address.identifier)))

    def _end(self, kept: set[str]) -> None:
        """Remove the marker and all files but those to keep. Tasks that still run then remove their own files."""
        folder = self._folder()
        folder.remove(self._marker)
        for file in list(folder.files("data")):
            name = file.path.rpartition("/")[2]
            if name.startswith(self._mark) and name not in kept:
                folder.remove(file.path)

    @property
    def _marker(self) -> str:
        return f"data/{self._mark}.writing"

    def _commit(self, files: list[WrittenFile]) -> None:
        import lance
        from lance.fragment import DataFile

        target = self._target
        client = target.address.connect()
        table_id = list(target.address.identifier)
        found = None
        if target.version is not None:
            found = lance.dataset(namespace_client=client, table_id=table_id, version=target.version)
        operation: lance.LanceOperation.BaseOperation
        if found is None or self._overwrite:
            operation = lance.LanceOperation.Overwrite(target.schema, _fragments(files, _new_layout(target)))
        else:
            operation = lance.LanceOperation.Append(_fragments(files, DataFile.create(found, files[0].name)))
        lance.LanceDataset.commit(
            found or target.location,
            operation,
            read_version=target.version or 0,
            storage_options=target.options or None,
            enable_v2_manifest_paths=True,
            enable_stable_row_ids=True if found is None else None,
            namespace_client=client if target.managed else None,
            table_id=table_id if target.managed else None,
            namespace_client_managed_versioning=target.managed,
        )

    def _folder(self) -> FileIO:
        return open_file_io(self._target.location, self._target.options)


def _find_target(address: TableAddress, rows: StructType, *, overwrite: bool) -> WriteTarget:
    import lance
    import lance_namespace as ln

    schema = arrow_schema(rows)
    if not schema.names:
        raise TableSchemaValidationError("The rows have no columns; a table needs at least one.")
    client = address.connect()
    try:
        described = address.describe(client)
    except TableNotFoundError:
        declared = client.declare_table(ln.DeclareTableRequest(id=list(address.identifier), vend_credentials=True))
        return replace(_target(address, declared, schema), is_new=True)
    if described.is_only_declared:
        return _target(address, described, schema)
    found = lance.dataset(namespace_client=client, table_id=list(address.identifier))
    if not overwrite or _is_same_shape(rows, found.schema):
        schema = found.schema
    check_writable(rows, schema)
    target = _target(address, described, schema)
    return replace(target, format=found.data_storage_version, version=found.version)


def _target(
    address: TableAddress, described: DescribeTableResponse | DeclareTableResponse, schema: pa.Schema
) -> WriteTarget:
    storage, managed = dict(described.storage_options or {}), bool(described.managed_versioning)
    return WriteTarget(address, described.location or "", storage, schema, managed=managed)


def _is_same_shape(rows: StructType, schema: pa.Schema) -> bool:
    """Return whether rows have exactly the columns of a table, in types that fit."""
    try:
        check_writable(rows, schema)
    except TableSchemaValidationError:
        return False
    return sorted(rows.fieldNames()) == sorted(schema.names)


def _new_layout(target: WriteTarget) -> DataFile:
    """Return the field layout of the data files of a new table."""
    import lance
    from lance.file import LanceFileWriter
    from lance.fragment import DataFile

    with tempfile.TemporaryDirectory(prefix="pennon-layout-") as folder:
        made = lance.write_dataset(target.schema.empty_table(), folder, data_storage_version=cast("Any", target.format))
        LanceFileWriter(f"{folder}/data/empty.lance", target.schema, version=target.format).close()
        return DataFile.create(made, "empty.lance")


def _fragments(files: list[WrittenFile], layout: DataFile) -> list[FragmentMetadata]:
    """Return files as fragments. All files of one schema and format have the same layout."""
    from lance.fragment import DataFile, FragmentMetadata

    def data_file(file: WrittenFile) -> DataFile:
        version = (layout.file_major_version, layout.file_minor_version)
        return DataFile(file.name, layout.fields, layout.column_indices, *version, file.size)

    return [FragmentMetadata(0, [data_file(file)], file.rows) for file in files]
