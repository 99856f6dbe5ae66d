"""New fragments of a view: data files that name the job that wrote them, and are not committed yet."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pennon.pipeline.refresh.row_lookup import CONSECUTIVE_KEY
from pennon.pipeline.task_records import record_data_file
from pennon.tables.data_files import DataFileWriter, WrittenFile
from pennon.views.model.definition import SOURCE_ROW

if TYPE_CHECKING:
    from lance.fragment import FragmentMetadata

    from pennon.pipeline.refresh.task_result import NewFragment
    from pennon.storage.file_io import FileIO
    from pennon.tables.snapshots import Snapshot


class SchemaMismatchError(Exception):
    """Rows do not fit the schema of the view."""


def fragment_metadata(fragment: NewFragment) -> FragmentMetadata:
    """Return a new fragment as Lance commits it."""
    from lance.fragment import DataFile, FragmentMetadata

    return FragmentMetadata(0, [DataFile(**fragment["file"])], fragment["rows"], None, None)


class _SourceRows:
    """Detects files whose rows come from consecutive source rows, one row each."""

    def __init__(self) -> None:
        self._first: int | None = None
        self._next = 0
        self._is_consecutive = True

    def add(self, rows: pa.RecordBatch) -> None:
        """Look at the next rows."""
        sources = rows.column(SOURCE_ROW).to_numpy()
        if self._first is None:
            self._first = self._next = int(sources[0])
        self._is_consecutive &= bool((np.diff(sources, prepend=self._next - 1) == 1).all())
        self._next = int(sources[-1]) + 1

    def finish(self) -> dict[str, str]:
        """Return the metadata of a file that ends here."""
        metadata = {CONSECUTIVE_KEY: str(self._first)} if self._is_consecutive else {}
        self._first, self._is_consecutive = None, True
        return metadata


class FragmentWriter:
    """Writes batches into files of a table; each file becomes a fragment."""

    def __init__(self, target: Snapshot, names: list[str], mark: str, most_rows: int | None) -> None:
        self._dataset = target.open()
        self.schema = pa.schema([self._dataset.schema.field(name).remove_metadata() for name in names])
        version = self._dataset.data_storage_version
        source_rows = _SourceRows() if SOURCE_ROW in self.schema.names else None
        self._files = DataFileWriter(
            target.home, target.options, self.schema, version, mark, most_rows, self._add_fragment, source_rows
        )
        self.fragments: list[NewFragment] = []
        self.bytes_written = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows; raises SchemaMismatchError if they do not fit."""
        self._files.write(fit(batch, self.schema))

    def close(self) -> list[NewFragment]:
        """Complete the last file, and return the fragments."""
        self._files.close()
        return self.fragments

    def abort(self) -> None:
        """Remove the files."""
        self._files.abort()

    def _add_fragment(self, written: WrittenFile) -> None:
        from lance.fragment import DataFile

        file = DataFile.create(self._dataset, written.name)
        self.bytes_written += written.size
        self.fragments.append({"file": record_data_file(file), "rows": written.rows})


def fit(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows in the order and types of a schema; raise SchemaMismatchError when a cast would change a value."""
    columns = []
    for field in schema:
        if field.name not in batch.schema.names:
            raise SchemaMismatchError(f"The rows have no column {field.name!r}, which the view has.")
        column = batch.column(field.name)
        try:
            columns.append(column if column.type == field.type else column.cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SchemaMismatchError(f"The column {field.name!r} is declared as {field.type}: {error}.") from None
        if not field.nullable and columns[-1].null_count:
            raise SchemaMismatchError(f"The column {field.name!r} is declared without nulls, but has some.")
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def remove_orphan_files(folder: FileIO, marks: Collection[str], kept: Collection[str]) -> None:
    """Remove the files whose names begin with one of these marks, except for those that a version uses."""
    prefixes = tuple(f"{mark}-" for mark in marks)
    for file in list(folder.files("data")):
        name = file.path.rsplit("/", 1)[1]
        if name.startswith(prefixes) and name not in kept:
            folder.remove(file.path)
