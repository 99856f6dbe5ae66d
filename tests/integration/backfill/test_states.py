"""Of each row it is known whether it was computed, failed or went stale, and only what is due is computed."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import pennon
from pennon.client import JobFailedError
from tests.integration.backfill.calls import CallLog, note
from tests.integration.backfill.conftest import NewSheet
from tests.integration.backfill.sheets import Sheet, ended, rows, slow, tenfold
from tests.support.waiting import wait_until


def filled(new_sheet: NewSheet, log: CallLog, count: int = 30, fragments: int = 3) -> Sheet:
    """Return a table whose column is filled."""
    sheet = new_sheet(count, fragments)
    sheet.table.add_columns({"y": tenfold(log)})
    assert sheet.fill() == list(range(count))
    return sheet


def check(sheet: Sheet) -> None:
    """Insist that all rows have their values."""
    assert sheet.values() == {key: number * 10 for key, number in sheet.numbers().items()}
    assert sheet.state() == (len(sheet.numbers()), 0, 0, 0)
    assert sheet.checkpoints() == []


def test_all_rows_are_computed_once(new_sheet: NewSheet, log: CallLog) -> None:
    sheet = new_sheet(30, 3)
    sheet.table.add_columns({"y": tenfold(log)})
    assert sheet.state() == (0, 0, 0, 30)
    assert sheet.fill() == list(range(30))
    check(sheet)
    assert sheet.fill() == []


def test_all_rows_are_computed_also_behind_another_job_of_the_column(new_sheet: NewSheet, log: CallLog) -> None:
    sheet = new_sheet(6)
    sheet.table.add_columns({"y": slow(log, 1.0)})
    first = sheet.table.backfill_async("y")
    second = sheet.table.backfill_async("y", mode="all")
    assert [(ended(job).result or {})["rows_assigned"] for job in (first, second)] == [6, 6]
    assert set(log.counts().values()) == {2}


def test_a_computed_null_is_a_value(new_sheet: NewSheet, log: CallLog) -> None:
    path = log.path

    @pennon.udf
    def even(id: int) -> int | None:  # noqa: A002
        note(path, id)
        return None if id % 2 else id

    sheet = new_sheet(10)
    sheet.table.add_columns({"y": even})
    assert sheet.fill() == list(range(10))
    assert sheet.state() == (10, 0, 0, 0)
    assert sheet.fill() == []
    assert sheet.values() == {number: None if number % 2 else number for number in range(10)}


def test_appended_rows_alone_are_computed(new_sheet: NewSheet, log: CallLog) -> None:
    sheet = filled(new_sheet, log)
    sheet.add(30, 35)
    assert sheet.state() == (30, 0, 0, 5)
    assert sheet.fill() == list(range(30, 35))
    check(sheet)


def test_an_updated_row_is_stale_and_computed_again(new_sheet: NewSheet, log: CallLog) -> None:
    sheet = filled(new_sheet, log)
    sheet.update("id = 7", 5)
    assert sheet.values()[7] == 7000
    assert sheet.state() == (29, 0, 1, 0)
    assert sheet.fill(mode="only_missing") == []
    assert sheet.fill() == [7]
    check(sheet)


def test_upserted_rows_are_stale_or_missing(new_sheet: NewSheet, log: CallLog) -> None:
    sheet = filled(new_sheet, log)
    changed = rows(28, 32)
    sheet.upsert(changed.set_column(1, "x", [[1, 2, 3, 4]]))
    assert sheet.fill() == [28, 29, 30, 31]
    check(sheet)


def test_deleted_rows_are_not_computed_and_stay_deleted(new_sheet: NewSheet, log: CallLog) -> None:
    sheet = new_sheet(30, 3)
    sheet.table.delete("id % 3 = 0")
    sheet.table.add_columns({"y": tenfold(log)})
    assert sheet.fill() == [number for number in range(30) if number % 3]
    check(sheet)
    sheet.table.delete("id >= 10 and id < 20")
    assert sheet.fill() == []
    assert sorted(sheet.numbers()) == [number for number in range(30) if number % 3 and not 10 <= number < 20]


def test_a_compaction_makes_nothing_stale(new_sheet: NewSheet, log: CallLog) -> None:
    sheet = filled(new_sheet, log)
    sheet.table.delete("id in (3, 17)")
    sheet.compact()
    check(sheet)
    assert sheet.fill() == []
    sheet.add(30, 35)
    sheet.compact()
    assert sheet.state() == (28, 0, 0, 5)
    assert sheet.fill() == list(range(30, 35))
    check(sheet)


def test_an_update_is_still_known_after_a_compaction(new_sheet: NewSheet, log: CallLog) -> None:
    sheet = filled(new_sheet, log)
    sheet.update("id = 7", 5)
    sheet.compact()
    assert sheet.state() == (29, 0, 1, 0)
    assert sheet.fill() == [7]
    check(sheet)


def test_another_column_makes_nothing_stale(new_sheet: NewSheet, log: CallLog) -> None:
    sheet = filled(new_sheet, log)
    sheet.table.add_columns({"z": tenfold(log, 3)})
    assert sheet.state() == (30, 0, 0, 0)
    assert sheet.fill("z") == list(range(30))
    check(sheet)
    sheet.compact()
    check(sheet)
    assert (sheet.fill("y"), sheet.fill("z")) == ([], [])


def test_a_row_updated_before_another_column_was_filled_stays_stale(new_sheet: NewSheet, log: CallLog) -> None:
    sheet = filled(new_sheet, log)
    sheet.table.add_columns({"z": tenfold(log, 3)})
    sheet.update("id = 7", 5)
    sheet.fill("z")
    assert sheet.state() == (29, 0, 1, 0)
    sheet.compact()
    assert sheet.state() == (29, 0, 1, 0)
    assert sheet.fill() == [7]
    check(sheet)


def test_a_column_goes_stale_with_the_column_it_is_computed_from(new_sheet: NewSheet, log: CallLog) -> None:
    path = log.path

    @pennon.udf
    def more(id: int, y: int) -> int:  # noqa: A002
        note(path, id)
        return y + 1

    sheet = filled(new_sheet, log)
    sheet.table.add_columns({"z": more})
    sheet.fill("z")
    sheet.update("id = 7", 5)
    assert sheet.fill("y") == [7]
    assert sheet.state("z") == (29, 0, 1, 0)
    assert sheet.fill("z") == [7]
    sheet.table.alter_columns({"path": "y", "function": tenfold(log, 20)})
    sheet.fill("y", where="id < 5")
    assert sheet.state("z") == (25, 0, 5, 0)
    sheet.fill("y")
    assert sheet.state("z") == (0, 0, 30, 0)
    assert sheet.fill("z") == list(range(30))
    assert sheet.values("z") == {key: number * 20 + 1 for key, number in sheet.numbers().items()}


def test_other_columns_that_lost_their_inputs_are_left_alone(new_sheet: NewSheet, log: CallLog) -> None:
    sheet = new_sheet(10)
    sheet.table.add_columns({"w": "id + 1"})
    sheet.table.add_columns({"y": tenfold(log), "z": tenfold(log, input_columns=["id", "w"])})
    sheet.open().drop_columns(["w"])  # by a client that asks nobody whether it is needed
    assert sheet.fill() == list(range(10))
    check(sheet)


def test_a_plain_column_makes_nothing_stale(new_sheet: NewSheet, log: CallLog) -> None:
    sheet = filled(new_sheet, log)
    sheet.table.add_columns({"w": "x + 1"})
    sheet.open().create_scalar_index("id", "BTREE")
    check(sheet)
    assert sheet.fill() == []


def test_results_whose_file_was_cleaned_up_are_computed_again(new_sheet: NewSheet, log: CallLog) -> None:
    sheet = new_sheet(20, 2)
    sheet.table.add_columns({"y": slow(log, 0.3, batch_size=10)})
    job = sheet.table.backfill_async("y", concurrency=1)
    wait_until(lambda: any(name.endswith(".json") for name in sheet.checkpoints()), "the file of a fragment")
    job.cancel()
    ended(job)
    committed = sheet.state()[0]
    used = {file.path for fragment in sheet.open().get_fragments() for file in fragment.metadata.files}
    for path in (sheet.folder / "data").iterdir():
        if path.name not in used:
            path.unlink()
    sheet.fill()
    assert committed in (0, 10)
    check(sheet)


def test_a_restored_version_is_missing_what_it_missed(new_sheet: NewSheet, log: CallLog) -> None:
    sheet = new_sheet(30, 3)
    sheet.table.add_columns({"y": tenfold(log)})
    empty = sheet.open().version
    sheet.fill()
    full = sheet.open().version
    sheet.table.restore(empty)
    assert sheet.state() == (0, 0, 0, 30)
    sheet.table.restore(full)
    check(sheet)
    sheet.table.restore(empty)
    sheet.table.checkout_latest()
    assert sheet.fill() == list(range(30))
    check(sheet)


def test_another_function_computes_all_rows(new_sheet: NewSheet, log: CallLog) -> None:
    sheet = filled(new_sheet, log)
    sheet.open().create_scalar_index("y", "BTREE")
    sheet.table.alter_columns({"path": "y", "function": tenfold(log, 20)})
    assert sheet.state() == (0, 0, 30, 0)
    assert sheet.values() == {key: number * 10 for key, number in sheet.numbers().items()}
    assert sheet.fill(where="id < 4") == list(range(4))
    assert sheet.values() == {key: number * (20 if key < 4 else 10) for key, number in sheet.numbers().items()}
    assert sheet.state() == (4, 0, 26, 0)
    # By the index, as far as it goes: row 2 had this value before, and row 1 has it now.
    assert sheet.open().to_table(filter="y = 2000", columns=["id"])["id"].to_pylist() == [1]
    assert sheet.fill() == list(range(4, 30))
    assert sheet.values() == {key: number * 20 for key, number in sheet.numbers().items()}


def test_modes_choose_rows(new_sheet: NewSheet, log: CallLog) -> None:
    sheet = filled(new_sheet, log)
    sheet.update("id = 2", 1)
    sheet.add(30, 33)
    assert sheet.fill(mode="only_failed") == []
    assert sheet.fill(mode="only_missing") == [30, 31, 32]
    assert sheet.fill(mode="all") == list(range(33))
    check(sheet)


def test_all_rows_are_computed_also_those_of_which_results_were_kept(
    new_sheet: NewSheet, log: CallLog, tmp_path: Path
) -> None:
    cure, path = str(tmp_path / "cure"), log.path

    def multiply(id: int, x: int) -> int:  # noqa: A002
        note(path, id)
        if id == 15 and not os.path.exists(cure):  # noqa: PTH110 (runs elsewhere)
            raise ConnectionError("not yet")
        return x * 10

    sheet = new_sheet(20)
    sheet.table.add_columns({"y": pennon.udf(multiply)})
    for mode, computed in (("default", range(15, 20)), ("all", range(20))):
        Path(cure).unlink(missing_ok=True)
        with pytest.raises(JobFailedError, match="not yet"):
            sheet.fill(checkpoint_size=5, mode=mode)
        assert sum(name.endswith(".arrow") for name in sheet.checkpoints()) == 3
        Path(cure).touch()
        assert sheet.fill(mode=mode) == list(computed)
        check(sheet)


def test_where_chooses_rows_and_keeps_the_others(new_sheet: NewSheet, log: CallLog) -> None:
    sheet = new_sheet(60, 2)
    sheet.table.delete("id % 10 = 5")
    sheet.table.add_columns({"y": tenfold(log)})
    assert sheet.fill(where="id % 7 = 0") == [number for number in range(60) if number % 7 == 0 and number % 10 != 5]
    assert sheet.fill(where="id > 50") == [51, 52, 53, 54, 57, 58, 59]
    expected = {number: number * 1000 if number % 7 == 0 or number > 50 else None for number in sheet.numbers()}
    assert sheet.values() == expected
    assert len(sheet.fill()) == sum(value is None for value in expected.values())
    check(sheet)


def test_a_number_of_fragments_bounds_the_work(new_sheet: NewSheet, log: CallLog) -> None:
    sheet = new_sheet(30, 3)
    sheet.table.add_columns({"y": tenfold(log)})
    assert sheet.fill(num_frags=1) == list(range(10))
    assert sheet.fill(num_frags=2) == list(range(10, 30))
    check(sheet)


def test_an_old_version_names_the_rows(new_sheet: NewSheet, log: CallLog) -> None:
    sheet = new_sheet(20, 2)
    sheet.table.add_columns({"y": tenfold(log)})
    old = sheet.open().version
    sheet.add(20, 30)
    assert sheet.fill(read_version=old) == list(range(20))
    assert sheet.state() == (20, 0, 0, 10)
    assert sheet.fill(read_version=old) == []
    assert sheet.fill() == list(range(20, 30))
    check(sheet)


def test_a_branch_is_filled_for_itself(new_sheet: NewSheet, log: CallLog) -> None:
    sheet = new_sheet(20, 2)
    sheet.table.add_columns({"y": tenfold(log)})
    sheet.fill(where="id < 10")
    sheet.table.branches.create("dev")
    assert sheet.fill(branch="dev") == list(range(10, 20))
    assert sheet.values(branch="dev") == {number: 1000 * number for number in range(20)}
    assert sheet.values() == {number: 1000 * number if number < 10 else None for number in range(20)}
    assert sheet.state() == (10, 0, 0, 10)
    assert sheet.state(branch="dev") == (20, 0, 0, 0)
    assert sheet.fill() == list(range(10, 20))
    check(sheet)


def test_a_branch_knows_what_was_known_where_it_began(new_sheet: NewSheet, log: CallLog) -> None:
    sheet = filled(new_sheet, log)
    sheet.table.branches.create("dev")
    sheet.lance.on_branch("dev").update({"x": "5"}, "id = 7")
    sheet.update("id = 8", 5)
    assert sheet.fill() == [8]
    sheet.lance.on_branch("dev").optimize.compact_files()
    assert sheet.state(branch="dev") == (29, 0, 1, 0)
    assert sheet.fill(branch="dev") == [7]
    assert sheet.values(branch="dev") == {number: 50 if number == 7 else 1000 * number for number in range(30)}


def test_a_branch_knows_nothing_of_another_that_had_its_name(new_sheet: NewSheet, log: CallLog) -> None:
    sheet = new_sheet(10)
    sheet.table.add_columns({"y": tenfold(log)})
    sheet.table.branches.create("dev")
    assert sheet.fill(branch="dev") == list(range(10))
    sheet.table.branches.delete("dev")
    sheet.update("id = 7", 5)  # at the version at which the other was filled
    sheet.table.branches.create("dev")
    assert sheet.state(branch="dev") == (0, 0, 0, 10)


def update_in_place(sheet: Sheet, column: str = "x") -> None:
    """Have a client write a column of the row 13 in place, of which Lance marks no row."""
    sheet.lance.update_in_place("id", pa.table({"id": [13], column: pa.array([5], pa.int64())}))
    assert sheet.values(column)[13] == 5


def test_a_column_written_in_place_is_known_after_a_compaction(new_sheet: NewSheet, log: CallLog) -> None:
    """Also if the row moved before, or it was the column itself, and once its versions were cleaned up."""
    sheet = filled(new_sheet, log)
    update_in_place(sheet)
    sheet.compact()
    sheet.open().cleanup_old_versions(timedelta(0))
    assert sheet.state() == (20, 0, 10, 0)
    assert sheet.fill() == list(range(10, 20))
    check(sheet)

    sheet.add(30, 40)
    assert sheet.fill() == list(range(30, 40))
    sheet.compact()
    update_in_place(sheet, "y")
    sheet.add(40, 41)
    sheet.compact()
    assert 13 in sheet.fill()
    check(sheet)


def test_a_plain_column_and_a_compaction_make_nothing_stale(new_sheet: NewSheet, log: CallLog) -> None:
    sheet = filled(new_sheet, log)
    sheet.table.add_columns({"w": "x + 1"})
    sheet.compact()
    check(sheet)
    assert sheet.fill() == []

    sheet.table.add_columns({"v": "x + 1"})
    sheet.update("id = 3", 7)  # which leaves the fragment
    sheet.table.add_columns({"u": "x + 1"})
    sheet.compact()
    assert 3 in sheet.fill()
    check(sheet)


def test_a_plain_column_makes_nothing_stale_beside_rows_that_left_and_were_looked_at(
    new_sheet: NewSheet, log: CallLog
) -> None:
    sheet = filled(new_sheet, log)
    sheet.table.delete("id = 2")
    sheet.update("id = 3", 7)  # which leaves the fragment
    sheet.table.add_columns({"w": "x + 1"})
    sheet.update("id = 4", 8)
    assert sheet.fill(where="id = 3") == [3]
    sheet.compact()
    assert sheet.state() == (28, 0, 1, 0)
    assert sheet.fill() == [4]
    check(sheet)
    sheet.update("id = 5", 9)
    assert sheet.fill() == [5]
    sheet.table.add_columns({"v": "x + 1"})
    sheet.compact()
    check(sheet)


def test_inputs_that_are_written_in_place_make_values_stale(new_sheet: NewSheet, log: CallLog) -> None:
    sheet = filled(new_sheet, log)
    update_in_place(sheet)
    assert sheet.state() == (20, 0, 10, 0)  # Lance does not say which rows it was
    assert sheet.fill() == list(range(10, 20))
    check(sheet)


def test_a_column_that_takes_the_name_of_one_that_was_dropped_starts_without_values(
    new_sheet: NewSheet, log: CallLog
) -> None:
    sheet = new_sheet(30, fragments=3)
    sheet.table.add_columns({"y": tenfold(log)})
    assert sheet.fill() == list(range(30))
    sheet.table.drop_columns(["y"])
    sheet.table.add_columns({"y": tenfold(log)})
    assert sheet.state() == (0, 0, 0, 30)
    sheet.compact()
    assert sheet.state() == (0, 0, 0, 30)
    assert sheet.fill() == list(range(30))
    assert sheet.values() == {number: 1000 * number for number in range(30)}
