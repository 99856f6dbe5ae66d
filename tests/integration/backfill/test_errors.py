"""Rows that a function fails on, hangs on or dies on cost themselves, or the job: never the worker."""

from __future__ import annotations

import base64
import ctypes
import json
import os
import pickle
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lance_namespace.errors import TableColumnNotFoundError

import pennon
from pennon.client import JobFailedError
from pennon.functions import ErrorPolicy
from tests.integration.backfill.calls import CallLog, note
from tests.integration.backfill.conftest import NewSample
from tests.integration.backfill.sample_tables import SampleTable, ended, failing_on, tenfold
from tests.support.rest import RestClient
from tests.support.waiting import wait_until

SKIP = ErrorPolicy.skip()


def test_a_poisoned_table_loses_only_its_bad_rows(new_sample: NewSample, log: CallLog) -> None:
    bad = (0, 127, 128, 500, 501, 777, 999)
    path = log.path

    def multiply(id: pa.Array, x: pa.Array) -> pa.Array:  # noqa: A002
        note(path, *id.to_pylist())
        poisoned = sorted(set(id.to_pylist()).intersection(bad))
        if poisoned:
            raise ValueError(f"poison in {poisoned}")
        return pa.array([number * 10 for number in x.to_pylist()], pa.int64())

    declare = pennon.udf(data_type=pa.int64(), kind="batch", batch_size=128, error_policy=SKIP)
    sample = new_sample(1000, 4)
    sample.table.add_columns({"y": declare(multiply)})
    job = sample.table.backfill("y", progress=False)
    assert sample.values() == {number: None if number in bad else number * 1000 for number in range(1000)}
    assert sample.state() == (993, 7, 0, 0)
    assert (job.counters["rows_failed"], job.counters["rows_committed"]) == (7, 993)
    commit_events = [json.loads(event["data"]) for event in job.events().to_pylist() if event["kind"] == "committed"]
    assert (sum(event["failed"] for event in commit_events), sum(event["rows"] for event in commit_events)) == (7, 1000)
    errors = sample.table.errors("y").to_pylist()
    found = sample.open().to_table(columns=["id"], with_row_id=True)
    ids = dict(zip(found["_rowid"].to_pylist(), found["id"].to_pylist(), strict=True))
    assert {ids[error["row_id"]]: error["error_message"] for error in errors} == {
        number: f"poison in [{number}]" for number in bad
    }
    assert {error["error_type"] for error in errors} == {"ValueError"}
    assert {(error["job_id"], error["function"], error["column"]) for error in errors} == {(job.id, "multiply", "y")}
    assert sample.table.errors("`y`").num_rows == 7
    with pytest.raises(TableColumnNotFoundError, match="no column 'z'"):
        sample.table.errors("z")
    log.new()
    assert sample.fill() == []  # failed rows are not tried again unasked


def test_failed_rows_alone_are_tried_again(new_sample: NewSample, log: CallLog, tmp_path: Path) -> None:
    cure, path = str(tmp_path / "cure"), log.path

    def multiply(id: int, x: int) -> int:  # noqa: A002
        note(path, id)
        if id in (3, 14) and not os.path.exists(cure):  # noqa: PTH110 (runs elsewhere)
            raise ConnectionError("not yet")
        return x * 10

    sample = new_sample(20, 2)
    sample.table.add_columns({"y": pennon.udf(error_policy=SKIP)(multiply)})
    job = sample.table.backfill("y", progress=False)
    assert sample.state() == (18, 2, 0, 0)
    log.new()
    assert job.retry(only_failed=True).wait(progress=False).counters["rows_failed"] == 2
    assert log.new() == [3, 14]
    assert sample.table.errors("y").num_rows == 2
    Path(cure).touch()
    again = job.retry(only_failed=True).wait(progress=False)
    assert again.counters["rows_committed"] == 2
    assert log.new() == [3, 14]
    assert sample.state() == (20, 0, 0, 0)
    assert sample.table.errors("y").num_rows == 0
    assert sample.values() == {number: number * 1000 for number in range(20)}


def test_failed_rows_are_computed_by_a_mended_function(new_sample: NewSample, log: CallLog) -> None:
    sample = new_sample(20, 2)
    sample.table.add_columns({"y": failing_on(log, [3, 14], SKIP)})
    sample.fill()
    sample.table.alter_columns({"path": "y", "function": tenfold(log)})
    assert sample.state() == (0, 0, 20, 0)
    sample.fill()
    assert sample.state() == (20, 0, 0, 0)
    assert sample.table.errors("y").num_rows == 0


