"""A table of one fragment is computed by several tasks, and everything holds that holds for many fragments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pennon.functions import ErrorPolicy
from tests.chaos.spark_processes import kill, python_workers_of
from tests.integration.backfill.sample_tables import SampleTable, ended, slow
from tests.integration.backfill.test_sizes import calls, rows_of_tasks
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pennon.client import Job
    from tests.integration.backfill.calls import CallLog
    from tests.integration.backfill.conftest import NewSample
    from tests.support.server import PennonProcess

ROWS, BATCH, SECONDS = 200, 5, 0.1


@pytest.fixture
def sample(new_sample: NewSample, log: CallLog) -> SampleTable:
    """A table of one fragment, with a column that takes four seconds to fill."""
    made = new_sample(ROWS)
    made.table.add_columns({"y": slow(log, SECONDS, batch_size=BATCH)})
    return made


def divided(sample: SampleTable) -> Job:
    """Begin to fill the column with two tasks, and return the job when ranges are being computed."""
    job = sample.table.backfill_async("y", concurrency=2)
    wait_until(lambda: any(".claim.0-2" in name for name in sample.checkpoints()), "a range is computed")
    return job


def check(sample: SampleTable, *, most_repeated: int = 0) -> None:
    """Check that all rows have the value of their present input, and none was computed more often than needed."""
    assert sample.values() == {key: number * 10 for key, number in sample.numbers().items()}
    assert sample.state() == (len(sample.values()), 0, 0, 0)
    counts = sample.log.counts()
    assert sum(counts.values()) - len(counts) <= most_repeated
    assert sample.checkpoints() == []


def test_several_tasks_compute_one_fragment(new_sample: NewSample) -> None:
    made = calls(new_sample(1000), 0.1, concurrency=2, max_checkpoint_size=50)
    tasks = rows_of_tasks(made)
    assert len(tasks) == 2
    assert sum(tasks) == 1000
    pairs = [(one, other) for one in made for other in made if one.task != other.task]
    assert any(one.began < other.ended and other.began < one.ended for one, other in pairs)


def test_one_task_computes_it_alone_if_one_may_run(new_sample: NewSample) -> None:
    assert rows_of_tasks(calls(new_sample(400), 0.1, concurrency=1, max_checkpoint_size=50)) == [400]


def test_no_row_is_computed_twice_and_the_progress_adds_up(sample: SampleTable) -> None:
    job = divided(sample)
    seen = [job.refresh().counters.get("rows_computed", 0)]
    while not job.refresh().finished:
        seen.append(job.counters.get("rows_computed", 0))
    assert job.state == "done"
    assert seen == sorted(seen)
    names = ("rows_planned", "rows_computed", "rows_committed", "fragments_planned", "fragments_committed")
    assert [job.counters[name] for name in names] == [ROWS, ROWS, ROWS, 1, 1]
    assert job.counters["udf_seconds"] >= ROWS / BATCH * SECONDS
    check(sample)


def test_errors_of_ranges_name_the_rows(new_sample: NewSample, log: CallLog) -> None:
    from tests.integration.backfill.sample_tables import failing_on

    sample = new_sample(ROWS)
    bad = [0, 57, 120, 199]
    sample.table.add_columns({"y": failing_on(log, bad, ErrorPolicy.skip(), batch_size=5)})
    sample.fill(batch_checkpoint_flush_interval_seconds=0.0)
    assert sample.state() == (ROWS - len(bad), len(bad), 0, 0)
    errors = sample.table.errors("y")
    assert sorted(errors["error_message"].to_pylist()) == sorted(f"row {row} is bad" for row in bad)


def test_a_killed_task_computes_only_the_call_again_that_it_was_at(
    sample: SampleTable, spark_server: PennonProcess
) -> None:
    job = divided(sample)
    assert sum(kill(pid) for pid in python_workers_of(spark_server.pid)) > 0
    assert ended(job).state == "done"
    check(sample, most_repeated=2 * BATCH)


def test_a_paused_job_goes_on_with_the_rows_that_are_left(sample: SampleTable) -> None:
    job = divided(sample)
    job.pause()
    wait_until(lambda: job.refresh().state == "paused", "the job to rest")
    kept = [int(name.split("-")[3]) for name in sample.checkpoints() if name.endswith(".arrow")]
    assert sum(kept) >= 2 * BATCH
    assert job.resume() == "resumed"
    assert ended(job).state == "done"
    check(sample, most_repeated=2 * BATCH)


def test_a_cancelled_job_leaves_its_rows_to_the_next(sample: SampleTable) -> None:
    job = divided(sample)
    job.cancel()
    assert ended(job).state == "cancelled"
    assert sample.state() == (0, 0, 0, ROWS)
    assert ended(sample.table.backfill_async("y", concurrency=2)).state == "done"
    check(sample, most_repeated=2 * BATCH)


def test_rows_that_are_deleted_meanwhile_stay_deleted(sample: SampleTable) -> None:
    job = divided(sample)
    sample.table.delete("id >= 40 and id < 60")
    assert ended(job).state == "done"
    assert len(sample.values()) == ROWS - 20
    check(sample)


@pytest.mark.parametrize("change", ["update", "append", "compact"])
def test_what_others_change_meanwhile_is_computed_again(sample: SampleTable, change: str) -> None:
    job = divided(sample)
    if change == "update":
        sample.update("id = 150", 7)
    elif change == "append":
        sample.add(ROWS, ROWS + 10)
    else:
        sample.add(ROWS, ROWS + 10)
        sample.compact()
    assert ended(job).state == "done"
    check(sample, most_repeated=ROWS if change == "compact" else 1)


def test_a_where_divides_only_its_rows(sample: SampleTable) -> None:
    job = sample.table.backfill_async("y", concurrency=2, where="id % 2 = 0")
    assert ended(job).state == "done"
    assert sample.log.new() == list(range(0, ROWS, 2))
    assert sample.state() == (ROWS // 2, 0, 0, ROWS // 2)
    assert sample.fill(concurrency=2) == list(range(1, ROWS, 2))
    check(sample)
