"""Writing rows of Spark: tasks write files that tell which write they belong to, the driver commits one version."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from lance_namespace.errors import LanceNamespaceError, TableNotFoundError, TableSchemaValidationError
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from pennon.spark.tables import Address
from pennon.spark.types import arrow_schema, check_writable, to_lance
from pennon.storage.root import open_file_io
from pennon.tables.data_files import DataFileWriter, WrittenFile

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from pennon.storage.file_io import FileIO

_FORMAT = "2.2"
#: What the sign of a write says, a small file beside those it writes.
_WRITING, _COMMITTING = b"writing", b"committing"
#: What a commit raises that did not happen for sure.
_REFUSALS = (LanceNamespaceError, ValueError)


@dataclass
class Written(WriterCommitMessage):
    """The files of one task."""

    files: list[WrittenFile]


@dataclass(frozen=True)
class Target:
    """The table that is written."""

    address: Address
    location: str
    options: dict[str, str]
    schema: pa.Schema
    #: Whether the server decides which commit wins.
    managed: bool
    format: str = _FORMAT
    #: The version that rows are added to or that is replaced; none for a new table.
    version: int | None = None
    #: Whether this write declared the table, so that it goes away again if the write fails.
    is_new: bool = False


class LanceWriter(DataSourceArrowWriter):
    """Adds rows to a table or puts them in the place of its rows."""

    def __init__(self, target: Target, *, overwrite: bool, most_rows: int | None, rounding: bool) -> None:
        self._target = target
        self._overwrite = overwrite
        self._most_rows = most_rows
        self._rounding = rounding
        self._mark = f"spark-{uuid.uuid4().hex}"

    @classmethod
    def prepare(cls, address: Address, rows: StructType, *, overwrite: bool, **options: Any) -> LanceWriter:
        """Find the table, or declare it when there is none, and check that the rows can become its rows."""
        writer = cls(_find_target(address, rows, overwrite=overwrite), overwrite=overwrite, **options)
        writer.begin()
        return writer

    def begin(self) -> None:
        """Put up the sign that this write is under way."""
        self._folder().replace(self._sign, _WRITING)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of a partition into files of their own."""
        target, written = self._target, Written([])

        def finished(file: WrittenFile) -> None:
            written.files.append(file)
            # Spark ends a cancelled task seconds later, when what it wrote is looked for no more.
            if self._folder().stat(self._sign) is None:
                raise RuntimeError("The write has ended without this task.")

        files = DataFileWriter(
            target.location, target.options, target.schema, target.format, self._mark, self._most_rows, finished
        )
        try:
            for batch in iterator:
                files.write(to_lance(batch, target.schema, rounding=self._rounding))
            files.close()
        except BaseException:
            files.abort()  # another attempt may succeed and never know of it
            raise
        return written

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the files of all tasks as one version, and remove those of attempts that do not count."""
        files = [file for message in messages if isinstance(message, Written) for file in message.files]
        if files or self._overwrite or self._target.version is None:
            self._folder().replace(self._sign, _COMMITTING)
            try:
                self._commit(files)
            except _REFUSALS:
                self._folder().replace(self._sign, _WRITING)
                raise
        self._end(kept={file.name for file in files})

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002 (files are known by name)
        """Remove all files of this write, and the table if this write declared it."""
        import lance_namespace as ln

        if self._folder().read(self._sign) == _COMMITTING:
            return  # the answer to the commit was lost: the files may be those of a version
        self._end(kept=set())
        address = self._target.address
        if self._target.is_new:
            client = address.connect()
            if address.describe(client).is_only_declared:
                client.drop_table(ln.DropTableRequest(id=list(address.identifier)))

    def _end(self, kept: set[str]) -> None:
        """Remove the files that do not count. Tasks that still run find the sign gone, and remove their own."""
        folder = self._folder()
        folder.remove(self._sign)
        for file in list(folder.files("data")):
            name = file.path.rpartition("/")[2]
            if name.startswith(self._mark) and name not in kept:
                folder.remove(file.path)

    @property
    def _sign(self) -> str:
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


def _find_target(address: Address, rows: StructType, *, overwrite: bool) -> Target:
    import lance
    import lance_namespace as ln

    schema = arrow_schema(rows)
    if not schema.names:
        raise TableSchemaValidationError("A table has at least one column, and the rows have none.")
    client = address.connect()
    try:
        described = address.describe(client)
    except TableNotFoundError:
        declared = client.declare_table(ln.DeclareTableRequest(id=list(address.identifier), vend_credentials=True))
        return _target(address, declared, schema, is_new=True)
    if described.is_only_declared:
        return _target(address, described, schema)
    found = lance.dataset(namespace_client=client, table_id=list(address.identifier))
    if not overwrite or _is_same_shape(rows, found.schema):
        schema = found.schema
    check_writable(rows, schema)
    return _target(address, described, schema, format=found.data_storage_version, version=found.version)


def _target(address: Address, described: Any, schema: pa.Schema, **known: Any) -> Target:
    storage, managed = dict(described.storage_options or {}), bool(described.managed_versioning)
    return Target(address, described.location, storage, schema, managed=managed, **known)


def _is_same_shape(rows: StructType, schema: pa.Schema) -> bool:
    """Tell whether rows have just the columns of a table, in types that become the table's."""
    try:
        check_writable(rows, schema)
    except TableSchemaValidationError:
        return False
    return sorted(rows.fieldNames()) == sorted(schema.names)


def _new_layout(target: Target) -> Any:
    """Return how files hold the fields that a new table of the schema has."""
    import lance
    from lance.file import LanceFileWriter
    from lance.fragment import DataFile

    with tempfile.TemporaryDirectory(prefix="pennon-layout-") as folder:
        made = lance.write_dataset(target.schema.empty_table(), folder, data_storage_version=target.format)
        LanceFileWriter(f"{folder}/data/empty.lance", target.schema, version=target.format).close()
        return DataFile.create(made, "empty.lance")


def _fragments(files: list[WrittenFile], layout: Any) -> list[Any]:
    """Return files as fragments; all files of one schema and format are laid out alike."""
    from lance.fragment import DataFile, FragmentMetadata

    def data_file(file: WrittenFile) -> Any:
        version = (layout.file_major_version, layout.file_minor_version)
        return DataFile(file.name, layout.fields, layout.column_indices, *version, file.size)

    return [FragmentMetadata(0, [data_file(file)], file.rows) for file in files]