def test_the_error_of_a_row_goes_when_its_input_is_mended(new_sample: NewSample, log: CallLog) -> None:
    path = log.path

    def divide(id: int, x: int) -> int:  # noqa: A002
        note(path, id)
        return 1000 // x

    sample = new_sample(10, 2)
    sample.table.add_columns({"y": pennon.udf(error_policy=SKIP)(divide)})
    sample.fill()
    assert sample.state() == (9, 1, 0, 0)
    assert sample.table.errors("y")["error_type"].to_pylist() == ["ZeroDivisionError"]
    sample.compact()
    failed = sample.open()
    assert sample.state() == (9, 1, 0, 0)
    (error,) = sample.table.errors("y").to_pylist()
    moved = failed.scanner(columns=[], filter="id = 0", with_row_address=True).to_table()["_rowaddr"]
    assert moved.to_pylist() == [(error["fragment_id"] << 32) + error["row_offset"]]
    sample.update("id = 0", 5)
    stale = sample.open()
    assert sample.state() == (9, 0, 1, 0)
    assert sample.table.errors("y").num_rows == 0
    assert sample.fill() == [0]
    assert sample.state() == (10, 0, 0, 0)
    assert sample.table.errors("y").num_rows == 0
    # What was known of a version comes back with it, errors included.
    sample.table.restore(failed.version)
    assert sample.state() == (9, 1, 0, 0)
    assert sample.table.errors("y").to_pylist() == [error]
    sample.table.restore(stale.version)
    assert sample.state() == (9, 0, 1, 0)
    assert sample.table.errors("y").num_rows == 0
    assert sample.fill() == [0]
    assert sample.state() == (10, 0, 0, 0)


def test_the_errors_of_rows_that_are_gone_are_not_listed(new_sample: NewSample, log: CallLog) -> None:
    sample = new_sample(20, 2)
    sample.table.add_columns({"y": failing_on(log, [3, 4, 14], SKIP)})
    sample.fill()
    assert sample.table.errors("y").num_rows == 3
    sample.table.delete("id in (3, 14)")
    (error,) = sample.table.errors("y").to_pylist()
    assert error["error_message"] == "row 4 is bad"
    sample.table.delete("id >= 0")
    assert sample.table.errors("y").num_rows == 0


def test_too_many_errors_end_the_job_and_keep_what_is_committed(new_sample: NewSample, log: CallLog) -> None:
    policy = ErrorPolicy.skip(max_errors=5)
    sample = new_sample(40, 4)
    sample.table.add_columns({"y": failing_on(log, range(20, 30), policy)})
    sample.fill(where="id < 10")
    with pytest.raises(JobFailedError, match="of 30 rows failed") as caught:
        sample.fill()
    assert (caught.value.kind, caught.value.phase) == ("ErrorBudgetExceeded", "compute")
    done, failed, stale, missing = sample.state()
    assert (done >= 10, stale, done + failed + missing) == (True, 0, 40)
    values = {key: value for key, value in sample.values().items() if value is not None}
    assert len(values) == done
    assert all(value == key * 1000 for key, value in values.items())
    sample.table.alter_columns({"path": "y", "function": tenfold(log)})
    sample.fill()
    assert sample.state() == (40, 0, 0, 0)


def test_a_job_that_exceeded_its_budget_can_be_tried_again(new_sample: NewSample, log: CallLog, tmp_path: Path) -> None:
    cure, path = str(tmp_path / "cure"), log.path

    def multiply(id: int, x: int) -> int:  # noqa: A002
        note(path, id)
        time.sleep(0.01)  # worth a checkpoint
        if not os.path.exists(cure):  # noqa: PTH110 (runs elsewhere)
            raise ConnectionError("nobody there")
        return x * 10

    sample = new_sample(40, 2)
    sample.table.add_columns({"y": pennon.udf(error_policy=ErrorPolicy.skip(max_errors=0))(multiply)})
    with pytest.raises(JobFailedError, match="rows failed") as caught:
        sample.fill()
    Path(cure).touch()
    job: Any = caught.value.job
    job.retry().wait(progress=False)
    sample.fill(mode="only_failed")
    assert sample.state() == (40, 0, 0, 0)
    assert sample.values() == {number: number * 1000 for number in range(40)}


def test_a_share_of_errors_is_a_budget_too(new_sample: NewSample, log: CallLog) -> None:
    policy = ErrorPolicy.skip(max_error_ratio=0.1)
    sample = new_sample(40)
    sample.table.add_columns({"few": failing_on(log, range(4), policy), "many": failing_on(log, range(5), policy)})
    sample.fill("few")
    assert sample.state("few") == (36, 4, 0, 0)
    with pytest.raises(JobFailedError, match="5 of 40 rows failed"):
        sample.fill("many")


