"""Small parts of a refresh: sharing rows out, counting what changed, notices between tasks and driver."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pennon.columns.row_spans import numbers_of
from pennon.pipeline.refresh import run_signals
from pennon.pipeline.refresh.counts import pack_ids, unpack_ids
from pennon.pipeline.refresh.fragments import MisfitError, fit
from pennon.pipeline.refresh.run_signals import Notices, StoppedError
from pennon.pipeline.refresh.work_split import Picked, changed_items, picked, share
from pennon.storage.local import LocalFileIO
from pennon.views.refresh.changes import compare


@given(st.sets(st.integers(0, 500)), st.integers(1, 40), st.integers(1, 6))
def test_every_row_goes_to_one_task_in_order(ids: set[int], most: int, tasks: int) -> None:
    items = picked(np.array(sorted(ids), dtype=np.int64), most, known=True)
    groups = share(items, tasks)
    assert all(item.rows <= most for item in items)
    assert len(groups) <= tasks
    found = [
        number
        for group in groups
        for item in group
        if isinstance(item, Picked)
        for number in numbers_of(item.runs).tolist()
    ]
    assert found == sorted(ids)


@pytest.mark.parametrize("appends", [1, 50])
def test_all_rows_that_changed_are_read_once(tmp_path: Path, appends: int) -> None:
    """Most by their fragments; by their ids if some rows of a fragment are none of them, or it is one of many small."""
    place = str(tmp_path / "table.lance")
    lance.write_dataset(pa.table({"id": range(400)}), place, enable_stable_row_ids=True, max_rows_per_file=100)
    old = lance.dataset(place)
    old.checkout_version(1).update({"id": "id + 1000"}, where="id % 9 = 1")
    for number in range(appends):
        lance.write_dataset(pa.table({"id": range(2000 + 4 * number, 2004 + 4 * number)}), place, mode="append")
    lance.dataset(place).delete("id = 1010 or id = 2001")
    new = lance.dataset(place)
    changes = compare(old, new, ["id"], LocalFileIO(place))
    items = changed_items(new, changes, 30)
    found: dict[bool, list[int]] = {True: [], False: []}
    for item in items:
        assert item.rows <= 30
        if isinstance(item, Picked):
            rows = new._take_rows(pa.array(numbers_of(item.runs), pa.uint64()), columns=["id"])
        else:
            piece = {} if item.whole else {"offset": item.start, "limit": item.rows}
            rows = new.scanner(fragments=[new.get_fragment(item.fragment_id)], **piece).to_table()
        found[item.known] += rows.column("id").to_pylist()
    wanted = new.to_table(filter="id >= 1000").column("id").to_pylist()
    assert sorted(found[True]) == sorted(number for number in wanted if number < 2000)
    assert sorted(found[False]) == sorted(number for number in wanted if number >= 2000)
    assert any(isinstance(item, Picked) for item in items) == (appends == 50)


def test_ids_travel_as_text() -> None:
    parts = [np.array([1, 3, 4], dtype=np.int64), np.array([1, 2], dtype=np.int64)]
    assert unpack_ids(pack_ids(parts)).tolist() == [1, 3, 4, 1, 2]
    assert unpack_ids(pack_ids([])).tolist() == []


def test_notices_tell_progress_failures_and_the_wish_to_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_signals, "_SECONDS", 0)
    folder = LocalFileIO(str(tmp_path))
    driver, others = Notices(folder, "run-1"), Notices(folder, "run-10")
    task = Notices(folder, "run-1")
    driver.begin()
    others.begin()
    task.tell(0, 5)
    task.tell(1, 7)
    others.tell(0, 100)
    assert driver.read() == (12, None)
    task.file_failure(1, {"type": "ValueError", "message": "no"})
    assert driver.read() == (12, {"type": "ValueError", "message": "no"})
    task.check()
    driver.stop()
    with pytest.raises(StoppedError):
        task.tell(0, 6)
    driver.clear()
    with pytest.raises(StoppedError):  # also when it looks late
        task.check()
    assert driver.read() == (0, None)
    assert others.read() == (100, None)
    monkeypatch.setattr(run_signals, "_KEPT_MILLIS", -1000)
    driver.forget_old()
    assert list(folder.files(run_signals.FOLDER)) == []


def test_rows_fit_the_schema_of_the_view_or_are_refused() -> None:
    rows = pa.record_batch({"b": [1.0, 2.0], "a": [1, 2]})
    schema = pa.schema([pa.field("a", pa.int8()), pa.field("b", pa.int64())])
    assert fit(rows, schema).to_pylist() == [{"a": 1, "b": 1}, {"a": 2, "b": 2}]
    with pytest.raises(MisfitError, match="'a' is declared as int8"):
        fit(pa.record_batch({"a": [300], "b": [1]}), schema)
    with pytest.raises(MisfitError, match="no column 'b'"):
        fit(pa.record_batch({"a": [1]}), schema)
    with pytest.raises(MisfitError, match="without nulls"):
        fit(pa.record_batch({"a": pa.array([None], pa.int8())}), pa.schema([pa.field("a", pa.int8(), nullable=False)]))
