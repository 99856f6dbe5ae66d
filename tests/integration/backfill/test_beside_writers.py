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
from tests.integration.backfill.conftest import NewSheet
from tests.integration.backfill.sheets import Sheet, ended, rows, slow, tenfold
from tests.support.rest import RestClient
from tests.support.waiting import wait_until


def begin(new_sheet: NewSheet, log: CallLog, fragments: int = 4) -> tuple[Sheet, Job]:
    """Begin to fill ten rows a fragment, slowly, one fragment after the other; return when the first rows are in."""
    sheet = new_sheet(10 * fragments, fragments)
    sheet.table.add_columns({"y": slow(log, 0.15, batch_size=5)})
    job = sheet.table.backfill_async("y", concurrency=1, commit_granularity=1)
    wait_until(lambda: sum(log.counts().values()) >= 5, "a first batch")
    return sheet, job


def check(sheet: Sheet, *, again: int = 0) -> None:
    """Insist that every row is right or known not to be, and that few were computed more than once."""
    computed, failed, stale, missing = sheet.state()
    numbers, values = sheet.numbers(), sheet.values()
    wrong = [key for key, number in numbers.items() if values[key] != number * 10]
    assert failed == 0
    assert len(wrong) <= stale + missing
    counts = sheet.log.counts()
    assert sum(counts.values()) - len(counts) <= again, counts
    sheet.log.new()
    todo = sheet.fill()
    assert set(wrong) <= set(todo)
    assert len(todo) == stale + missing
    assert sheet.values() == {key: number * 10 for key, number in sheet.numbers().items()}
    assert sheet.state() == (len(numbers), 0, 0, 0)
    assert computed + stale + missing == len(numbers)
    assert sheet.checkpoints() == []


def test_rows_appended_meanwhile_are_computed_too(new_sheet: NewSheet, log: CallLog) -> None:
    sheet, job = begin(new_sheet, log)
    sheet.add(40, 45)
    job.wait(progress=False)
    assert sheet.state() == (45, 0, 0, 0)
    check(sheet)


def test_rows_deleted_meanwhile_stay_deleted(new_sheet: NewSheet, log: CallLog) -> None:
    sheet, job = begin(new_sheet, log)
    sheet.table.delete("id in (2, 11, 33) or id between 20 and 29")
    job.wait(progress=False)
    assert sorted(sheet.numbers()) == [n for n in range(40) if n not in (2, 11, 33) and not 20 <= n <= 29]
    check(sheet)
    sheet.compact()
    check(sheet)


def test_rows_updated_meanwhile_are_computed_from_their_new_input(new_sheet: NewSheet, log: CallLog) -> None:
    sheet, job = begin(new_sheet, log)
    sheet.update("id in (1, 12, 38)", 7)
    job.wait(progress=False)
    check(sheet, again=3)
    sheet.compact()
    check(sheet, again=3)


def test_rows_upserted_meanwhile_are_computed_from_their_new_input(new_sheet: NewSheet, log: CallLog) -> None:
    sheet, job = begin(new_sheet, log)
    changed = rows(36, 44)
    sheet.upsert(changed.set_column(1, "x", pa.array(range(8), pa.int64())))
    job.wait(progress=False)
    check(sheet, again=4)


def test_a_compaction_meanwhile_loses_nothing(new_sheet: NewSheet, log: CallLog) -> None:
    sheet, job = begin(new_sheet, log)
    sheet.compact()
    job.wait(progress=False)
    assert sheet.state() == (40, 0, 0, 0)
    # What was not committed was computed for fragments that are gone.
    check(sheet, again=40)


def test_a_cleanup_on_storage_meanwhile_loses_nothing(new_sheet: NewSheet, log: CallLog, rest: RestClient) -> None:
    sheet, job = begin(new_sheet, log)
    assert rest.post(f"{sheet.route}/tags/list")["tags"] == {}  # what keeps the version is nobody's business
    sheet.compact()
    stored = lance.dataset(str(sheet.folder))
    stored.cleanup_old_versions(timedelta(0), error_if_tagged_old_versions=False)
    job.wait(progress=False)
    assert sheet.state() == (40, 0, 0, 0)
    assert lance.dataset(str(sheet.folder)).tags.list() == {}
    check(sheet, again=40)


def drop_another(sheet: Sheet) -> None:
    sheet.table.drop_columns(["other"])


def rename_another(sheet: Sheet) -> None:
    sheet.table.alter_columns({"path": "other", "rename": "another"})


def add_another(sheet: Sheet) -> None:
    sheet.table.add_columns({"more": "x + 1"})


def add_a_function(sheet: Sheet) -> None:
    sheet.table.add_columns({"z": tenfold(sheet.log, 3)})


def index_another(sheet: Sheet) -> None:
    sheet.open().create_scalar_index("id", "BTREE")


def index_this(sheet: Sheet) -> None:
    sheet.open().create_scalar_index("y", "BTREE")


def annotate(sheet: Sheet) -> None:
    sheet.open().update_config({"note": "changed"})