def test_a_function_that_may_not_fail_names_the_row(new_sample: NewSample, log: CallLog) -> None:
    sample = new_sample(40, 2)
    sample.table.add_columns({"y": failing_on(log, [33], ErrorPolicy.fail())})
    with pytest.raises(
        JobFailedError, match=r"row 13 of fragment 1 \(row id 33\): ValueError: row 33 is bad"
    ) as caught:
        sample.fill()
    assert caught.value.phase == "compute"
    assert caught.value.kind == "ValueError"
    assert sample.values()[33] is None
    assert set(log.counts()) <= set(range(40))


def test_a_function_is_called_again_as_its_policy_says(new_sample: NewSample, log: CallLog, tmp_path: Path) -> None:
    mark, path = str(tmp_path / "mark"), log.path

    def multiply(id: int, x: int) -> int:  # noqa: A002
        note(path, id)
        if id == 5 and not os.path.exists(mark):  # noqa: PTH110 (runs elsewhere)
            Path(mark).touch()
            raise ConnectionError("once")
        return x * 10

    sample = new_sample(10)
    policy = ErrorPolicy.retry(ConnectionError, attempts=2, backoff=0.0)
    sample.table.add_columns({"y": pennon.udf(error_policy=policy)(multiply)})
    assert sample.fill() == sorted([*range(10), 5])
    assert sample.state() == (10, 0, 0, 0)


def hanging(log: CallLog, bad: int, *, in_c: bool) -> Any:
    path = log.path

    def multiply(id: int, x: int) -> int:  # noqa: A002
        note(path, id)
        if id == bad and in_c:
            # PyDLL does not let go of the interpreter, and no signal wakes who waits for a lock of its own.
            mutex, library = ctypes.create_string_buffer(64), ctypes.PyDLL(None)
            library.pthread_mutex_lock(mutex)
            library.pthread_mutex_lock(mutex)
        elif id == bad:
            time.sleep(600)
        return x * 10

    return pennon.udf(timeout=2.0, error_policy=SKIP)(multiply)


# Each try that hangs takes seconds, most of all in C; the preflight tries the first three rows.
@pytest.mark.parametrize(("bad", "in_c"), [(2, False), (3, True)], ids=["python", "c"])
def test_a_function_that_hangs_ends_by_its_timeout(new_sample: NewSample, log: CallLog, bad: int, in_c: bool) -> None:
    sample = new_sample(4)
    sample.table.add_columns({"y": hanging(log, bad, in_c=in_c)})
    sample.fill()
    assert sample.state() == (3, 1, 0, 0)
    (error,) = sample.table.errors("y").to_pylist()
    assert error["error_type"] == "Timeout"
    assert sample.values() == {number: None if number == bad else number * 1000 for number in range(4)}
    assert _works(new_sample, log)


def _works(new_sample: NewSample, log: CallLog) -> bool:
    sample = new_sample(3)
    sample.table.add_columns({"y": tenfold(log)})
    sample.fill()
    return sample.state() == (3, 0, 0, 0)


def dying(log: CallLog, policy: ErrorPolicy) -> Any:
    path = log.path

    def multiply(id: int, x: int) -> int:  # noqa: A002
        note(path, id)
        if id == 7:
            os._exit(3)
        return x * 10

    return pennon.udf(error_policy=policy)(multiply)


def test_a_row_that_kills_the_process_fails_alone(new_sample: NewSample, log: CallLog) -> None:
    sample = new_sample(20, 2)
    sample.table.add_columns({"y": dying(log, SKIP)})
    sample.fill()
    assert sample.state() == (19, 1, 0, 0)
    (error,) = sample.table.errors("y").to_pylist()
    assert error["error_type"] == "ProcessDied"
    assert "exit code 3" in error["error_message"]
    assert sample.values() == {number: None if number == 7 else number * 1000 for number in range(20)}
    assert _works(new_sample, log)


def test_a_row_that_kills_the_process_may_fail_the_job(new_sample: NewSample, log: CallLog) -> None:
    sample = new_sample(20, 2)
    sample.table.add_columns({"y": dying(log, ErrorPolicy.fail())})
    with pytest.raises(JobFailedError, match="exit code 3"):
        sample.fill()
    assert _works(new_sample, log)


def test_a_function_is_tried_on_three_rows_before_anything_is_written(new_sample: NewSample, log: CallLog) -> None:
    third, fourth = (failing_on(log, [number], ErrorPolicy.fail()) for number in (2, 3))
    sample = new_sample(10)
    sample.table.add_columns({"y": third, "z": fourth})
    version = sample.open().version
    for column, phase, computed in (("y", "preflight", []), ("z", "compute", [0, 1, 2, 3])):
        with pytest.raises(JobFailedError) as caught:
            sample.fill(column)
        assert (caught.value.phase, log.new()) == (phase, computed)
    assert log.trials() == {0: 2, 1: 2, 2: 2}
    assert sample.open().version == version


