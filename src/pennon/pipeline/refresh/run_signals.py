"""What the tasks of a refresh and its driver tell each other while they run, as small files in the view's folder."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pennon.core.clock import now_millis

if TYPE_CHECKING:
    from pennon.storage.file_io import FileIO, StoredFile

FOLDER = "_refreshes"
_OPEN, _PROGRESS, _FAILURE = "open", "progress", "failure"
_SECONDS = 0.5
#: After so long nobody is left who would need the notices of a run whose driver died.
_KEPT_MILLIS = 60 * 60 * 1000


class StoppedError(Exception):
    """The driver wants nothing more of this run."""


class Notices:
    """The notices of one run of tasks; the names of their files tell the run, what it is about, and the task."""

    def __init__(self, folder: FileIO, run: str) -> None:
        self._folder = folder
        self._run = run
        self._told = time.monotonic()

    def begin(self) -> None:
        """Put up the sign that something is wanted of this run; tasks stop when it is gone."""
        self._folder.replace(self._path(_OPEN), b"")

    def check(self) -> None:
        """Raise when nothing is wanted of this run any more."""
        if self._folder.stat(self._path(_OPEN)) is None:
            raise StoppedError("The run was stopped, or ended without this task.")

    def tell(self, task: int, rows: int) -> None:
        """Tell now and then how far a task is; raise when it is not to go on."""
        now = time.monotonic()
        if now - self._told < _SECONDS:
            return
        self._told = now
        self.check()
        self._folder.replace(self._path(_PROGRESS, task), json.dumps(rows).encode())

    def file_failure(self, task: int, failure: dict[str, str]) -> None:
        """Say that a task cannot go on, and why, without waiting for the others."""
        self._folder.replace(self._path(_FAILURE, task), json.dumps(failure).encode())

    def read(self) -> tuple[int, dict[str, str] | None]:
        """Return how many rows are done as far as is known, and what a task failed of."""
        rows, failure = 0, None
        for file in self._own():
            kind = file.path.rsplit(".", 2)[1]
            if kind == _OPEN:
                continue
            try:
                content: Any = json.loads(self._folder.read(file.path))
            except (FileNotFoundError, ValueError):
                continue  # removed meanwhile, or not yet written to its end
            if kind == _PROGRESS:
                rows += content
            else:
                failure = content
        return rows, failure

    def stop(self) -> None:
        """Tell the tasks to compute nothing more, also those that Spark has not ended yet."""
        self._folder.remove(self._path(_OPEN))

    def clear(self) -> None:
        """Remove all notices."""
        self.stop()
        for file in list(self._own()):
            self._folder.remove(file.path)

    def forget_old(self) -> None:
        """Remove the notices of runs that began long ago."""
        oldest = now_millis() - _KEPT_MILLIS
        for file in list(self._folder.files(FOLDER)):
            if file.modified_millis < oldest:
                self._folder.remove(file.path)

    def _own(self) -> Iterator[StoredFile]:
        for file in self._folder.files(FOLDER):
            if file.path.startswith(f"{FOLDER}/{self._run}.") and file.path.count(".") == 2:
                yield file

    def _path(self, kind: str, task: int = 0) -> str:
        return f"{FOLDER}/{self._run}.{kind}.{task}"