@pytest.mark.parametrize(
    "change",
    [drop_another, rename_another, add_another, add_a_function, index_another, index_this, annotate],
    ids=lambda change: change.__name__,
)
def test_other_changes_cost_nothing(new_sheet: NewSheet, log: CallLog, change: Callable[[Sheet], None]) -> None:
    sheet = new_sheet(20, 2)
    sheet.table.add_columns({"other": "id + 1"})
    sheet.table.add_columns({"y": slow(log, 0.15, batch_size=5)})
    job = sheet.table.backfill_async("y", concurrency=1, commit_granularity=1)
    wait_until(lambda: sum(log.counts().values()) >= 5, "a first batch")
    change(sheet)
    job.wait(progress=False)
    assert sheet.state() == (20, 0, 0, 0)
    check(sheet)


def test_two_columns_are_filled_at_the_same_time(new_sheet: NewSheet, log: CallLog) -> None:
    sheet, job = begin(new_sheet, log)
    sheet.table.add_columns({"z": tenfold(CallLog(sheet.folder.parent / f"{sheet.name}.calls"), 3)})
    sheet.table.backfill("z", progress=False)
    job.wait(progress=False)
    assert (sheet.state("y"), sheet.state("z")) == ((40, 0, 0, 0), (40, 0, 0, 0))
    sheet.compact()
    assert (sheet.state("y"), sheet.state("z")) == ((40, 0, 0, 0), (40, 0, 0, 0))
    assert sheet.values("z") == {number: number * 300 for number in range(40)}
    check(sheet)


def test_all_of_it_at_once(new_sheet: NewSheet, log: CallLog) -> None:
    sheet, job = begin(new_sheet, log, fragments=6)

    def append() -> None:
        for start in range(60, 75, 5):
            sheet.add(start, start + 5)

    def change() -> None:
        for number in (5, 25, 45):
            sheet.update(f"id = {number}", number)

    def remove() -> None:
        for number in (6, 26, 46):
            sheet.table.delete(f"id = {number}")

    writers = [threading.Thread(target=work) for work in (append, change, remove)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    job.wait(progress=False)
    assert set(sheet.numbers()) == set(range(75)) - {6, 26, 46}
    check(sheet, again=3)
    sheet.compact()
    check(sheet, again=3)


def test_a_column_dropped_meanwhile_fails_the_job(new_sheet: NewSheet, log: CallLog) -> None:
    sheet, job = begin(new_sheet, log)
    sheet.table.drop_columns(["y"])
    with pytest.raises(JobFailedError, match="no column 'y'"):
        job.wait(progress=False)
    assert set(sheet.open().schema.names) == {"id", "x"}


def test_an_input_renamed_meanwhile_costs_nothing(new_sheet: NewSheet, log: CallLog, rest: RestClient) -> None:
    sheet, job = begin(new_sheet, log, fragments=2)
    body = {"alterations": [{"path": "x", "rename": "number"}], "cascade": True}
    rest.post(f"{sheet.route}/alter_columns", body)
    job.wait(progress=False)
    assert sheet.state() == (20, 0, 0, 0)
    assert sheet.values() == {number: number * 1000 for number in range(20)}
    assert log.new() == list(range(20))


def test_a_column_added_anew_meanwhile_is_filled(new_sheet: NewSheet, log: CallLog) -> None:
    sheet, job = begin(new_sheet, log)
    sheet.table.drop_columns(["y"])
    sheet.table.add_columns({"y": tenfold(log, 10)})
    ended(job)
    sheet.fill()
    assert sheet.values() == {number: number * 1000 for number in range(40)}
    assert sheet.state() == (40, 0, 0, 0)


def test_a_function_changed_meanwhile_computes_all_rows(new_sheet: NewSheet, log: CallLog) -> None:
    sheet, job = begin(new_sheet, log)
    sheet.table.alter_columns({"path": "y", "function": tenfold(log, 20)})
    job.wait(progress=False)
    assert sheet.state() == (40, 0, 0, 0)
    assert sheet.values() == {number: number * 2000 for number in range(40)}


def test_a_table_dropped_meanwhile_fails_the_job(new_sheet: NewSheet, log: CallLog) -> None:
    sheet, job = begin(new_sheet, log)
    sheet.db.drop_table(sheet.name)
    assert ended(job).state == "failed"
    assert "dropped" in str(job.failure)


def test_a_branch_deleted_meanwhile_fails_the_job(new_sheet: NewSheet, log: CallLog, rest: RestClient) -> None:
    sheet = new_sheet(40, 4)
    sheet.table.add_columns({"y": slow(log, 0.2, batch_size=5)})
    rest.post(f"{sheet.route}/branches/create", {"name": "dev"})
    job = sheet.table.backfill_async("y", branch="dev", concurrency=1)
    wait_until(log.counts, "a first batch")
    rest.post(f"{sheet.route}/branches/delete", {"name": "dev"})
    failure = ended(job).failure or {}
    assert (failure.get("type"), failure.get("message")) == (
        "TableBranchNotFoundError",
        "The table has no branch 'dev'.",
    )
    assert sheet.state() == (0, 0, 0, 40)


def test_a_restored_version_meanwhile_is_filled(new_sheet: NewSheet, log: CallLog) -> None:
    sheet, job = begin(new_sheet, log)
    version = sheet.open().version
    sheet.add(40, 45)
    sheet.table.restore(version)
    sheet.table.checkout_latest()
    job.wait(progress=False)
    assert sorted(sheet.numbers()) == list(range(40))
    check(sheet, again=15)
