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
from tests.integration.backfill.conftest import NewSample
from tests.integration.backfill.sample_tables import SampleTable, ended, rows, slow, tenfold
from tests.support.waiting import wait_until


def filled(new_sample: NewSample, log: CallLog, count: int = 30, fragments: int = 3) -> SampleTable:
    """Return a table whose column is filled."""
    sample = new_sample(count, fragments)
    sample.table.add_columns({"y": tenfold(log)})
    assert sample.fill() == list(range(count))
    return sample


def check(sample: SampleTable) -> None:
    """Insist that all rows have their values."""
    assert sample.values() == {key: number * 10 for key, number in sample.numbers().items()}
    assert sample.state() == (len(sample.numbers()), 0, 0, 0)
    assert sample.checkpoints() == []


def test_all_rows_are_computed_once(new_sample: NewSample, log: CallLog) -> None:
    sample = new_sample(30, 3)
    sample.table.add_columns({"y": tenfold(log)})
    assert sample.state() == (0, 0, 0, 30)
    assert sample.fill() == list(range(30))
    check(sample)
    assert sample.fill() == []


def test_all_rows_are_computed_also_behind_another_job_of_the_column(new_sample: NewSample, log: CallLog) -> None:
    sample = new_sample(6)
    sample.table.add_columns({"y": slow(log, 1.0)})
    first = sample.table.backfill_async("y")
    second = sample.table.backfill_async("y", mode="all")
    assert [(ended(job).result or {})["rows_assigned"] for job in (first, second)] == [6, 6]
    assert set(log.counts().values()) == {2}


def test_a_computed_null_is_a_value(new_sample: NewSample, log: CallLog) -> None:
    path = log.path

    @pennon.udf
    def even(id: int) -> int | None:  # noqa: A002
        note(path, id)
        return None if id % 2 else id

    sample = new_sample(10)
    sample.table.add_columns({"y": even})
    assert sample.fill() == list(range(10))
    assert sample.state() == (10, 0, 0, 0)
    assert sample.fill() == []
    assert sample.values() == {number: None if number % 2 else number for number in range(10)}


def test_appended_rows_alone_are_computed(new_sample: NewSample, log: CallLog) -> None:
    sample = filled(new_sample, log)
    sample.add(30, 35)
    assert sample.state() == (30, 0, 0, 5)
    assert sample.fill() == list(range(30, 35))
    check(sample)


def test_an_updated_row_is_stale_and_computed_again(new_sample: NewSample, log: CallLog) -> None:
    sample = filled(new_sample, log)
    sample.update("id = 7", 5)
    assert sample.values()[7] == 7000
    assert sample.state() == (29, 0, 1, 0)
    assert sample.fill(mode="only_missing") == []
    assert sample.fill() == [7]
    check(sample)


def test_upserted_rows_are_stale_or_missing(new_sample: NewSample, log: CallLog) -> None:
    sample = filled(new_sample, log)
    changed = rows(28, 32)
    sample.upsert(changed.set_column(1, "x", [[1, 2, 3, 4]]))
    assert sample.fill() == [28, 29, 30, 31]
    check(sample)


def test_deleted_rows_are_not_computed_and_stay_deleted(new_sample: NewSample, log: CallLog) -> None:
    sample = new_sample(30, 3)
    sample.table.delete("id % 3 = 0")
    sample.table.add_columns({"y": tenfold(log)})
    assert sample.fill() == [number for number in range(30) if number % 3]
    check(sample)
    sample.table.delete("id >= 10 and id < 20")
    assert sample.fill() == []
    assert sorted(sample.numbers()) == [number for number in range(30) if number % 3 and not 10 <= number < 20]


def test_a_compaction_makes_nothing_stale(new_sample: NewSample, log: CallLog) -> None:
    sample = filled(new_sample, log)
    sample.table.delete("id in (3, 17)")
    sample.compact()
    check(sample)
    assert sample.fill() == []
    sample.add(30, 35)
    sample.compact()
    assert sample.state() == (28, 0, 0, 5)
    assert sample.fill() == list(range(30, 35))
    check(sample)


def test_an_update_is_still_known_after_a_compaction(new_sample: NewSample, log: CallLog) -> None:
    sample = filled(new_sample, log)
    sample.update("id = 7", 5)
    sample.compact()
    assert sample.state() == (29, 0, 1, 0)
    assert sample.fill() == [7]
    check(sample)


