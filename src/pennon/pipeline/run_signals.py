"""Signals between a driver and its tasks while they run, as small files on storage.

Spark tells a task nothing while it runs: a cancelled one goes on for seconds, and a failure reaches the driver only
when Spark has given up on the whole run. So backfills and refreshes use these files beside it:

- ``open``: the driver still wants this run. Tasks stop when the file is gone. A file that asks to *stop* would have to
  be kept for as long as Spark may still start a task that it was asked to cancel: seconds after the driver has
  forgotten the run.
- ``progress``: how many rows a task has computed. Backfills write none: their checkpoints show it.
- ``failure``: why a task failed, where a second attempt would fail in the same way.

A task's result and its failure are also its answer, which Spark delivers when the task has ended.

Executors import this module: nothing of Lance is imported before a Python worker forked.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

from pennon.core.clock import now_millis

if TYPE_CHECKING:
    from pennon.pipeline.task_records import TaskAnswer, TaskFailure
    from pennon.storage.file_io import FileIO, StoredFile

Result = TypeVar("Result")

_OPEN, _PROGRESS, _FAILURE = "open", "progress", "failure"
#: How often a task reports progress and checks whether it is still wanted. Not measured: often enough for a person who
#: watches, and two requests a second for each task on an object store.
_REPORT_SECONDS = 0.5
#: After an hour, no task of a driver that died is left.
_EXPIRY_MILLIS = 60 * 60 * 1000


class RunStoppedError(Exception):
    """The driver does not want this run any more."""


class RunStatus(NamedTuple):
    """What the tasks of a run have signalled so far."""

    rows: int
    failure: TaskFailure | None


class RunSignals:
    """The signals of one run of tasks: files ``<run>.<kind>.<task>`` in one folder."""

    def __init__(self, files: FileIO, folder: str, run: str) -> None:
        self._files = files
        self._folder = folder
        self._run = run
        self._reported_at = time.monotonic()

    # The driver's side.

    def start(self) -> None:
        """Allow the tasks of this run to compute."""
        self._files.replace(self._path(_OPEN), b"")

    def stop_all(self) -> None:
        """Stop every run in the folder: a driver that died could not stop its own."""
        for file in list(self._files.files(self._folder)):
            self._files.remove(file.path)

    def stop(self) -> None:
        """Make the tasks stop, including those that Spark has not ended yet."""
        self._files.remove(self._path(_OPEN))

    def clear(self) -> None:
        """Stop the run, and remove its signals."""
        self.stop()
        for file in list(self._own()):
            self._files.remove(file.path)

    def remove_expired(self) -> None:
        """Remove the signals of runs that began long ago."""
        oldest = now_millis() - _EXPIRY_MILLIS
        for file in list(self._files.files(self._folder)):
            if file.modified_millis < oldest:
                self._files.remove(file.path)

    def poll(self) -> RunStatus:
        """Return the progress and the first failure that tasks have signalled."""
        rows = 0
        failures: dict[int, TaskFailure] = {}
        for file in self._own():
            _, kind, task = file.path.rsplit(".", 2)
            if kind == _OPEN:
                continue
            try:
                content: object = json.loads(self._files.read(file.path))
            except (FileNotFoundError, ValueError):
                continue  # removed since, or not complete yet
            if kind == _PROGRESS:
                rows += cast("int", content)
            else:
                failures[int(task)] = cast("TaskFailure", content)
        return RunStatus(rows, failures[min(failures)] if failures else None)

    # The tasks' side.

    def check(self) -> None:
        """Raise RunStoppedError when the driver does not want this run any more."""
        if self._files.stat(self._path(_OPEN)) is None:
            raise RunStoppedError("The run was stopped, or it ended without this task.")

    def report_progress(self, task: int, rows: int) -> None:
        """Check, and report how many rows a task has computed; does nothing when the last report is recent."""
        now = time.monotonic()
        if now - self._reported_at < _REPORT_SECONDS:
            return
        self._reported_at = now
        self.check()
        self._files.replace(self._path(_PROGRESS, task), json.dumps(rows).encode())

    def report_failure(self, task: int, failure: TaskFailure) -> None:
        """Report that a task failed, without waiting for the others."""
        self._files.replace(self._path(_FAILURE, task), json.dumps(failure).encode())

    def _own(self) -> Iterator[StoredFile]:
        for file in self._files.files(self._folder):
            name = file.path.rsplit("/", 1)[1]
            if name.startswith(f"{self._run}.") and name.count(".") == 2:  # others are not complete yet
                yield file

    def _path(self, kind: str, task: int = 0) -> str:
        return f"{self._folder}/{self._run}.{kind}.{task}"


def run_task(
    signals: RunSignals, task: int, work: Callable[[], Result], abort: Callable[[], None] = lambda: None
) -> TaskAnswer[Result]:
    """Do the work of a task, and return its answer.

    A failure that a second attempt would repeat is reported and answered; Spark would retry what is raised.

    Args:
        signals: The signals of the run.
        task: The number of the task.
        work: Returns the task's result.
        abort: Removes what the work has written; called when it raises.
    """
    from pennon.pipeline.function_execution import find_failure

    try:
        return {"result": work(), "failure": None}
    except BaseException as error:
        abort()
        failure = find_failure(error)
        if failure is None:
            raise
        signals.report_failure(task, failure)
        return {"result": None, "failure": failure}
