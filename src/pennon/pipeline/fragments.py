"""Writing rows as new fragments of a table, in files that tell which job wrote them, without committing them."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pennon.lake.places import open_folder
from pennon.pipeline.locating import RISING_KEY
from pennon.views.definition import SOURCE_ROW

if TYPE_CHECKING:
    from pennon.lake.folder import Folder
    from pennon.pipeline.fill_task import Source

_FILE_BYTES = 1024 * 1024 * 1024
_FILE_ROWS = 1024 * 1024
_FILE_FIELDS = (
    "path",
    "fields",
    "column_indices",
    "file_major_version",
    "file_minor_version",
    "file_size_bytes",
)


class MisfitError(Exception):
    """Rows do not fit the schema of the table they are for."""


@dataclass(frozen=True)
class NewFragment:
    """A file of rows that is written, and not committed."""

    file: dict[str, Any]
    rows: int

    def to_json(self) -> dict[str, Any]:
        """Return it as a task answers it."""
        return asdict(self)

    def metadata(self) -> Any:
        """Return it as Lance commits it."""
        from lance.fragment import DataFile, FragmentMetadata

        return FragmentMetadata(0, [DataFile(**self.file)], self.rows, None, None)


class FragmentWriter:
    """Writes batches into files of a table, each of which becomes a fragment."""

    def __init__(self, target: Source, names: list[str], mark: str, most_rows: int | None) -> None:
        self._target = target
        self._dataset = target.open()
        self.schema = pa.schema([self._dataset.schema.field(name).remove_metadata() for name in names])
        self._mark = mark
        self._most_rows = most_rows or _FILE_ROWS
        self._writer: Any = None
        self._name = ""
        #: The source's row that the last row comes from; none when rows are not in its order.
        self._last: int | None = None
        self._rows = self._bytes = 0
        self._names: list[str] = []
        self.fragments: list[NewFragment] = []
        self.rows_written = self.bytes_written = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows; a file is closed when it has rows or bytes enough."""
        fitted = fit(batch, self.schema)
        while fitted.num_rows:
            if self._writer is None:
                self._open()
            piece = fitted.slice(0, self._most_rows - self._rows)
            self._writer.write_batch(piece)
            self._follow(piece)
            self._rows += piece.num_rows
            self._bytes += piece.nbytes
            self.rows_written += piece.num_rows
            if self._rows >= self._most_rows or self._bytes >= _FILE_BYTES:
                self._close_file()
            fitted = fitted.slice(piece.num_rows)

    def close(self) -> list[NewFragment]:
        """Finish the last file and return the fragments."""
        self._close_file()
        return self.fragments

    def abort(self) -> None:
        """Remove what was written."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.close()
        folder = open_folder(self._target.location, self._target.options)
        for name in self._names:
            folder.remove(f"data/{name}")

    def _open(self) -> None:
        from lance.file import LanceFileWriter

        self._name = f"{self._mark}-{uuid.uuid4().hex}.lance"
        self._names.append(self._name)
        options: dict[str, Any] = {"storage_options": self._target.options} if self._target.options else {}
        version = self._dataset.data_storage_version
        path = f"{self._target.home}/data/{self._name}"
        self._writer = LanceFileWriter(path, self.schema, version=version, **options)
        self._rows = self._bytes = 0
        self._last = -1 if SOURCE_ROW in self.schema.names else None

    def _follow(self, piece: pa.RecordBatch) -> None:
        """Notice when rows are not in the order of the source's."""
        if self._last is not None:
            sources = piece.column(SOURCE_ROW).to_numpy()
            rises = sources[0] >= self._last and bool(np.all(sources[1:] >= sources[:-1]))
            self._last = int(sources[-1]) if rises else None

    def _close_file(self) -> None:
        from lance.fragment import DataFile

        if self._writer is None:
            return
        writer, self._writer = self._writer, None
        if self._last is not None:
            writer.add_schema_metadata(RISING_KEY, SOURCE_ROW)
        writer.close()
        file = DataFile.create(self._dataset, self._name)
        self.bytes_written += file.file_size_bytes or 0
        self.fragments.append(NewFragment({name: _plain(getattr(file, name)) for name in _FILE_FIELDS}, self._rows))


def fit(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows in the order and types of a schema; raise MisfitError when they would not be what they are."""
    columns = []
    for field in schema:
        if field.name not in batch.schema.names:
            raise MisfitError(f"The rows have no column {field.name!r}.")
        column = batch.column(field.name)
        try:
            columns.append(column if column.type == field.type else column.cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise MisfitError(f"The column {field.name!r} is declared as {field.type}: {error}.") from None
        if not field.nullable and columns[-1].null_count:
            raise MisfitError(f"The column {field.name!r} is declared without nulls, but has some.")
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def remove_strays(folder: Folder, marks: Collection[str], kept: Collection[str]) -> None:
    """Remove the files that carry one of these marks and that no version names."""
    beginnings = tuple(f"{mark}-" for mark in marks)
    for file in list(folder.files("data")):
        name = file.path.rsplit("/", 1)[1]
        if name.startswith(beginnings) and name not in kept:
            folder.remove(file.path)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, list | tuple) else value
