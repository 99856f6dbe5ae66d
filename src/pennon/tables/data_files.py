"""Writing rows into data files of a table, with a maximum of rows each; they are invisible until they are committed."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pennon.storage.root import open_file_io

if TYPE_CHECKING:
    import pyarrow as pa
    from lance.file import LanceFileWriter

_FILE_ROWS = 1024 * 1024
_FILE_BYTES = 1024 * 1024 * 1024


@dataclass(frozen=True)
class WrittenFile:
    """A finished data file."""

    name: str
    rows: int
    size: int


class FileMetadataSource(Protocol):
    """Computes metadata of a file from its rows."""

    def add(self, rows: pa.RecordBatch) -> None:
        """Add the next rows of the file."""

    def finish(self) -> dict[str, str]:
        """Return the metadata of the rows since the last call."""


class DataFileWriter:
    """Writes batches into files whose names have a common prefix, by which they are found again."""

    def __init__(
        self,
        home: str,
        options: dict[str, str],
        schema: pa.Schema,
        version: str,
        prefix: str,
        max_rows: int | None,
        on_finished: Callable[[WrittenFile], None],
        metadata_source: FileMetadataSource | None = None,
    ) -> None:
        self._home = home
        self._options = options
        self._schema = schema
        self._version = version
        self._prefix = prefix
        self._max_rows = max_rows or _FILE_ROWS
        self._on_finished = on_finished
        self._metadata_source = metadata_source
        self._writer: LanceFileWriter | None = None
        self._rows = self._bytes = 0
        self._names: list[str] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows of the schema; a full file is closed."""
        while batch.num_rows:
            writer = self._writer = self._writer or self._open()
            part = batch.slice(0, self._max_rows - self._rows)
            writer.write_batch(part)
            if self._metadata_source is not None:
                self._metadata_source.add(part)
            self._rows += part.num_rows
            self._bytes += part.nbytes
            if self._rows >= self._max_rows or self._bytes >= _FILE_BYTES:
                self.close()
            batch = batch.slice(part.num_rows)

    def close(self) -> None:
        """Close the current file, if any."""
        if self._writer is None:
            return
        writer, self._writer = self._writer, None
        if self._metadata_source is not None:
            for key, value in self._metadata_source.finish().items():
                writer.add_schema_metadata(key, value)
        writer.close()
        self._on_finished(WrittenFile(self._names[-1], self._rows, writer.size_bytes or 0))

    def abort(self) -> None:
        """Remove the files written so far."""
        self._writer = None  # an unclosed file never gets its name
        folder = open_file_io(self._home, self._options)
        for name in self._names:
            folder.remove(f"data/{name}")

    def _open(self) -> LanceFileWriter:
        from lance.file import LanceFileWriter

        self._names.append(f"{self._prefix}-{uuid.uuid4().hex}.lance")
        self._rows = self._bytes = 0
        path = f"{self._home}/data/{self._names[-1]}"
        return LanceFileWriter(path, self._schema, version=self._version, storage_options=self._options or None)
