"""Every field of a request has its effect, or is refused with the reason before there is a job."""

from __future__ import annotations

import base64
import itertools
import os
import time
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidTableStateError

import pennon
from pennon.client import Job, JobTimedOutError
from tests.integration.backfill.calls import CallLog, note
from tests.integration.backfill.conftest import NewSample
from tests.integration.backfill.sample_tables import SampleTable, ended, slow, tenfold
from tests.support.rest import RestClient
from tests.support.waiting import wait_until


@pytest.mark.parametrize(
    ("wrong", "status", "code"),
    [
        ({"column": "nothing"}, 404, 12),
        ({"column": "y.part"}, 404, 12),
        ({"column": "x"}, 400, 13),
        ({"column": ""}, 400, 13),
        ({"read_version": 99}, 404, 11),
        ({"branch": "nowhere"}, 404, 22),
        ({"mode": "some"}, 400, 13),
        ({"where": "id <"}, 400, 13),
        ({"where": ""}, 400, 13),
        ({"where": "nothing = 1"}, 404, 12),
        ({"concurrency": 0}, 400, 13),
        ({"intra_applier_concurrency": -1}, 400, 13),
        ({"task_size": 0}, 400, 13),
        ({"num_frags": 0}, 400, 13),
        ({"checkpoint_size": 0}, 400, 13),
        ({"min_checkpoint_size": 10, "max_checkpoint_size": 5}, 400, 13),
        ({"checkpoint_size": 3, "min_checkpoint_size": 10}, 400, 13),
        ({"batch_checkpoint_flush_interval_seconds": -1.0}, 400, 13),
        ({"commit_granularity": 0}, 400, 13),
        ({"concurrency": 4097}, 400, 13),
        ({"intra_applier_concurrency": 10**6}, 400, 13),
        ({"task_size": 2**31}, 400, 13),
        ({"num_frags": 2**63}, 400, 13),
        ({"checkpoint_size": 10**30}, 400, 13),
        ({"commit_granularity": 2**31}, 400, 13),
        ({"batch_checkpoint_flush_interval_seconds": 1e300}, 400, 13),
        ({"cluster": "moon"}, 400, 13),
        ({"manifest": "not json"}, 400, 13),
        ({"manifest": '["list"]'}, 400, 13),
        ({"manifest": '{"pip": "numpy"}'}, 400, 13),
        ({"manifest": '{"pip": ["https://127.0.0.1/tea-1.tar.gz#tea-1-py3-none-any.whl"]}'}, 400, 13),
        ({"manifest": '{"pip": ["--index-url=http://127.0.0.1"]}'}, 400, 13),
        ({"manifest": '{"env_vars": {"PENNON_DATABASE": "x"}}'}, 400, 13),
        ({"manifest": "[" * 100_000}, 400, 13),
        ({"manifest": '{"env_vars": ["A=1"]}'}, 400, 13),
        ({"priority": 5000}, 400, 13),
        ({"timeout_seconds": 0}, 400, 13),
        ({"timeout_seconds": 1e30}, 400, 13),
        ({"cascade": "yes"}, 400, 13),
        ({"concurrency": "many"}, 400, 13),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_wrong_request_makes_no_job(
    shared: SampleTable, rest: RestClient, wrong: dict[str, Any], status: int, code: int
) -> None:
    answer = rest.post(f"{shared.route}/backfill_column", {"column": "y", **wrong}, expect=status)
    assert answer["code"] == code, answer
    assert shared.db.jobs(table=shared.name) == []


@pytest.fixture(scope="module")
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SampleTable:
    """A table with a column that nobody fills."""
    from tests.clients.lakes import Lake
    from tests.integration.backfill.sample_tables import new_name, rows

    log = CallLog(tmp_path_factory.mktemp("shared") / "calls")
    server = request.getfixturevalue("spark_server")
    db, lake, name = pennon.connect(server.url), Lake(server), new_name()
    db.create_table(name, rows(0, 10))
    sample = SampleTable(db, lake, lake.connect(), log, name)
    sample.table.add_columns({"y": tenfold(log)})
    return sample


def test_a_column_whose_values_lance_cannot_store_is_refused(shared: SampleTable, rest: RestClient) -> None:
    function = tenfold(shared.log)
    virtual = {"input_columns": ["id", "x"], "image": "", "udf": base64.b64encode(function.pack()).decode()}
    virtual |= {"udf_name": "f", "udf_version": "1"}
    hollow = {"type": "list", "fields": [{"name": "item", "type": {"type": "struct", "fields": []}, "nullable": True}]}
    outputs = [{"column": "w", "struct_field": "", "data_type": hollow, "nullable": True}]
    body = {"new_columns": [{"name": "w", "virtual_column": virtual | {"outputs": outputs}}]}
    answer = rest.post(f"{shared.route}/add_columns", body, expect=400)
    assert (answer["code"], "struct without fields" in answer["error"]) == (20, True)
    assert "w" not in shared.open().schema.names


def test_a_request_that_is_sent_again_makes_one_job(new_sample: NewSample, log: CallLog, rest: RestClient) -> None:
    sample = new_sample(5)
    sample.table.add_columns({"y": tenfold(log)})
    key = {"idempotency-key": f"fill-{sample.name}"}
    bodies: list[dict[str, Any]] = [{"column": "y"}, {"column": "y"}, {"column": "y", "mode": "all"}]
    answers = [rest.raw.post(f"{sample.route}/backfill_column", json=body, headers=key) for body in bodies]
    assert [answer.status_code for answer in answers] == [202, 202, 422]
    (job,) = sample.db.jobs(table=sample.name)
    assert [answer.json() for answer in answers[:2]] == [{"job_id": job.id}] * 2
    assert (ended(job).state, log.new()) == ("done", list(range(5)))


def test_an_environment_of_the_request_takes_the_place_of_the_functions_own(new_sample: NewSample) -> None:
    def flavour(x: int) -> str:
        return f"{x} {os.environ.get('FLAVOUR')}"

    sample = new_sample(2)
    sample.table.add_columns({"y": pennon.udf(manifest={"env_vars": {"FLAVOUR": "mint"}})(flavour)})
    sample.fill()
    assert sample.values() == {0: "0 mint", 1: "100 mint"}
    sample.fill(mode="all", manifest={"env_vars": {"FLAVOUR": "plum"}})
    assert sample.values() == {0: "0 plum", 1: "100 plum"}


def test_a_dry_run_returns_the_plan_and_changes_nothing(new_sample: NewSample, log: CallLog, rest: RestClient) -> None:
    sample = new_sample(40, 4)
    sample.table.add_columns({"y": tenfold(log), "z": slow(log, 0.0, batch_size=4)})
    answer = rest.post(f"{sample.route}/backfill_column", {"column": "y", "dry_run": True, "where": "id < 15"})
    assert (answer["rows"], answer["fragments"], answer["udf_calls"]) == (15, 2, 15)
    assert answer["bytes"] > 0
    plan = sample.table.backfill("z", dry_run=True, num_frags=3)
    assert (plan.rows, plan.fragments, plan.udf_calls) == (30, 3, 9)
    assert sample.db.jobs(table=sample.name) == []
    assert log.counts() == {}
    assert sample.checkpoints() == []


def test_a_plan_is_what_the_job_does(new_sample: NewSample, log: CallLog) -> None:
    path = log.path

    @pennon.udf(data_type=pa.int64(), batch_size=4)
    def multiply(id: pa.Array, x: pa.Array) -> pa.Array:  # noqa: A002
        note(path, id[0].as_py())  # once a call
        return pa.array([number * 10 for number in x.to_pylist()], pa.int64())

    sample = new_sample(40, 4)
    sample.table.add_columns({"y": multiply})
    sample.fill(where="id in (2, 3, 25)")
    plan = sample.table.backfill("y", dry_run=True, num_frags=3)
    log.new()
    job = sample.table.backfill("y", progress=False, num_frags=3)
    done = (job.counters["rows_committed"], job.counters["fragments_committed"], len(log.new()))
    assert done == (plan.rows, plan.fragments, plan.udf_calls) == (27, 3, 8)


def chain(sample: SampleTable, log: CallLog) -> None:
    """Give a table two columns, one computed from the other."""
    path = log.path

    @pennon.udf
    def more(id: int, y: int) -> int:  # noqa: A002
        note(path, id + 1000)
        return y + 1

    sample.table.add_columns({"y": tenfold(log), "z": more})


def test_a_column_is_not_filled_from_one_that_is_not(new_sample: NewSample, log: CallLog) -> None:
    sample = new_sample(10)
    chain(sample, log)
    with pytest.raises(InvalidTableStateError, match="'z' is computed from 'y', which has 10 missing"):
        sample.fill("z")
    with pytest.raises(InvalidTableStateError, match="'y'"):
        sample.table.backfill("z", dry_run=True)
    assert sample.db.jobs(table=sample.name) == []


def test_a_cascade_fills_first_what_comes_first(new_sample: NewSample, log: CallLog) -> None:
    sample = new_sample(20, 2)
    chain(sample, log)
    assert sample.table.backfill("z", cascade=True, dry_run=True).before == ("y",)
    assert sample.fill("z", cascade=True) == [*range(20), *range(1000, 1020)]
    assert sample.values("z") == {number: number * 1000 + 1 for number in range(20)}
    assert sample.checkpoints() == []
    sample.update("id = 3", 7)
    assert sample.fill("z", cascade=True) == [3, 1003]
    assert sample.values("z")[3] == 71


def test_one_job_of_a_column_runs_at_a_time(new_sample: NewSample, log: CallLog) -> None:
    sample = new_sample(20, 2)
    sample.table.add_columns({"y": slow(log, 0.2, batch_size=5)})
    first = sample.table.backfill_async("y", concurrency=1)
    wait_until(log.counts, "a first batch")
    second = sample.table.backfill_async("y")
    assert sample.table.column_state("y").active_job == first.id
    assert second.refresh().state == "pending"
    assert second.waiting_for != ""
    first.wait(progress=False)
    assert second.wait(progress=False).counters["rows_computed"] == 0
    assert log.new() == list(range(20))


def test_a_cascade_waits_for_a_column_that_is_being_filled(new_sample: NewSample, log: CallLog) -> None:
    sample = new_sample(20, 4)
    chain(sample, log)
    sample.table.alter_columns({"path": "y", "function": slow(log, 0.1, batch_size=5)})
    first = sample.table.backfill_async("y", concurrency=1, commit_granularity=1)
    wait_until(log.counts, "a first batch")
    second = sample.table.backfill_async("z", cascade=True)
    assert second.refresh().waiting_for == "another job of this column"
    assert (ended(first).state, ended(second).state) == ("done", "done")
    assert log.new() == [*range(20), *range(1000, 1020)]
    assert sample.values("z") == {number: number * 1000 + 1 for number in range(20)}


def test_a_column_is_the_same_however_it_is_quoted(new_sample: NewSample, log: CallLog) -> None:
    sample = new_sample(20, 2)
    sample.table.add_columns({"y": slow(log, 0.1, batch_size=5)})
    jobs = [sample.table.backfill_async(path, concurrency=1) for path in ("y", "`y`")]
    assert [ended(job).state for job in jobs] == ["done", "done"]
    assert log.new() == list(range(20))


def claimed(job: Job) -> datetime:
    """Return when a worker took a job."""
    return _moment(job, "claimed")


def _moment(job: Job, kind: str) -> datetime:
    (found,) = (event["at"] for event in job.events().to_pylist() if event["kind"] == kind)
    moment: datetime = found
    return moment


def test_the_more_important_job_goes_first(new_sample: NewSample, log: CallLog) -> None:
    sample = new_sample(10)
    sample.table.add_columns({"y": slow(log, 0.3, batch_size=5)})
    running = sample.table.backfill_async("y", mode="all")
    wait_until(log.counts, "a first batch")
    low = sample.table.backfill_async("y", mode="all", priority=-5)
    high = sample.table.backfill_async("y", mode="all", priority=5)
    for job in (running, low, high):
        ended(job)
    assert claimed(running) < claimed(high) < claimed(low)


def test_commits_come_in_groups_of_the_asked_size(new_sample: NewSample, log: CallLog) -> None:
    sample = new_sample(50, 5)
    sample.table.add_columns({"y": tenfold(log), "z": tenfold(log, 3)})
    before = sample.open().version
    sample.fill("y", commit_granularity=2)
    assert sample.open().version == before + 3
    sample.fill("z", commit_granularity=1)
    assert sample.open().version == before + 8


def test_calls_overlap_within_a_task(new_sample: NewSample, log: CallLog) -> None:
    def meet(id: pa.Array) -> pa.Array:  # noqa: A002
        note(log.path, id[0].as_py())
        until = time.monotonic() + 60
        while 0 < sum(log.counts().values()) < 4:  # none is counted while the function is only tried
            assert time.monotonic() < until, "the calls come one after the other"
            time.sleep(0.01)
        return id

    sample = new_sample(64)
    sample.table.add_columns({"y": pennon.udf(data_type=pa.int64(), kind="batch", batch_size=16)(meet)})
    sample.table.backfill("y", concurrency=1, intra_applier_concurrency=4, progress=False)
    assert sample.values() == {number: number for number in range(64)}


def test_a_function_fails_the_same_among_several_calls(new_sample: NewSample, log: CallLog) -> None:
    from pennon.functions import ErrorPolicy
    from tests.integration.backfill.sample_tables import failing_on

    sample = new_sample(40)
    sample.table.add_columns({"y": failing_on(log, [7, 31], ErrorPolicy.skip())})
    sample.fill(concurrency=1, intra_applier_concurrency=4)
    assert sample.state() == (38, 2, 0, 0)
    assert sorted(sample.table.errors("y")["error_message"].to_pylist()) == ["row 31 is bad", "row 7 is bad"]


def test_small_tasks_and_checkpoints_come_to_the_same(new_sample: NewSample, log: CallLog) -> None:
    sample = new_sample(60, 6)
    sample.table.add_columns({"y": tenfold(log), "z": tenfold(log, 10)})
    assert sample.fill("y", task_size=10, concurrency=3, checkpoint_size=3) == list(range(60))
    options = {"min_checkpoint_size": 2, "max_checkpoint_size": 4, "batch_checkpoint_flush_interval_seconds": 0.0}
    assert sample.fill("z", **options) == list(range(60))
    assert sample.values("y") == sample.values("z") == {number: number * 1000 for number in range(60)}
    assert sample.checkpoints() == []


def test_the_default_cluster_has_a_name(new_sample: NewSample, log: CallLog) -> None:
    sample = new_sample(5)
    sample.table.add_columns({"y": tenfold(log)})
    assert sample.fill(cluster="default") == list(range(5))


def test_a_job_that_takes_too_long_times_out(new_sample: NewSample, log: CallLog) -> None:
    sample = new_sample(40)
    sample.table.add_columns({"y": slow(log, 1.0, batch_size=5)})
    with pytest.raises(JobTimedOutError, match="timeout_seconds") as caught:
        sample.fill(timeout=1.0)
    assert caught.value.job.state == "timed_out"
    assert sample.state() == (0, 0, 0, 40)


def test_a_paused_job_resumes_where_it_stopped(new_sample: NewSample, log: CallLog) -> None:
    sample = new_sample(40, 2)
    sample.table.add_columns({"y": slow(log, 0.2, batch_size=5)})
    job = sample.table.backfill_async("y", concurrency=1)
    wait_until(lambda: sum(log.counts().values()) >= 10, "two batches")
    job.pause()
    wait_until(lambda: job.refresh().state == "paused", "the job to rest")
    assert sample.table.column_state("y").active_job == job.id
    assert job.resume() == "resumed"
    job.wait(progress=False)
    assert sample.values() == {number: number * 1000 for number in range(40)}
    counts = log.counts()
    assert sum(counts.values()) - len(counts) <= 5
    assert sample.checkpoints() == []


def test_rows_added_later_are_filled_unasked(new_sample: NewSample, log: CallLog) -> None:
    sample = new_sample(10)
    sample.table.add_columns({"y": tenfold(log, auto_backfill=True)})
    wait_until(lambda: sample.state() == (10, 0, 0, 0), "the first rows filled")
    for start in range(10, 40, 10):
        sample.add(start, start + 10)
    sample.update("id = 3", 5)
    wait_until(lambda: sample.state() == (40, 0, 0, 0), "the later rows filled")
    assert sample.values() == {key: number * 10 for key, number in sample.numbers().items()}
    jobs = sample.db.jobs(table=sample.name)
    spans = sorted((claimed(ended(job)), _moment(job, "done")) for job in jobs)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
    assert sum(log.counts().values()) <= 42
