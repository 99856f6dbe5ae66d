"""How work is divided, and how often results are kept, is as the request says."""

from __future__ import annotations

import itertools
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pennon
from tests.integration.backfill.conftest import NewSample
from tests.integration.backfill.sample_tables import SampleTable


@dataclass(frozen=True)
class Call:
    """What a call of the function saw: its task, its rows, its time, and the rows of each checkpoint there was."""

    task: int
    rows: int
    began: float
    ended: float
    kept: list[int]


def watchful(folder: str, seconds: float) -> Any:
    """Return a function whose values tell what its calls see."""

    def look(id: pa.Array) -> pa.Array:  # noqa: A002
        from pyspark import TaskContext

        context: Any = TaskContext.get()
        began = time.monotonic()
        kept = [int(path.stem.split("-")[3]) for path in Path(folder, "_checkpoints").rglob("*.arrow")]
        time.sleep(seconds)
        seen = [context.taskAttemptId(), len(id), began, time.monotonic(), kept]
        return pa.array([json.dumps(seen)] * len(id))

    return pennon.udf(data_type=pa.string(), kind="batch")(look)


def calls(sample: SampleTable, seconds: float = 0.0, **options: Any) -> list[Call]:
    """Fill a column, and return its calls in the order in which they were made."""
    sample.table.add_columns({"y": watchful(str(sample.folder), seconds)})
    sample.fill(**options)
    assert sample.checkpoints() == []
    return sorted((Call(*json.loads(value)) for value in set(sample.values().values())), key=lambda call: call.began)


def rows_of_tasks(made: list[Call]) -> list[int]:
    """Return how many rows each task computed."""
    tasks = {call.task for call in made}
    return sorted(sum(call.rows for call in made if call.task == task) for task in tasks)


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        ({"concurrency": 1}, [60]),
        ({"concurrency": 2, "task_size": 20}, [20, 20, 20]),
        ({"concurrency": 1, "task_size": 7}, [10] * 6),  # a fragment is not divided for its size
    ],
    ids=str,
)
def test_fragments_are_shared_out_among_tasks(new_sample: NewSample, options: dict[str, int], rows: list[int]) -> None:
    assert rows_of_tasks(calls(new_sample(60, 6), **options)) == rows


def test_tasks_take_fragments_until_none_is_left(new_sample: NewSample) -> None:
    rows = rows_of_tasks(calls(new_sample(60, 6), concurrency=3))
    assert len(rows) <= 3
    assert sum(rows) == 60


def test_no_more_tasks_run_at_once_than_asked_for(new_sample: NewSample) -> None:
    made = calls(new_sample(60, 6), 0.02, concurrency=1, task_size=10)
    assert len(rows_of_tasks(made)) == 6
    assert all(before.ended <= after.began for before, after in itertools.pairwise(made))


def test_checkpoints_are_of_the_size_asked_for(new_sample: NewSample) -> None:
    made = calls(new_sample(30), concurrency=1, checkpoint_size=6)
    assert [call.rows for call in made] == [6] * 5
    assert [call.kept for call in made] == [[6] * number for number in range(5)]


def test_checkpoints_are_no_smaller_and_no_larger_than_asked_for(new_sample: NewSample) -> None:
    bounds = {"min_checkpoint_size": 20, "max_checkpoint_size": 50, "batch_checkpoint_flush_interval_seconds": 0.0}
    made = calls(new_sample(200), concurrency=1, **bounds)
    sizes = made[-1].kept
    assert len(sizes) >= 3
    assert all(20 <= size <= 50 for size in sizes)


@pytest.mark.parametrize(("interval", "is_kept"), [(0.0, True), (3600.0, False)])
def test_results_are_kept_as_often_as_asked_for(new_sample: NewSample, interval: float, is_kept: bool) -> None:
    made = calls(new_sample(60), 0.15, concurrency=1, batch_checkpoint_flush_interval_seconds=interval)
    assert len(made) > 1
    assert bool(made[-1].kept) == is_kept