def test_a_missing_package_fails_in_the_preflight(new_sample: NewSample, log: CallLog) -> None:
    def multiply(x: int) -> int:
        import a_package_that_nobody_has  # type: ignore[import-not-found]

        return int(a_package_that_nobody_has.times_ten(x))

    sample = new_sample(10)
    sample.table.add_columns({"y": pennon.udf(error_policy=SKIP)(multiply)})
    with pytest.raises(JobFailedError, match=r"'a_package_that_nobody_has'.*this executor does not have") as caught:
        sample.fill()
    assert caught.value.phase == "preflight"
    assert sample.state() == (0, 0, 0, 10)
    assert log.counts() == {}


def test_another_python_fails_in_the_preflight_with_both_named(new_sample: NewSample, rest: RestClient) -> None:
    import platform

    @pennon.udf
    def multiply(x: int) -> int:
        return x * 10

    sample = new_sample(10)
    content = json.loads(multiply.pack()) | {"python": "3.6.1"}
    _add_raw(rest, sample, json.dumps(content).encode())
    with pytest.raises(JobFailedError, match=r"3\.6\.1") as caught:
        sample.fill()
    assert caught.value.phase == "preflight"
    assert platform.python_version() in str(caught.value)


class Writes:
    """Something whose loading writes down, in a file, which program loads it."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        program = "open('/proc/self/cmdline').read().replace('\\0', ' ') + '\\n'"
        return eval, (f"open({self.path!r}, 'a').write({program}) and (lambda x: x * 10)",)


def _add_raw(rest: RestClient, sample: SampleTable, udf: bytes, **more: Any) -> None:
    virtual = {
        "input_columns": ["x"],
        "outputs": [{"column": "y", "struct_field": "", "data_type": {"type": "int64"}, "nullable": True}],
        "image": "",
        "udf": base64.b64encode(udf).decode(),
        "udf_name": "raw",
        "udf_version": "1",
        **more,
    }
    rest.post(f"{sample.route}/add_columns", {"new_columns": [{"name": "y", "virtual_column": virtual}]})


def test_functions_are_loaded_on_executors_only(new_sample: NewSample, rest: RestClient, tmp_path: Path) -> None:
    written = tmp_path / "written"
    sample = new_sample(10)
    loaded = pickle.dumps(Writes(str(written)))
    _add_raw(rest, sample, loaded)
    virtual = {"input_columns": ["x"], "udf": base64.b64encode(loaded).decode(), "udf_name": "raw", "udf_version": "2"}
    rest.post(f"{sample.route}/alter_columns", {"alterations": [{"path": "y", "virtual_column": virtual}]})
    rest.post(f"{sample.route}/describe", {"load_detailed_metadata": True})
    rest.get("/v1/namespace/$/table/list")
    rest.post(f"{sample.route}/column_function", {"column": "y"})
    rest.post(f"{sample.route}/column_state", {"column": "y"})
    rest.post(f"{sample.route}/errors", {"column": "y"})
    assert sample.table.backfill("y", dry_run=True).rows == 10
    assert not written.exists()
    sample.fill()
    assert sample.values() == {number: number * 1000 for number in range(10)}
    loaders = written.read_text().splitlines()
    assert loaders
    assert all("pyspark.daemon" in program for program in loaders)


def test_a_cancelled_job_commits_nothing_more(new_sample: NewSample, log: CallLog) -> None:
    from tests.integration.backfill.sample_tables import slow

    sample = new_sample(40, 4)
    sample.table.add_columns({"y": slow(log, 0.3, batch_size=5)})
    job = sample.table.backfill_async("y", commit_granularity=1, concurrency=1)
    wait_until(lambda: sum(log.counts().values()) >= 5, "a first batch")
    assert job.cancel() in {"cancelling", "committing"}
    version = sample.open().version
    assert ended(job).state == "cancelled"
    done = sample.state()[0]
    time.sleep(1.0)
    assert sample.open().version == version
    assert sample.state() == (done, 0, 0, 40 - done)
    assert sample.values() == {number: number * 1000 if number < done else None for number in range(40)}
    used = {file.path for fragment in sample.open().get_fragments() for file in fragment.metadata.files}
    assert used <= {path.name for path in (sample.folder / "data").iterdir()}
    sample.fill()
    assert sample.state() == (40, 0, 0, 0)
    assert sample.checkpoints() == []
