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
from tests.integration.backfill.conftest import NewSheet
from tests.integration.backfill.sheets import Sheet, ended, failing_on, tenfold
from tests.support.rest import RestClient
from tests.support.waiting import wait_until

SKIP = ErrorPolicy.skip()


def test_a_poisoned_table_loses_only_its_bad_rows(new_sheet: NewSheet, log: CallLog) -> None:
    bad = (0, 127, 128, 500, 501, 777, 999)
    path = log.path

    def multiply(id: pa.Array, x: pa.Array) -> pa.Array:  # noqa: A002
        note(path, *id.to_pylist())
        poisoned = sorted(set(id.to_pylist()).intersection(bad))
        if poisoned:
            raise ValueError(f"poison in {poisoned}")
        return pa.array([number * 10 for number in x.to_pylist()], pa.int64())

    declare = pennon.udf(data_type=pa.int64(), kind="batch", batch_size=128, error_policy=SKIP)
    sheet = new_sheet(1000, 4)
    sheet.table.add_columns({"y": declare(multiply)})
    job = sheet.table.backfill("y", progress=False)
    assert sheet.values() == {number: None if number in bad else number * 1000 for number in range(1000)}
    assert sheet.state() == (993, 7, 0, 0)
    assert (job.counters["rows_failed"], job.counters["rows_committed"]) == (7, 993)
    told = [json.loads(event["data"]) for event in job.events().to_pylist() if event["kind"] == "committed"]
    assert (sum(event["failed"] for event in told), sum(event["rows"] for event in told)) == (7, 1000)
    errors = sheet.table.errors("y").to_pylist()
    found = sheet.open().to_table(columns=["id"], with_row_id=True)
    ids = dict(zip(found["_rowid"].to_pylist(), found["id"].to_pylist(), strict=True))
    assert {ids[error["row_id"]]: error["error_message"] for error in errors} == {
        number: f"poison in [{number}]" for number in bad
    }
    assert {error["error_type"] for error in errors} == {"ValueError"}
    assert {(error["job_id"], error["function"], error["column"]) for error in errors} == {(job.id, "multiply", "y")}
    assert sheet.table.errors("`y`").num_rows == 7
    with pytest.raises(TableColumnNotFoundError, match="no column 'z'"):
        sheet.table.errors("z")
    log.new()
    assert sheet.fill() == []  # failed rows are not tried again unasked


def test_failed_rows_alone_are_tried_again(new_sheet: NewSheet, log: CallLog, tmp_path: Path) -> None:
    cure, path = str(tmp_path / "cure"), log.path

    def multiply(id: int, x: int) -> int:  # noqa: A002
        note(path, id)
        if id in (3, 14) and not os.path.exists(cure):  # noqa: PTH110 (runs elsewhere)
            raise ConnectionError("not yet")
        return x * 10

    sheet = new_sheet(20, 2)
    sheet.table.add_columns({"y": pennon.udf(error_policy=SKIP)(multiply)})
    job = sheet.table.backfill("y", progress=False)
    assert sheet.state() == (18, 2, 0, 0)
    log.new()
    assert job.retry(only_failed=True).wait(progress=False).counters["rows_failed"] == 2
    assert log.new() == [3, 14]
    assert sheet.table.errors("y").num_rows == 2
    Path(cure).touch()
    again = job.retry(only_failed=True).wait(progress=False)
    assert again.counters["rows_committed"] == 2
    assert log.new() == [3, 14]
    assert sheet.state() == (20, 0, 0, 0)
    assert sheet.table.errors("y").num_rows == 0
    assert sheet.values() == {number: number * 1000 for number in range(20)}


def test_failed_rows_are_computed_by_a_mended_function(new_sheet: NewSheet, log: CallLog) -> None:
    sheet = new_sheet(20, 2)
    sheet.table.add_columns({"y": failing_on(log, [3, 14], SKIP)})
    sheet.fill()
    sheet.table.alter_columns({"path": "y", "function": tenfold(log)})
    assert sheet.state() == (0, 0, 20, 0)
    sheet.fill()
    assert sheet.state() == (20, 0, 0, 0)
    assert sheet.table.errors("y").num_rows == 0


