"""Writing rows into data files of a table, each of so many rows at most; nobody sees them before they are committed."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pennon.storage.root import open_file_io

if TYPE_CHECKING:
    import pyarrow as pa

_FILE_ROWS = 1024 * 1024
_FILE_BYTES = 1024 * 1024 * 1024


@dataclass(frozen=True)
class WrittenFile:
    """A file of rows."""

    name: str
    rows: int
    size: int


class FileNotes(Protocol):
    """Sees the rows of a file, and says in its metadata what is worth knowing of them."""

    def see(self, rows: pa.RecordBatch) -> None:
        """Look at the next rows."""

    def take(self) -> dict[str, str]:
        """Return what there is to say of the rows since the last call."""


class DataFileWriter:
    """Writes batches into files whose names begin with a mark, by which they are found again."""

    def __init__(
        self,
        home: str,
        options: dict[str, str],
        schema: pa.Schema,
        version: str,
        mark: str,
        most_rows: int | None,
        finished: Callable[[WrittenFile], None],
        notes: FileNotes | None = None,
    ) -> None:
        self._home = home
        self._options = options
        self._schema = schema
        self._version = version
        self._mark = mark
        self._most_rows = most_rows or _FILE_ROWS
        self._finished = finished
        self._notes = notes
        self._writer: Any = None
        self._rows = self._bytes = 0
        self._names: list[str] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows of the schema; a file is finished when it has rows or bytes enough."""
        while batch.num_rows:
            if self._writer is None:
                self._open()
            piece = batch.slice(0, self._most_rows - self._rows)
            self._writer.write_batch(piece)
            if self._notes is not None:
                self._notes.see(piece)
            self._rows += piece.num_rows
            self._bytes += piece.nbytes
            if self._rows >= self._most_rows or self._bytes >= _FILE_BYTES:
                self.close()
            batch = batch.slice(piece.num_rows)

    def close(self) -> None:
        """Finish the file that is being written, if any."""
        if self._writer is None:
            return
        writer, self._writer = self._writer, None
        for key, value in (self._notes.take() if self._notes is not None else {}).items():
            writer.add_schema_metadata(key, value)
        writer.close()
        self._finished(WrittenFile(self._names[-1], self._rows, writer.size_bytes))

    def abort(self) -> None:
        """Remove what was written."""
        self._writer = None  # a file that is not closed never gets its name
        folder = open_file_io(self._home, self._options)
        for name in self._names:
            folder.remove(f"data/{name}")

    def _open(self) -> None:
        from lance.file import LanceFileWriter

        self._names.append(f"{self._mark}-{uuid.uuid4().hex}.lance")
        options: dict[str, Any] = {"storage_options": self._options} if self._options else {}
        path = f"{self._home}/data/{self._names[-1]}"
        self._writer = LanceFileWriter(path, self._schema, version=self._version, **options)
        self._rows = self._bytes = 0