def test_another_column_makes_nothing_stale(new_sample: NewSample, log: CallLog) -> None:
    sample = filled(new_sample, log)
    sample.table.add_columns({"z": tenfold(log, 3)})
    assert sample.state() == (30, 0, 0, 0)
    assert sample.fill("z") == list(range(30))
    check(sample)
    sample.compact()
    check(sample)
    assert (sample.fill("y"), sample.fill("z")) == ([], [])


def test_a_row_updated_before_another_column_was_filled_stays_stale(new_sample: NewSample, log: CallLog) -> None:
    sample = filled(new_sample, log)
    sample.table.add_columns({"z": tenfold(log, 3)})
    sample.update("id = 7", 5)
    sample.fill("z")
    assert sample.state() == (29, 0, 1, 0)
    sample.compact()
    assert sample.state() == (29, 0, 1, 0)
    assert sample.fill() == [7]
    check(sample)


def test_a_column_goes_stale_with_the_column_it_is_computed_from(new_sample: NewSample, log: CallLog) -> None:
    path = log.path

    @pennon.udf
    def more(id: int, y: int) -> int:  # noqa: A002
        note(path, id)
        return y + 1

    sample = filled(new_sample, log)
    sample.table.add_columns({"z": more})
    sample.fill("z")
    sample.update("id = 7", 5)
    assert sample.fill("y") == [7]
    assert sample.state("z") == (29, 0, 1, 0)
    assert sample.fill("z") == [7]
    sample.table.alter_columns({"path": "y", "function": tenfold(log, 20)})
    sample.fill("y", where="id < 5")
    assert sample.state("z") == (25, 0, 5, 0)
    sample.fill("y")
    assert sample.state("z") == (0, 0, 30, 0)
    assert sample.fill("z") == list(range(30))
    assert sample.values("z") == {key: number * 20 + 1 for key, number in sample.numbers().items()}


def test_other_columns_that_lost_their_inputs_are_left_alone(new_sample: NewSample, log: CallLog) -> None:
    sample = new_sample(10)
    sample.table.add_columns({"w": "id + 1"})
    sample.table.add_columns({"y": tenfold(log), "z": tenfold(log, input_columns=["id", "w"])})
    sample.open().drop_columns(["w"])  # by a client that asks nobody whether it is needed
    assert sample.fill() == list(range(10))
    check(sample)


def test_a_plain_column_makes_nothing_stale(new_sample: NewSample, log: CallLog) -> None:
    sample = filled(new_sample, log)
    sample.table.add_columns({"w": "x + 1"})
    sample.open().create_scalar_index("id", "BTREE")
    check(sample)
    assert sample.fill() == []


def test_results_whose_file_was_cleaned_up_are_computed_again(new_sample: NewSample, log: CallLog) -> None:
    sample = new_sample(20, 2)
    sample.table.add_columns({"y": slow(log, 0.3, batch_size=10)})
    job = sample.table.backfill_async("y", concurrency=1)
    wait_until(lambda: any(name.endswith(".json") for name in sample.checkpoints()), "the file of a fragment")
    job.cancel()
    ended(job)
    committed = sample.state()[0]
    used = {file.path for fragment in sample.open().get_fragments() for file in fragment.metadata.files}
    for path in (sample.folder / "data").iterdir():
        if path.name not in used:
            path.unlink()
    sample.fill()
    assert committed in (0, 10)
    check(sample)


def test_a_restored_version_is_missing_what_it_missed(new_sample: NewSample, log: CallLog) -> None:
    sample = new_sample(30, 3)
    sample.table.add_columns({"y": tenfold(log)})
    empty = sample.open().version
    sample.fill()
    full = sample.open().version
    sample.table.restore(empty)
    assert sample.state() == (0, 0, 0, 30)
    sample.table.restore(full)
    check(sample)
    sample.table.restore(empty)
    sample.table.checkout_latest()
    assert sample.fill() == list(range(30))
    check(sample)


