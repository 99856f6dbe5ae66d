"""The work queue of a backfill: fragments and ranges of their rows, which the tasks of a run claim one after the other.

The queue is small files on storage, named ``<run>.<kind>.<what>``:

- ``claim``: a task has claimed this work; a claim is a file that only one task can create.
- ``done``: the work is done; the file has its counters.
- ``ranges``: the rest of this fragment is divided into ranges of rows.
- ``ended``: this task has ended, because it found nothing to claim, or it had its share.

At first, each fragment is work for one task, which writes its column file. When tasks are idle, and the function is so
slow that its results are worth a checkpoint, the task divides the rows that are left. Ranges are claimed like
fragments; their results are saved as parts of the fragment's checkpoint. When the last range is done, the column file
is work again: any task can write it from the parts.

Executors import this module: nothing of Lance is imported before a Python worker forked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict, cast

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pennon.columns.plan import WorkUnit
    from pennon.pipeline.task_records import TaskCounters
    from pennon.storage.file_io import FileIO

_CLAIM, _DONE, _RANGES, _ENDED = "claim", "done", "ranges", "ended"
#: A range has this fraction of the rows that are left for each task, so that the last ranges are small, and at least
#: the least fraction of all. With 2 tasks that makes 14 ranges, the smallest with 1/64 of the rows.
_FRACTION, _LEAST_FRACTION = 2, 32


class _Division(TypedDict):
    """How the rest of a fragment is divided, and what was done before."""

    ranges: list[tuple[int, int]]
    counters: TaskCounters


@dataclass(frozen=True)
class QueuedWork:
    """What a task does at a time: a fragment, or a range of its rows."""

    #: The fragment's number; for a range also that of the range, and for the column file of ranges ``-file``.
    name: str
    #: The rows to compute.
    unit: WorkUnit
    is_range: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether this is a fragment that is not divided."""
        return self.name == str(self.unit.fragment_id)


@dataclass(frozen=True)
class QueueState:
    """The queue as a listing shows it."""

    #: Work that nobody has claimed.
    open: list[QueuedWork]
    #: Work that is claimed and not done.
    claimed: list[QueuedWork]
    ended_tasks: int


