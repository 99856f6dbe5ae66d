"""Checkpoints of a backfill: results on storage that are not committed yet, so that no row is computed twice.

They are in one folder of the table, for one function of one column. A *part* holds the results of some rows of a
fragment; its name says which, so that a listing shows the progress. A *receipt* says that the column file of a fragment
is written, and describes it. Parts and receipts are named after the fragment's input files: other input files mean
other rows.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict, cast

import pyarrow as pa

if TYPE_CHECKING:
    from pennon.pipeline.task_records import DataFileRecord, TaskCounters
    from pennon.storage.file_io import FileIO

FOLDER = "_checkpoints"
OFFSET = "_offset"
ERROR_TYPE, ERROR_MESSAGE, ATTEMPT = "_error_type", "_error_message", "_attempt"
_NAME_DIGITS = 16
_PART = re.compile(r"([0-9a-f]+)-(\d+)-(\d+)-(\d+)-(\d+)\.arrow")
_RECEIPT = re.compile(r"[0-9a-f]+\.json")

#: An error of a row: its offset in the fragment, the type, the message and the number of the attempt.
ErrorRecord = tuple[int, str, str, int]


class Receipt(TypedDict):
    """What a task wrote for a fragment; ranges of rows are pairs of a start and a stop."""

    fragment_id: int
    #: The signature and the rows of the unit that it completes.
    signature: str
    todo: Sequence[Sequence[int]]
    failed: Sequence[Sequence[int]]
    errors: list[ErrorRecord]
    #: Runs of row ids, in the order of the rows; empty in a table without stable row ids.
    row_ids: Sequence[Sequence[int]]
    file: DataFileRecord
    counters: TaskCounters


def checkpoint_path(key: str, digest: str, branch: str) -> str:
    """Return the checkpoint folder, in a table, of one function of a column of a branch."""
    name = hashlib.sha256(f"{branch}\n{digest}".encode()).hexdigest()[:_NAME_DIGITS]
    return f"{FOLDER}/{key}/{name}"


def signals_path(checkpoints: str) -> str:
    """Return the folder of the run signals, in a checkpoint folder."""
    return f"{checkpoints}/runs"


def queue_path(checkpoints: str) -> str:
    """Return the folder of the work queues, in a checkpoint folder."""
    return f"{checkpoints}/queue"


@dataclass(frozen=True)
class CheckpointFile:
    """A file of results, as its name describes it."""

    path: str
    fragment: str
    start: int
    stop: int
    rows: int
    failed: int


class Checkpoints:
    """The checkpoint folder of one function of one column."""

    def __init__(self, folder: FileIO, path: str) -> None:
        self._folder = folder
        self._path = path

    def save(self, signature: str, results: pa.RecordBatch, failed: int) -> None:
        """Save results of rows of a fragment as a part; it appears complete, or not at all."""
        start, stop = results.column(OFFSET)[0].as_py(), results.column(OFFSET)[-1].as_py() + 1
        name = f"{signature[:_NAME_DIGITS]}-{start}-{stop}-{results.num_rows}-{failed}.arrow"
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, results.schema) as writer:
            writer.write_batch(results)
        self._folder.replace(f"{self._path}/parts/{name}", sink.getvalue().to_pybytes())

    def parts(self, signature: str | None = None) -> Iterator[CheckpointFile]:
        """Return the parts of one fragment, or of all."""
        for file in self._folder.files(f"{self._path}/parts"):
            named = _PART.fullmatch(file.path.rsplit("/", 1)[1])  # others are not complete yet
            if named and (signature is None or named[1] == signature[:_NAME_DIGITS]):
                yield CheckpointFile(file.path, named[1], *map(int, named.groups()[1:]))

    def load(self, part: CheckpointFile) -> pa.Table:
        """Return the results of a part in row order; raises if the part is damaged or gone."""
        return pa.ipc.open_file(pa.BufferReader(self._folder.read(part.path))).read_all()

    def save_receipt(self, signature: str, receipt: Receipt) -> None:
        """Record that the column file of a fragment is written."""
        self._folder.replace(self._receipt_path(signature), json.dumps(receipt).encode())

    def receipt_names(self) -> set[str]:
        """Return the names of all receipts."""
        names = (file.path.rsplit("/", 1)[1] for file in self._folder.files(f"{self._path}/receipts"))
        return {name for name in names if _RECEIPT.fullmatch(name)}

    def receipt(self, signature: str) -> Receipt | None:
        """Return the receipt of a fragment."""
        try:
            content = self._folder.read(self._receipt_path(signature))
        except FileNotFoundError:
            return None
        return cast("Receipt", json.loads(content))

    def receipt_name(self, signature: str) -> str:
        """Return the name that a fragment's receipt has in a listing."""
        return f"{signature[:_NAME_DIGITS]}.json"

    def remove_unusable(self, data: str, *, errors: bool) -> None:
        """Remove receipts whose file is gone from the data folder and, on request, all results with errors."""
        for name in self.receipt_names():
            receipt = self.receipt(name.removesuffix(".json"))
            if receipt is None:
                continue
            is_gone = self._folder.stat(f"{data}/{receipt['file']['path']}") is None
            if is_gone or (errors and receipt["failed"]):
                self._folder.remove(f"{self._path}/receipts/{name}")
        for part in list(self.parts()) if errors else []:
            if part.failed:
                self._folder.remove(part.path)

    def remove_parts(self, signature: str) -> None:
        """Remove the parts of a fragment."""
        for part in list(self.parts(signature)):
            self._folder.remove(part.path)

    def remove_receipt(self, signature: str) -> None:
        """Remove the receipt of a fragment."""
        self._folder.remove(self._receipt_path(signature))

    def clear(self) -> None:
        """Remove everything, run signals and work queues included."""
        own = (f"{self._path}/parts", f"{self._path}/receipts")
        for folder in (*own, signals_path(self._path), queue_path(self._path)):
            for file in list(self._folder.files(folder)):
                self._folder.remove(file.path)

    def _receipt_path(self, signature: str) -> str:
        return f"{self._path}/receipts/{self.receipt_name(signature)}"