def test_another_function_computes_all_rows(new_sample: NewSample, log: CallLog) -> None:
    sample = filled(new_sample, log)
    sample.open().create_scalar_index("y", "BTREE")
    sample.table.alter_columns({"path": "y", "function": tenfold(log, 20)})
    assert sample.state() == (0, 0, 30, 0)
    assert sample.values() == {key: number * 10 for key, number in sample.numbers().items()}
    assert sample.fill(where="id < 4") == list(range(4))
    assert sample.values() == {key: number * (20 if key < 4 else 10) for key, number in sample.numbers().items()}
    assert sample.state() == (4, 0, 26, 0)
    # By the index, as far as it goes: row 2 had this value before, and row 1 has it now.
    assert sample.open().to_table(filter="y = 2000", columns=["id"])["id"].to_pylist() == [1]
    assert sample.fill() == list(range(4, 30))
    assert sample.values() == {key: number * 20 for key, number in sample.numbers().items()}


def test_modes_choose_rows(new_sample: NewSample, log: CallLog) -> None:
    sample = filled(new_sample, log)
    sample.update("id = 2", 1)
    sample.add(30, 33)
    assert sample.fill(mode="only_failed") == []
    assert sample.fill(mode="only_missing") == [30, 31, 32]
    assert sample.fill(mode="all") == list(range(33))
    check(sample)


def test_all_rows_are_computed_even_those_with_checkpoints(new_sample: NewSample, log: CallLog, tmp_path: Path) -> None:
    cure, path = str(tmp_path / "cure"), log.path

    def multiply(id: int, x: int) -> int:  # noqa: A002
        note(path, id)
        if id == 15 and not os.path.exists(cure):  # noqa: PTH110 (runs elsewhere)
            raise ConnectionError("not yet")
        return x * 10

    sample = new_sample(20)
    sample.table.add_columns({"y": pennon.udf(multiply)})
    for mode, computed in (("default", range(15, 20)), ("all", range(20))):
        Path(cure).unlink(missing_ok=True)
        with pytest.raises(JobFailedError, match="not yet"):
            sample.fill(checkpoint_size=5, mode=mode)
        assert sum(name.endswith(".arrow") for name in sample.checkpoints()) == 3
        Path(cure).touch()
        assert sample.fill(mode=mode) == list(computed)
        check(sample)


def test_where_chooses_rows_and_keeps_the_others(new_sample: NewSample, log: CallLog) -> None:
    sample = new_sample(60, 2)
    sample.table.delete("id % 10 = 5")
    sample.table.add_columns({"y": tenfold(log)})
    assert sample.fill(where="id % 7 = 0") == [number for number in range(60) if number % 7 == 0 and number % 10 != 5]
    assert sample.fill(where="id > 50") == [51, 52, 53, 54, 57, 58, 59]
    expected = {number: number * 1000 if number % 7 == 0 or number > 50 else None for number in sample.numbers()}
    assert sample.values() == expected
    assert len(sample.fill()) == sum(value is None for value in expected.values())
    check(sample)


def test_a_number_of_fragments_bounds_the_work(new_sample: NewSample, log: CallLog) -> None:
    sample = new_sample(30, 3)
    sample.table.add_columns({"y": tenfold(log)})
    assert sample.fill(num_frags=1) == list(range(10))
    assert sample.fill(num_frags=2) == list(range(10, 30))
    check(sample)


def test_an_old_version_names_the_rows(new_sample: NewSample, log: CallLog) -> None:
    sample = new_sample(20, 2)
    sample.table.add_columns({"y": tenfold(log)})
    old = sample.open().version
    sample.add(20, 30)
    assert sample.fill(read_version=old) == list(range(20))
    assert sample.state() == (20, 0, 0, 10)
    assert sample.fill(read_version=old) == []
    assert sample.fill() == list(range(20, 30))
    check(sample)


def test_a_branch_is_filled_for_itself(new_sample: NewSample, log: CallLog) -> None:
    sample = new_sample(20, 2)
    sample.table.add_columns({"y": tenfold(log)})
    sample.fill(where="id < 10")
    sample.table.branches.create("dev")
    assert sample.fill(branch="dev") == list(range(10, 20))
    assert sample.values(branch="dev") == {number: 1000 * number for number in range(20)}
    assert sample.values() == {number: 1000 * number if number < 10 else None for number in range(20)}
    assert sample.state() == (10, 0, 0, 10)
    assert sample.state(branch="dev") == (20, 0, 0, 0)
    assert sample.fill() == list(range(10, 20))
    check(sample)