class WorkQueue:
    """The work of one run of tasks."""

    def __init__(self, files: FileIO, folder: str, run: str, units: Sequence[WorkUnit]) -> None:
        self._files = files
        self._folder = folder
        self._run = run
        largest_first = sorted(units, key=lambda unit: unit.count, reverse=True)
        self._fragments = [QueuedWork(str(unit.fragment_id), unit) for unit in largest_first]
        self._divisions: dict[str, _Division] = {}
        #: The fragments that this task has not come to yet, of those that it begins with.
        self._share: list[QueuedWork] = []

    def state(self) -> QueueState:
        """List what is open and what is claimed."""
        found = self._listing()
        undone = [work for fragment in self._fragments for work in self._works(fragment, found)]
        claims = found[_CLAIM]
        return QueueState(
            [work for work in undone if work.name not in claims],
            [work for work in undone if work.name in claims],
            len(found[_ENDED]),
        )

    # The tasks' side.

    def claim(self, task: int, share: int, most_rows: int | None, *, is_retry: bool) -> Iterator[QueuedWork]:
        """Claim work for a task, one after the other, until none is left or the task has its share.

        Args:
            task: The number of the task.
            share: How many tasks begin with an equal share of the fragments; those with higher numbers begin with what
                the others left.
            most_rows: The most rows of a task; the first work may have more.
            is_retry: Whether an earlier attempt of the task may have claimed work.
        """
        rows = 0
        for work in self._offers(task, share, is_retry=is_retry):
            if rows and most_rows is not None and rows + work.unit.count > most_rows:
                break
            if self._put_claim(work, task, is_retry=is_retry):
                rows += work.unit.count
                yield work
        self.end(task)

    def end(self, task: int) -> None:
        """Record that a task claims nothing more."""
        self._files.replace(self._path(_ENDED, str(task)), b"")

    def _offers(self, task: int, share: int, *, is_retry: bool) -> Iterator[QueuedWork]:
        """Return what a task may claim: first its share of the fragments, and then the largest work that is open."""
        if task < share and not is_retry:
            self._share = self._fragments[task::share]
        while self._share:
            yield self._share.pop(0)
        tried: set[str] = set()
        while True:
            state = self.state()
            own = [work for work in state.claimed if work.name not in tried] if is_retry else []
            if not state.open and not own:
                return
            work = max(own or state.open, key=lambda work: work.unit.count)
            tried.add(work.name)
            yield work

    def _put_claim(self, work: QueuedWork, task: int, *, is_retry: bool) -> bool:
        """Claim work, and return whether it is the task's own now."""
        path = self._path(_CLAIM, work.name)
        if self._files.put_if_absent(path, str(task).encode()) is not None:
            return True
        return is_retry and self._files.read(path) == str(task).encode()

    def tasks_for_one(self, most: int) -> int:
        """Return among how many tasks a fragment may be divided, if ``most`` may run at once; 1 if none is idle."""
        # Most of the time this is so, and takes no listing.
        if self._share and self._files.stat(self._path(_CLAIM, self._share[0].name)) is None:
            return 1
        state = self.state()
        return 1 if state.open else -(-most // max(len(state.claimed), 1))

    def divide(self, unit: WorkUnit, ranges: list[tuple[int, int]], counters: TaskCounters) -> None:
        """Divide the rest of a fragment into ranges of rows; what was computed before is saved as parts."""
        content = json.dumps(_Division(ranges=ranges, counters=counters)).encode()
        self._files.put_if_absent(self._path(_RANGES, str(unit.fragment_id)), content)

    def finish(self, work: QueuedWork, counters: TaskCounters | None) -> None:
        """Record that work is done."""
        self._files.replace(self._path(_DONE, work.name), json.dumps(counters).encode())

    def earlier_counters(self, unit: WorkUnit) -> list[TaskCounters]:
        """Return what tasks have done for a fragment before its column file is written."""
        name = str(unit.fragment_id)
        if name not in self._divisions:
            return []
        division = self._divisions[name]
        paths = [self._path(_DONE, f"{name}-{number}") for number in range(len(division["ranges"]))]
        return [division["counters"], *(cast("TaskCounters", json.loads(self._files.read(path))) for path in paths)]

    # The driver's side.

    def release(self) -> None:
        """Give back what lost tasks have claimed; no task may run."""
        for work in self.state().claimed:
            self._files.remove(self._path(_CLAIM, work.name))

    def clear(self) -> None:
        """Remove this queue and those that other runs have left."""
        for file in list(self._files.files(self._folder)):
            self._files.remove(file.path)

    def _works(self, fragment: QueuedWork, found: dict[str, set[str]]) -> list[QueuedWork]:
        """Return the work on a fragment that is not done."""
        name, unit = fragment.name, fragment.unit
        if not found[_DONE].isdisjoint((name, f"{name}-file")):
            return []
        if name not in found[_RANGES]:
            return [fragment]
        if name not in self._divisions:
            self._divisions[name] = json.loads(self._files.read(self._path(_RANGES, name)))
        ranges = [
            QueuedWork(f"{name}-{number}", unit.within(start, stop), is_range=True)
            for number, (start, stop) in enumerate(self._divisions[name]["ranges"])
            if f"{name}-{number}" not in found[_DONE]
        ]
        return ranges or [QueuedWork(f"{name}-file", unit)]

    def _listing(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {kind: set() for kind in (_CLAIM, _DONE, _RANGES, _ENDED)}
        for file in self._files.files(self._folder):
            named = file.path.rsplit("/", 1)[1].split(".")
            if len(named) == 3 and named[0] == self._run and named[1] in found:  # others are not complete yet
                found[named[1]].add(named[2])
        return found

    def _path(self, kind: str, what: str) -> str:
        return f"{self._folder}/{self._run}.{kind}.{what}"


def split_rows(rows: NDArray[np.int64], tasks: int, least: int) -> list[tuple[int, int]]:
    """Divide rows, given by their offsets, into ranges for tasks that claim them; later ranges are smaller.

    Each range but the last has at least ``least`` of the rows.
    """
    least = max(least, len(rows) // (_LEAST_FRACTION * tasks), 1)
    ranges, first = [], 0
    while first < len(rows):
        size = max((len(rows) - first) // (_FRACTION * tasks), least)
        last = min(first + size, len(rows)) - 1
        ranges.append((int(rows[first]), int(rows[last]) + 1))
        first = last + 1
    return ranges