def test_the_error_of_a_row_goes_when_its_input_is_mended(new_sheet: NewSheet, log: CallLog) -> None:
    path = log.path

    def divide(id: int, x: int) -> int:  # noqa: A002
        note(path, id)
        return 1000 // x

    sheet = new_sheet(10, 2)
    sheet.table.add_columns({"y": pennon.udf(error_policy=SKIP)(divide)})
    sheet.fill()
    assert sheet.state() == (9, 1, 0, 0)
    assert sheet.table.errors("y")["error_type"].to_pylist() == ["ZeroDivisionError"]
    sheet.compact()
    failed = sheet.open()
    assert sheet.state() == (9, 1, 0, 0)
    (error,) = sheet.table.errors("y").to_pylist()
    moved = failed.scanner(columns=[], filter="id = 0", with_row_address=True).to_table()["_rowaddr"]
    assert moved.to_pylist() == [(error["fragment_id"] << 32) + error["row_offset"]]
    sheet.update("id = 0", 5)
    stale = sheet.open()
    assert sheet.state() == (9, 0, 1, 0)
    assert sheet.table.errors("y").num_rows == 0
    assert sheet.fill() == [0]
    assert sheet.state() == (10, 0, 0, 0)
    assert sheet.table.errors("y").num_rows == 0
    # What was known of a version comes back with it, errors included.
    sheet.table.restore(failed.version)
    assert sheet.state() == (9, 1, 0, 0)
    assert sheet.table.errors("y").to_pylist() == [error]
    sheet.table.restore(stale.version)
    assert sheet.state() == (9, 0, 1, 0)
    assert sheet.table.errors("y").num_rows == 0
    assert sheet.fill() == [0]
    assert sheet.state() == (10, 0, 0, 0)


def test_the_errors_of_rows_that_are_gone_are_not_listed(new_sheet: NewSheet, log: CallLog) -> None:
    sheet = new_sheet(20, 2)
    sheet.table.add_columns({"y": failing_on(log, [3, 4, 14], SKIP)})
    sheet.fill()
    assert sheet.table.errors("y").num_rows == 3
    sheet.table.delete("id in (3, 14)")
    (error,) = sheet.table.errors("y").to_pylist()
    assert error["error_message"] == "row 4 is bad"
    sheet.table.delete("id >= 0")
    assert sheet.table.errors("y").num_rows == 0


def test_too_many_errors_end_the_job_and_keep_what_is_committed(new_sheet: NewSheet, log: CallLog) -> None:
    policy = ErrorPolicy.skip(max_errors=5)
    sheet = new_sheet(40, 4)
    sheet.table.add_columns({"y": failing_on(log, range(20, 30), policy)})
    sheet.fill(where="id < 10")
    with pytest.raises(JobFailedError, match="of 30 rows failed") as caught:
        sheet.fill()
    assert (caught.value.kind, caught.value.phase) == ("ErrorBudgetExceeded", "compute")
    done, failed, stale, missing = sheet.state()
    assert (done >= 10, stale, done + failed + missing) == (True, 0, 40)
    values = {key: value for key, value in sheet.values().items() if value is not None}
    assert len(values) == done
    assert all(value == key * 1000 for key, value in values.items())
    sheet.table.alter_columns({"path": "y", "function": tenfold(log)})
    sheet.fill()
    assert sheet.state() == (40, 0, 0, 0)


def test_a_job_that_exceeded_its_budget_can_be_tried_again(new_sheet: NewSheet, log: CallLog, tmp_path: Path) -> None:
    cure, path = str(tmp_path / "cure"), log.path

    def multiply(id: int, x: int) -> int:  # noqa: A002
        note(path, id)
        time.sleep(0.01)  # worth a checkpoint
        if not os.path.exists(cure):  # noqa: PTH110 (runs elsewhere)
            raise ConnectionError("nobody there")
        return x * 10

    sheet = new_sheet(40, 2)
    sheet.table.add_columns({"y": pennon.udf(error_policy=ErrorPolicy.skip(max_errors=0))(multiply)})
    with pytest.raises(JobFailedError, match="rows failed") as caught:
        sheet.fill()
    Path(cure).touch()
    job: Any = caught.value.job
    job.retry().wait(progress=False)
    sheet.fill(mode="only_failed")
    assert sheet.state() == (40, 0, 0, 0)
    assert sheet.values() == {number: number * 1000 for number in range(40)}


def test_a_share_of_errors_is_a_budget_too(new_sheet: NewSheet, log: CallLog) -> None:
    policy = ErrorPolicy.skip(max_error_ratio=0.1)
    sheet = new_sheet(40)
    sheet.table.add_columns({"few": failing_on(log, range(4), policy), "many": failing_on(log, range(5), policy)})
    sheet.fill("few")
    assert sheet.state("few") == (36, 4, 0, 0)
    with pytest.raises(JobFailedError, match="5 of 40 rows failed"):
        sheet.fill("many")