def test_a_branch_knows_what_was_known_where_it_began(new_sample: NewSample, log: CallLog) -> None:
    sample = filled(new_sample, log)
    sample.table.branches.create("dev")
    sample.lance.on_branch("dev").update({"x": "5"}, "id = 7")
    sample.update("id = 8", 5)
    assert sample.fill() == [8]
    sample.lance.on_branch("dev").optimize.compact_files()
    assert sample.state(branch="dev") == (29, 0, 1, 0)
    assert sample.fill(branch="dev") == [7]
    assert sample.values(branch="dev") == {number: 50 if number == 7 else 1000 * number for number in range(30)}


def test_a_branch_knows_nothing_of_another_that_had_its_name(new_sample: NewSample, log: CallLog) -> None:
    sample = new_sample(10)
    sample.table.add_columns({"y": tenfold(log)})
    sample.table.branches.create("dev")
    assert sample.fill(branch="dev") == list(range(10))
    sample.table.branches.delete("dev")
    sample.update("id = 7", 5)  # at the version at which the other was filled
    sample.table.branches.create("dev")
    assert sample.state(branch="dev") == (0, 0, 0, 10)


def update_in_place(sample: SampleTable, column: str = "x") -> None:
    """Have a client write a column of row 13 in place, which marks no row as changed."""
    sample.lance.update_in_place("id", pa.table({"id": [13], column: pa.array([5], pa.int64())}))
    assert sample.values(column)[13] == 5


def test_a_column_written_in_place_is_known_after_a_compaction(new_sample: NewSample, log: CallLog) -> None:
    """Also if the row moved before, or it was the column itself, and once its versions were cleaned up."""
    sample = filled(new_sample, log)
    update_in_place(sample)
    sample.compact()
    sample.open().cleanup_old_versions(timedelta(0))
    assert sample.state() == (20, 0, 10, 0)
    assert sample.fill() == list(range(10, 20))
    check(sample)

    sample.add(30, 40)
    assert sample.fill() == list(range(30, 40))
    sample.compact()
    update_in_place(sample, "y")
    sample.add(40, 41)
    sample.compact()
    assert 13 in sample.fill()
    check(sample)


def test_a_plain_column_and_a_compaction_make_nothing_stale(new_sample: NewSample, log: CallLog) -> None:
    sample = filled(new_sample, log)
    sample.table.add_columns({"w": "x + 1"})
    sample.compact()
    check(sample)
    assert sample.fill() == []

    sample.table.add_columns({"v": "x + 1"})
    sample.update("id = 3", 7)  # which leaves the fragment
    sample.table.add_columns({"u": "x + 1"})
    sample.compact()
    assert 3 in sample.fill()
    check(sample)


def test_a_plain_column_makes_no_row_stale_after_rows_moved(new_sample: NewSample, log: CallLog) -> None:
    sample = filled(new_sample, log)
    sample.table.delete("id = 2")
    sample.update("id = 3", 7)  # which leaves the fragment
    sample.table.add_columns({"w": "x + 1"})
    sample.update("id = 4", 8)
    assert sample.fill(where="id = 3") == [3]
    sample.compact()
    assert sample.state() == (28, 0, 1, 0)
    assert sample.fill() == [4]
    check(sample)
    sample.update("id = 5", 9)
    assert sample.fill() == [5]
    sample.table.add_columns({"v": "x + 1"})
    sample.compact()
    check(sample)


def test_inputs_that_are_written_in_place_make_values_stale(new_sample: NewSample, log: CallLog) -> None:
    sample = filled(new_sample, log)
    update_in_place(sample)
    assert sample.state() == (20, 0, 10, 0)  # Lance does not say which rows it was
    assert sample.fill() == list(range(10, 20))
    check(sample)


def test_a_column_that_takes_the_name_of_one_that_was_dropped_starts_without_values(
    new_sample: NewSample, log: CallLog
) -> None:
    sample = new_sample(30, fragments=3)
    sample.table.add_columns({"y": tenfold(log)})
    assert sample.fill() == list(range(30))
    sample.table.drop_columns(["y"])
    sample.table.add_columns({"y": tenfold(log)})
    assert sample.state() == (0, 0, 0, 30)
    sample.compact()
    assert sample.state() == (0, 0, 0, 30)
    assert sample.fill() == list(range(30))
    assert sample.values() == {number: 1000 * number for number in range(30)}
