"""Writing rows as new fragments of a table, in files that tell which job wrote them, without committing them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pennon.pipeline.refresh.sorted_lookup import DISTINCT_KEY, RISING_KEY
from pennon.tables.data_files import DataFileWriter, WrittenFile
from pennon.views.model.definition import SOURCE_ROW

if TYPE_CHECKING:
    from pennon.storage.file_io import FileIO
    from pennon.tables.snapshots import Snapshot

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


class _Order:
    """Notices whether the rows of a file are in the order of the source's, and whether each comes from another."""

    def __init__(self) -> None:
        self._last = -1
        #: By how much the source's rows rise at least, from each row to the next.
        self._step = 1

    def see(self, rows: pa.RecordBatch) -> None:
        """Look at the next rows."""
        if self._step >= 0:
            sources = rows.column(SOURCE_ROW).to_numpy()
            self._step = min(self._step, int(np.diff(sources, prepend=self._last).min()))
            self._last = int(sources[-1])

    def take(self) -> dict[str, str]:
        """Say so of a file that ends here."""
        step, self._step, self._last = self._step, 1, -1
        return {key: SOURCE_ROW for key, least in ((RISING_KEY, 0), (DISTINCT_KEY, 1)) if step >= least}


class FragmentWriter:
    """Writes batches into files of a table, each of which becomes a fragment."""

    def __init__(self, target: Snapshot, names: list[str], mark: str, most_rows: int | None) -> None:
        self._dataset = target.open()
        self.schema = pa.schema([self._dataset.schema.field(name).remove_metadata() for name in names])
        version = self._dataset.data_storage_version
        order = _Order() if SOURCE_ROW in self.schema.names else None
        self._files = DataFileWriter(
            target.home, target.options, self.schema, version, mark, most_rows, self._add_fragment, order
        )
        self.fragments: list[NewFragment] = []
        self.bytes_written = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows, if they fit the schema."""
        self._files.write(fit(batch, self.schema))

    def close(self) -> list[NewFragment]:
        """Finish the last file and return the fragments."""
        self._files.close()
        return self.fragments

    def abort(self) -> None:
        """Remove what was written."""
        self._files.abort()

    def _add_fragment(self, written: WrittenFile) -> None:
        from lance.fragment import DataFile

        file = DataFile.create(self._dataset, written.name)
        self.bytes_written += written.size
        self.fragments.append(NewFragment({name: _plain(getattr(file, name)) for name in _FILE_FIELDS}, written.rows))


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


def remove_strays(folder: FileIO, marks: Collection[str], kept: Collection[str]) -> None:
    """Remove the files that carry one of these marks and that no version names."""
    beginnings = tuple(f"{mark}-" for mark in marks)
    for file in list(folder.files("data")):
        name = file.path.rsplit("/", 1)[1]
        if name.startswith(beginnings) and name not in kept:
            folder.remove(file.path)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, list | tuple) else value