def test_a_function_that_may_not_fail_names_the_row(new_sheet: NewSheet, log: CallLog) -> None:
    sheet = new_sheet(40, 2)
    sheet.table.add_columns({"y": failing_on(log, [33], ErrorPolicy.fail())})
    with pytest.raises(
        JobFailedError, match=r"row 13 of fragment 1 \(row id 33\): ValueError: row 33 is bad"
    ) as caught:
        sheet.fill()
    assert caught.value.phase == "compute"
    assert caught.value.kind == "ValueError"
    assert sheet.values()[33] is None
    assert set(log.counts()) <= set(range(40))


def test_a_function_is_called_again_as_its_policy_says(new_sheet: NewSheet, log: CallLog, tmp_path: Path) -> None:
    mark, path = str(tmp_path / "mark"), log.path

    def multiply(id: int, x: int) -> int:  # noqa: A002
        note(path, id)
        if id == 5 and not os.path.exists(mark):  # noqa: PTH110 (runs elsewhere)
            Path(mark).touch()
            raise ConnectionError("once")
        return x * 10

    sheet = new_sheet(10)
    policy = ErrorPolicy.retry(ConnectionError, attempts=2, backoff=0.0)
    sheet.table.add_columns({"y": pennon.udf(error_policy=policy)(multiply)})
    assert sheet.fill() == sorted([*range(10), 5])
    assert sheet.state() == (10, 0, 0, 0)


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
def test_a_function_that_hangs_ends_by_its_timeout(new_sheet: NewSheet, log: CallLog, bad: int, in_c: bool) -> None:
    sheet = new_sheet(4)
    sheet.table.add_columns({"y": hanging(log, bad, in_c=in_c)})
    sheet.fill()
    assert sheet.state() == (3, 1, 0, 0)
    (error,) = sheet.table.errors("y").to_pylist()
    assert error["error_type"] == "Timeout"
    assert sheet.values() == {number: None if number == bad else number * 1000 for number in range(4)}
    assert _works(new_sheet, log)


def _works(new_sheet: NewSheet, log: CallLog) -> bool:
    sheet = new_sheet(3)
    sheet.table.add_columns({"y": tenfold(log)})
    sheet.fill()
    return sheet.state() == (3, 0, 0, 0)


def dying(log: CallLog, policy: ErrorPolicy) -> Any:
    path = log.path

    def multiply(id: int, x: int) -> int:  # noqa: A002
        note(path, id)
        if id == 7:
            os._exit(3)
        return x * 10

    return pennon.udf(error_policy=policy)(multiply)


def test_a_row_that_kills_the_process_fails_alone(new_sheet: NewSheet, log: CallLog) -> None:
    sheet = new_sheet(20, 2)
    sheet.table.add_columns({"y": dying(log, SKIP)})
    sheet.fill()
    assert sheet.state() == (19, 1, 0, 0)
    (error,) = sheet.table.errors("y").to_pylist()
    assert error["error_type"] == "ProcessDied"
    assert "exit code 3" in error["error_message"]
    assert sheet.values() == {number: None if number == 7 else number * 1000 for number in range(20)}
    assert _works(new_sheet, log)


def test_a_row_that_kills_the_process_may_fail_the_job(new_sheet: NewSheet, log: CallLog) -> None:
    sheet = new_sheet(20, 2)
    sheet.table.add_columns({"y": dying(log, ErrorPolicy.fail())})
    with pytest.raises(JobFailedError, match="exit code 3"):
        sheet.fill()
    assert _works(new_sheet, log)


def test_a_function_is_tried_on_three_rows_before_anything_is_written(new_sheet: NewSheet, log: CallLog) -> None:
    third, fourth = (failing_on(log, [number], ErrorPolicy.fail()) for number in (2, 3))
    sheet = new_sheet(10)
    sheet.table.add_columns({"y": third, "z": fourth})
    version = sheet.open().version
    for column, phase, computed in (("y", "preflight", []), ("z", "compute", [0, 1, 2, 3])):
        with pytest.raises(JobFailedError) as caught:
            sheet.fill(column)
        assert (caught.value.phase, log.new()) == (phase, computed)
    assert log.trials() == {0: 2, 1: 2, 2: 2}
    assert sheet.open().version == version


