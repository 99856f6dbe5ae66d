"""Results of a backfill before they are committed: kept on storage by row range, so that no work is done twice.

All of it lies in one folder of the table, for one function of one column. A part holds the results of some rows of a
fragment; its name tells which, so that progress can be read from a listing. A receipt says that the column file of a
fragment is written and what it holds. Parts and receipts are known by the files of the fragment's inputs: when those
are others, so are the rows.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pennon.storage.file_io import FileIO

FOLDER = "_checkpoints"
OFFSET = "_offset"
ERROR_TYPE, ERROR_MESSAGE, ATTEMPT = "_error_type", "_error_message", "_attempt"
_NAME_DIGITS = 16
_FAILURE = "failure-"
_PART = re.compile(r"([0-9a-f]+)-(\d+)-(\d+)-(\d+)-(\d+)\.arrow")


def checkpoint_path(key: str, digest: str, branch: str) -> str:
    """Return the folder, in a table, of what one function computes for a column of a branch."""
    name = hashlib.sha256(f"{branch}\n{digest}".encode()).hexdigest()[:_NAME_DIGITS]
    return f"{FOLDER}/{key}/{name}"


@dataclass(frozen=True)
class Part:
    """A file of results, as its name tells."""

    path: str
    fragment: str
    start: int
    stop: int
    rows: int
    failed: int


class Checkpoints:
    """The folder of checkpoints of one function of one column."""

    def __init__(self, folder: FileIO, path: str) -> None:
        self._folder = folder
        self._path = path

    def save(self, signature: str, results: pa.RecordBatch, failed: int) -> None:
        """Keep results of rows of a fragment; it is there whole, or not at all."""
        start, stop = results.column(OFFSET)[0].as_py(), results.column(OFFSET)[-1].as_py() + 1
        name = f"{signature[:_NAME_DIGITS]}-{start}-{stop}-{results.num_rows}-{failed}.arrow"
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, results.schema) as writer:
            writer.write_batch(results)
        self._folder.replace(f"{self._path}/parts/{name}", sink.getvalue().to_pybytes())

    def parts(self, signature: str | None = None) -> Iterator[Part]:
        """Return the parts there are, of one fragment or of all."""
        for file in self._folder.files(f"{self._path}/parts"):
            named = _PART.fullmatch(file.path.rsplit("/", 1)[1])  # others are not yet written to their end
            if named and (signature is None or named[1] == signature[:_NAME_DIGITS]):
                yield Part(file.path, named[1], *map(int, named.groups()[1:]))

    def load(self, part: Part) -> pa.Table:
        """Return the results of a part in the order of its rows; raises what tells that it is torn, or gone."""
        return pa.ipc.open_file(pa.BufferReader(self._folder.read(part.path))).read_all()

    def file_receipt(self, signature: str, receipt: dict[str, Any]) -> None:
        """Say that the column file of a fragment is written."""
        self._folder.replace(self._receipt_path(signature), json.dumps(receipt).encode())

    def receipts(self) -> set[str]:
        """Return the names of the receipts there are."""
        return {file.path.rsplit("/", 1)[1] for file in self._folder.files(f"{self._path}/receipts")}

    def receipt(self, signature: str) -> dict[str, Any] | None:
        """Return the receipt of a fragment, if there is one."""
        try:
            content = self._folder.read(self._receipt_path(signature))
        except FileNotFoundError:
            return None
        parsed: dict[str, Any] = json.loads(content)
        return parsed

    def receipt_name(self, signature: str) -> str:
        """Return the name a fragment's receipt has in a listing."""
        return f"{signature[:_NAME_DIGITS]}.json"

    def file_failure(self, task: int, failure: dict[str, str]) -> None:
        """Say that a task cannot go on, and why, without waiting for the others."""
        self._folder.replace(f"{self._path}/receipts/{_FAILURE}{task}.json", json.dumps(failure).encode())

    def failure(self, names: set[str]) -> dict[str, str] | None:
        """Return the failure of a task, if there is one among the names of a listing."""
        named = min((name for name in names if name.startswith(_FAILURE)), default=None)
        if named is None:
            return None
        failure: dict[str, str] = json.loads(self._folder.read(f"{self._path}/receipts/{named}"))
        return failure

    def forget_failures(self) -> None:
        """Remove what tasks of an earlier run failed of."""
        for name in self.receipts():
            if name.startswith(_FAILURE):
                self._folder.remove(f"{self._path}/receipts/{name}")

    def start(self, run: str) -> None:
        """Let the tasks of a run compute, and those of no other: a driver that died could not stop its own."""
        for file in list(self._folder.files(f"{self._path}/runs")):
            self._folder.remove(file.path)
        self._folder.replace(self._run_path(run), b"")

    def stop(self, run: str) -> None:
        """Tell the tasks of a run to compute nothing more."""
        self._folder.remove(self._run_path(run))

    def is_stopped(self, run: str) -> bool:
        """Tell whether the tasks of a run are to compute nothing more.

        What is looked for is a sign to go on: one to stop would have to be kept for as long as Spark may still start a
        task that it was told to cancel, which is seconds after its driver has forgotten it.
        """
        return self._folder.stat(self._run_path(run)) is None

    def forget_unusable(self, data: str, *, errors: bool) -> None:
        """Remove receipts whose file is not among the data any more and, if so asked, what tells of errors."""
        for name in self.receipts():
            receipt = None if name.startswith(_FAILURE) else self.receipt(name.removesuffix(".json"))
            if receipt is None:
                continue
            is_gone = self._folder.stat(f"{data}/{receipt['file']['path']}") is None
            if is_gone or (errors and receipt["failed"]):
                self._folder.remove(f"{self._path}/receipts/{name}")
        for part in list(self.parts()) if errors else []:
            if part.failed:
                self._folder.remove(part.path)

    def forget_parts(self, signature: str) -> None:
        """Remove the results of a fragment."""
        for part in list(self.parts(signature)):
            self._folder.remove(part.path)

    def forget_receipt(self, signature: str) -> None:
        """Remove the receipt of a fragment."""
        self._folder.remove(self._receipt_path(signature))

    def clear(self) -> None:
        """Remove everything."""
        for place in ("parts", "receipts", "runs"):
            for file in list(self._folder.files(f"{self._path}/{place}")):
                self._folder.remove(file.path)

    def _run_path(self, run: str) -> str:
        return f"{self._path}/runs/{run}"

    def _receipt_path(self, signature: str) -> str:
        return f"{self._path}/receipts/{self.receipt_name(signature)}"
