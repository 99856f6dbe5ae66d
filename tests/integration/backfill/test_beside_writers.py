"""A backfill beside others who write: only what changed is computed again, nothing is lost, nothing comes back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

import lance
import pyarrow as pa
import pytest

from pennon.client import Job, JobFailedError
from tests.integration.backfill.calls import CallLog
from tests.integration.backfill.conftest import NewSample
from tests.integration.backfill.sample_tables import SampleTable, ended, rows, slow, tenfold
from tests.support.rest import RestClient
from tests.support.waiting import wait_until


def begin(new_sample: NewSample, log: CallLog, fragments: int = 4) -> tuple[SampleTable, Job]:
    """Begin to fill ten rows a fragment, slowly, one fragment after the other; return when the first rows are in."""
    sample = new_sample(10 * fragments, fragments)
    sample.table.add_columns({"y": slow(log, 0.15, batch_size=5)})
    job = sample.table.backfill_async("y", concurrency=1, commit_granularity=1)
    wait_until(lambda: sum(log.counts().values()) >= 5, "a first batch")
    return sample, job


def check(sample: SampleTable, *, again: int = 0) -> None:
    """Insist that every row is right or known not to be, and that few were computed more than once."""
    computed, failed, stale, missing = sample.state()
    numbers, values = sample.numbers(), sample.values()
    wrong = [key for key, number in numbers.items() if values[key] != number * 10]
    assert failed == 0
    assert len(wrong) <= stale + missing
    counts = sample.log.counts()
    assert sum(counts.values()) - len(counts) <= again, counts
    sample.log.new()
    todo = sample.fill()
    assert set(wrong) <= set(todo)
    assert len(todo) == stale + missing
    assert sample.values() == {key: number * 10 for key, number in sample.numbers().items()}
    assert sample.state() == (len(numbers), 0, 0, 0)
    assert computed + stale + missing == len(numbers)
    assert sample.checkpoints() == []


def test_rows_appended_during_a_job_are_computed(new_sample: NewSample, log: CallLog) -> None:
    sample, job = begin(new_sample, log)
    sample.add(40, 45)
    job.wait(progress=False)
    assert sample.state() == (45, 0, 0, 0)
    check(sample)


def test_rows_deleted_during_a_job_stay_deleted(new_sample: NewSample, log: CallLog) -> None:
    sample, job = begin(new_sample, log)
    sample.table.delete("id in (2, 11, 33) or id between 20 and 29")
    job.wait(progress=False)
    assert sorted(sample.numbers()) == [n for n in range(40) if n not in (2, 11, 33) and not 20 <= n <= 29]
    check(sample)
    sample.compact()
    check(sample)


def test_rows_updated_during_a_job_are_computed_from_their_new_input(new_sample: NewSample, log: CallLog) -> None:
    sample, job = begin(new_sample, log)
    sample.update("id in (1, 12, 38)", 7)
    job.wait(progress=False)
    check(sample, again=3)
    sample.compact()
    check(sample, again=3)


def test_rows_upserted_during_a_job_are_computed_from_their_new_input(new_sample: NewSample, log: CallLog) -> None:
    sample, job = begin(new_sample, log)
    changed = rows(36, 44)
    sample.upsert(changed.set_column(1, "x", pa.array(range(8), pa.int64())))
    job.wait(progress=False)
    check(sample, again=4)


def test_a_compaction_during_a_job_loses_no_rows(new_sample: NewSample, log: CallLog) -> None:
    sample, job = begin(new_sample, log)
    sample.compact()
    job.wait(progress=False)
    assert sample.state() == (40, 0, 0, 0)
    # What was not committed was computed for fragments that are gone.
    check(sample, again=40)


def test_a_cleanup_on_storage_during_a_job_loses_no_rows(new_sample: NewSample, log: CallLog, rest: RestClient) -> None:
    sample, job = begin(new_sample, log)
    assert rest.post(f"{sample.route}/tags/list")["tags"] == {}  # what keeps the version is nobody's business
    sample.compact()
    stored = lance.dataset(str(sample.folder))
    stored.cleanup_old_versions(timedelta(0), error_if_tagged_old_versions=False)
    job.wait(progress=False)
    assert sample.state() == (40, 0, 0, 0)
    assert lance.dataset(str(sample.folder)).tags.list() == {}
    check(sample, again=40)


def drop_another(sample: SampleTable) -> None:
    sample.table.drop_columns(["other"])


def rename_another(sample: SampleTable) -> None:
    sample.table.alter_columns({"path": "other", "rename": "another"})


def add_another(sample: SampleTable) -> None:
    sample.table.add_columns({"more": "x + 1"})


def add_a_function(sample: SampleTable) -> None:
    sample.table.add_columns({"z": tenfold(sample.log, 3)})


def index_another(sample: SampleTable) -> None:
    sample.open().create_scalar_index("id", "BTREE")


def index_this(sample: SampleTable) -> None:
    sample.open().create_scalar_index("y", "BTREE")


def annotate(sample: SampleTable) -> None:
    sample.open().update_config({"note": "changed"})


@pytest.mark.parametrize(
    "change",
    [drop_another, rename_another, add_another, add_a_function, index_another, index_this, annotate],
    ids=lambda change: change.__name__,
)
def test_other_changes_cost_nothing(new_sample: NewSample, log: CallLog, change: Callable[[SampleTable], None]) -> None:
    sample = new_sample(20, 2)
    sample.table.add_columns({"other": "id + 1"})
    sample.table.add_columns({"y": slow(log, 0.15, batch_size=5)})
    job = sample.table.backfill_async("y", concurrency=1, commit_granularity=1)
    wait_until(lambda: sum(log.counts().values()) >= 5, "a first batch")
    change(sample)
    job.wait(progress=False)
    assert sample.state() == (20, 0, 0, 0)
    check(sample)


def test_two_columns_are_filled_at_the_same_time(new_sample: NewSample, log: CallLog) -> None:
    sample, job = begin(new_sample, log)
    sample.table.add_columns({"z": tenfold(CallLog(sample.folder.parent / f"{sample.name}.calls"), 3)})
    sample.table.backfill("z", progress=False)
    job.wait(progress=False)
    assert (sample.state("y"), sample.state("z")) == ((40, 0, 0, 0), (40, 0, 0, 0))
    sample.compact()
    assert (sample.state("y"), sample.state("z")) == ((40, 0, 0, 0), (40, 0, 0, 0))
    assert sample.values("z") == {number: number * 300 for number in range(40)}
    check(sample)


def test_all_of_it_at_once(new_sample: NewSample, log: CallLog) -> None:
    sample, job = begin(new_sample, log, fragments=6)

    def append() -> None:
        for start in range(60, 75, 5):
            sample.add(start, start + 5)

    def change() -> None:
        for number in (5, 25, 45):
            sample.update(f"id = {number}", number)

    def remove() -> None:
        for number in (6, 26, 46):
            sample.table.delete(f"id = {number}")

    writers = [threading.Thread(target=work) for work in (append, change, remove)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    job.wait(progress=False)
    assert set(sample.numbers()) == set(range(75)) - {6, 26, 46}
    check(sample, again=3)
    sample.compact()
    check(sample, again=3)


def test_dropping_the_column_fails_the_job(new_sample: NewSample, log: CallLog) -> None:
    sample, job = begin(new_sample, log)
    sample.table.drop_columns(["y"])
    with pytest.raises(JobFailedError, match="no column 'y'"):
        job.wait(progress=False)
    assert set(sample.open().schema.names) == {"id", "x"}


def test_renaming_an_input_during_a_job_computes_no_row_twice(
    new_sample: NewSample, log: CallLog, rest: RestClient
) -> None:
    sample, job = begin(new_sample, log, fragments=2)
    body = {"alterations": [{"path": "x", "rename": "number"}], "cascade": True}
    rest.post(f"{sample.route}/alter_columns", body)
    job.wait(progress=False)
    assert sample.state() == (20, 0, 0, 0)
    assert sample.values() == {number: number * 1000 for number in range(20)}
    assert log.new() == list(range(20))


def test_a_column_dropped_and_added_again_during_a_job_is_filled(new_sample: NewSample, log: CallLog) -> None:
    sample, job = begin(new_sample, log)
    sample.table.drop_columns(["y"])
    sample.table.add_columns({"y": tenfold(log, 10)})
    ended(job)
    sample.fill()
    assert sample.values() == {number: number * 1000 for number in range(40)}
    assert sample.state() == (40, 0, 0, 0)


def test_a_function_replaced_during_a_job_computes_all_rows(new_sample: NewSample, log: CallLog) -> None:
    sample, job = begin(new_sample, log)
    sample.table.alter_columns({"path": "y", "function": tenfold(log, 20)})
    job.wait(progress=False)
    assert sample.state() == (40, 0, 0, 0)
    assert sample.values() == {number: number * 2000 for number in range(40)}


def test_dropping_the_table_fails_the_job(new_sample: NewSample, log: CallLog) -> None:
    sample, job = begin(new_sample, log)
    sample.db.drop_table(sample.name)
    assert ended(job).state == "failed"
    assert "dropped" in str(job.failure)


def test_deleting_the_branch_fails_the_job(new_sample: NewSample, log: CallLog, rest: RestClient) -> None:
    sample = new_sample(40, 4)
    sample.table.add_columns({"y": slow(log, 0.2, batch_size=5)})
    rest.post(f"{sample.route}/branches/create", {"name": "dev"})
    job = sample.table.backfill_async("y", branch="dev", concurrency=1)
    wait_until(log.counts, "a first batch")
    rest.post(f"{sample.route}/branches/delete", {"name": "dev"})
    failure = ended(job).failure or {}
    assert (failure.get("type"), failure.get("message")) == (
        "TableBranchNotFoundError",
        "The table has no branch 'dev'.",
    )
    assert sample.state() == (0, 0, 0, 40)


def test_a_version_restored_during_a_job_is_filled(new_sample: NewSample, log: CallLog) -> None:
    sample, job = begin(new_sample, log)
    version = sample.open().version
    sample.add(40, 45)
    sample.table.restore(version)
    sample.table.checkout_latest()
    job.wait(progress=False)
    assert sorted(sample.numbers()) == list(range(40))
    check(sample, again=15)