def test_a_missing_package_fails_in_the_preflight(new_sheet: NewSheet, log: CallLog) -> None:
    def multiply(x: int) -> int:
        import a_package_that_nobody_has  # type: ignore[import-not-found]

        return int(a_package_that_nobody_has.times_ten(x))

    sheet = new_sheet(10)
    sheet.table.add_columns({"y": pennon.udf(error_policy=SKIP)(multiply)})
    with pytest.raises(JobFailedError, match=r"'a_package_that_nobody_has'.*this executor does not have") as caught:
        sheet.fill()
    assert caught.value.phase == "preflight"
    assert sheet.state() == (0, 0, 0, 10)
    assert log.counts() == {}


def test_another_python_fails_in_the_preflight_with_both_named(new_sheet: NewSheet, rest: RestClient) -> None:
    import platform

    @pennon.udf
    def multiply(x: int) -> int:
        return x * 10

    sheet = new_sheet(10)
    content = json.loads(multiply.pack()) | {"python": "3.6.1"}
    _add_raw(rest, sheet, json.dumps(content).encode())
    with pytest.raises(JobFailedError, match=r"3\.6\.1") as caught:
        sheet.fill()
    assert caught.value.phase == "preflight"
    assert platform.python_version() in str(caught.value)


class Writes:
    """Something whose loading writes down, in a file, which program loads it."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        program = "open('/proc/self/cmdline').read().replace('\\0', ' ') + '\\n'"
        return eval, (f"open({self.path!r}, 'a').write({program}) and (lambda x: x * 10)",)


def _add_raw(rest: RestClient, sheet: Sheet, udf: bytes, **more: Any) -> None:
    virtual = {
        "input_columns": ["x"],
        "outputs": [{"column": "y", "struct_field": "", "data_type": {"type": "int64"}, "nullable": True}],
        "image": "",
        "udf": base64.b64encode(udf).decode(),
        "udf_name": "raw",
        "udf_version": "1",
        **more,
    }
    rest.post(f"{sheet.route}/add_columns", {"new_columns": [{"name": "y", "virtual_column": virtual}]})


def test_functions_are_loaded_on_executors_only(new_sheet: NewSheet, rest: RestClient, tmp_path: Path) -> None:
    written = tmp_path / "written"
    sheet = new_sheet(10)
    loaded = pickle.dumps(Writes(str(written)))
    _add_raw(rest, sheet, loaded)
    virtual = {"input_columns": ["x"], "udf": base64.b64encode(loaded).decode(), "udf_name": "raw", "udf_version": "2"}
    rest.post(f"{sheet.route}/alter_columns", {"alterations": [{"path": "y", "virtual_column": virtual}]})
    rest.post(f"{sheet.route}/describe", {"load_detailed_metadata": True})
    rest.get("/v1/namespace/$/table/list")
    rest.post(f"{sheet.route}/column_function", {"column": "y"})
    rest.post(f"{sheet.route}/column_state", {"column": "y"})
    rest.post(f"{sheet.route}/errors", {"column": "y"})
    assert sheet.table.backfill("y", dry_run=True).rows == 10
    assert not written.exists()
    sheet.fill()
    assert sheet.values() == {number: number * 1000 for number in range(10)}
    loaders = written.read_text().splitlines()
    assert loaders
    assert all("pyspark.daemon" in program for program in loaders)


def test_a_cancelled_job_commits_nothing_more(new_sheet: NewSheet, log: CallLog) -> None:
    from tests.integration.backfill.sheets import slow

    sheet = new_sheet(40, 4)
    sheet.table.add_columns({"y": slow(log, 0.3, batch_size=5)})
    job = sheet.table.backfill_async("y", commit_granularity=1, concurrency=1)
    wait_until(lambda: sum(log.counts().values()) >= 5, "a first batch")
    assert job.cancel() in {"cancelling", "committing"}
    version = sheet.open().version
    assert ended(job).state == "cancelled"
    done = sheet.state()[0]
    time.sleep(1.0)
    assert sheet.open().version == version
    assert sheet.state() == (done, 0, 0, 40 - done)
    assert sheet.values() == {number: number * 1000 if number < done else None for number in range(40)}
    used = {file.path for fragment in sheet.open().get_fragments() for file in fragment.metadata.files}
    assert used <= {path.name for path in (sheet.folder / "data").iterdir()}
    sheet.fill()
    assert sheet.state() == (40, 0, 0, 0)
    assert sheet.checkpoints() == []
