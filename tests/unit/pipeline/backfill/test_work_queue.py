"""The work queue: every fragment and every range is claimed by one task, also when tasks die."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pennon.columns.plan import WorkUnit
from pennon.columns.row_spans import count_rows, mask_of, spans_of
from pennon.pipeline.backfill.work_queue import WorkQueue, split_rows
from pennon.pipeline.task_metrics import TaskMetrics
from pennon.pipeline.task_records import TaskCounters
from pennon.storage.local import LocalFileIO


def units(counts: Iterable[int]) -> tuple[WorkUnit, ...]:
    return tuple(
        WorkUnit(number, count, ((0, count),), count, False, False, str(number), str(number), 8 * count)
        for number, count in enumerate(counts)
    )


def counters(rows: int = 0) -> TaskCounters:
    return TaskMetrics(rows_computed=rows).counters()


@pytest.fixture
def files(tmp_path: Path) -> LocalFileIO:
    return LocalFileIO(str(tmp_path))


def queue_of(files: LocalFileIO, counts: Iterable[int], run: str = "run") -> WorkQueue:
    return WorkQueue(files, "queue", run, units(counts))


def names(queue: WorkQueue, task: int, share: int, most_rows: int | None = None) -> list[str]:
    """Return what a task claims until nothing is left for it; all of it is done."""
    found = []
    for work in queue.claim(task, share, most_rows, is_retry=False):
        found.append(work.name)
        queue.finish(work, counters())
    return found


def test_tasks_that_come_first_share_the_fragments(files: LocalFileIO) -> None:
    first, second = (queue_of(files, [5, 30, 10, 20]).claim(task, 2, None, is_retry=False) for task in range(2))
    assert [next(first).name, next(second).name, next(second).name, next(second).name] == ["1", "3", "0", "2"]
    assert list(first) == list(second) == []


def test_no_task_has_more_rows_than_allowed_and_others_take_the_rest(files: LocalFileIO) -> None:
    queue = queue_of(files, [10] * 5 + [30])
    assert [names(queue, task, 2, 20) for task in range(4)] == [["5"], ["0", "2"], ["1", "3"], ["4"]]
    state = queue.state()
    assert (state.open, state.claimed, state.ended_tasks) == ([], [], 4)


@given(st.lists(st.integers(1, 100), min_size=1, max_size=30), st.integers(1, 6), st.none() | st.integers(1, 150))
def test_every_fragment_is_claimed_once(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], tasks: int, most_rows: int | None
) -> None:
    files = LocalFileIO(str(tmp_path_factory.mktemp("queue")))
    claimed: list[str] = []
    started = 0

    def claim(task: int) -> None:
        claimed.extend(names(queue_of(files, counts), task, tasks, most_rows))

    while queue_of(files, counts).state().open:
        threads = [threading.Thread(target=claim, args=(task,)) for task in range(started, started + tasks)]
        started += tasks
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(map(int, claimed)) == list(range(len(counts)))


def test_ranges_are_claimed_like_fragments_and_then_their_file(files: LocalFileIO) -> None:
    queue, other = queue_of(files, [100, 10]), queue_of(files, [100, 10])
    owner = queue.claim(0, 2, None, is_retry=False)
    whole = next(owner)
    assert (whole.name, whole.is_whole, whole.is_range) == ("0", True, False)
    assert queue.tasks_for_one(4) == 1  # the other fragment is open
    helper = other.claim(1, 2, None, is_retry=False)
    small = next(helper)
    assert queue.tasks_for_one(4) == 2
    assert queue.tasks_for_one(2) == 1
    other.finish(small, None)
    queue.divide(whole.unit, [(40, 80), (80, 100)], counters(40))
    first, second = next(owner), next(helper)
    assert [(work.name, work.unit.todo, work.is_range) for work in (first, second)] == [
        ("0-0", ((40, 80),), True),
        ("0-1", ((80, 100),), True),
    ]
    assert (first.unit.count, first.unit.bytes) == (40, 320)
    queue.finish(first, counters(40))
    other.finish(second, counters(20))
    (file,) = owner
    assert (file.name, file.unit, file.is_range, file.is_whole) == ("0-file", whole.unit, False, False)
    assert sum(done["rows_computed"] for done in queue.earlier_counters(file.unit)) == 100
    assert [work.name for work in other.state().claimed] == ["0-file"]
    queue.finish(file, None)
    assert (list(helper), other.state().claimed) == ([], [])
    queue.clear()
    assert list(files.files("queue")) == []


def test_a_task_that_is_tried_again_goes_on_with_its_own_work(files: LocalFileIO) -> None:
    lost, other = queue_of(files, [30, 20, 10]), queue_of(files, [30, 20, 10])
    assert next(lost.claim(0, 2, None, is_retry=False)).name == "0"
    rest = other.claim(1, 2, None, is_retry=False)
    assert next(rest).name == "1"
    again = queue_of(files, [30, 20, 10])
    assert names_of_retry(again, 0) == ["0", "2"]
    assert [work.name for work in again.state().claimed] == ["1"]


def names_of_retry(queue: WorkQueue, task: int) -> list[str]:
    found = []
    for work in queue.claim(task, 2, None, is_retry=True):
        found.append(work.name)
        queue.finish(work, counters())
    return found


def test_what_tasks_have_lost_can_be_claimed_again(files: LocalFileIO) -> None:
    queue = queue_of(files, [30, 20])
    assert next(queue.claim(0, 2, None, is_retry=False)).name == "0"
    queue.release()
    assert names(queue, 2, 2) == ["0", "1"]


def test_another_run_has_a_queue_of_its_own(files: LocalFileIO) -> None:
    assert names(queue_of(files, [1, 1], "run-1"), 0, 1) == ["0", "1"]
    assert names(queue_of(files, [1, 1], "run-2"), 0, 1) == ["0", "1"]


masks = st.lists(st.booleans(), min_size=1, max_size=300).filter(any)


@given(masks, st.integers(1, 8), st.integers(1, 40))
def test_ranges_have_each_row_once_and_become_smaller(mask: list[bool], tasks: int, least: int) -> None:
    wanted = np.array(mask)
    rows = cast("np.typing.NDArray[np.int64]", np.flatnonzero(wanted))
    ranges = split_rows(rows, tasks, least)
    counts = [int(np.count_nonzero(wanted[start:stop])) for start, stop in ranges]
    assert sum(counts) == len(rows)
    assert all(stop <= start for (_, stop), (start, _) in itertools.pairwise(ranges))
    assert counts == sorted(counts, reverse=True)
    assert all(count >= least for count in counts[:-1])
    unit = WorkUnit(0, len(mask), spans_of(wanted), len(rows), True, False, "s", "i", 100)
    parts = [unit.within(start, stop) for start, stop in ranges]
    assert [part.count for part in parts] == counts == [count_rows(part.todo) for part in parts]
    assert np.logical_or.reduce([mask_of(part.todo, len(mask)) for part in parts]).tolist() == mask


def test_a_range_is_a_fraction_of_what_is_left() -> None:
    sizes = [stop - start for start, stop in split_rows(np.arange(1_000_000), 2, 1)]
    assert (len(sizes), sizes[:3], sizes[-2]) == (14, [250000, 187500, 140625], 15625)
