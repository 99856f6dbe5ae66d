"""Small parts of a refresh: sharing rows out, counting what changed, notices between tasks and driver."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pennon.lake.local import LocalFolder
from pennon.lake.spans import numbers_of
from pennon.pipeline import notices
from pennon.pipeline.computation import picked, share
from pennon.pipeline.counting import pack_ids, unpack_ids
from pennon.pipeline.derivation import Picked
from pennon.pipeline.fragments import MisfitError, fit
from pennon.pipeline.notices import Notices, StoppedError


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


def test_ids_travel_as_text() -> None:
    parts = [np.array([1, 3, 4], dtype=np.int64), np.array([1, 2], dtype=np.int64)]
    assert unpack_ids(pack_ids(parts)).tolist() == [1, 3, 4, 1, 2]
    assert unpack_ids(pack_ids([])).tolist() == []


def test_notices_tell_progress_failures_and_the_wish_to_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "_SECONDS", 0)
    folder = LocalFolder(str(tmp_path))
    driver, others = Notices(folder, "run-1"), Notices(folder, "run-10")
    task = Notices(folder, "run-1")
    task.tell(0, 5)
    task.tell(1, 7)
    others.tell(0, 100)
    assert driver.read() == (12, None)
    task.file_failure(1, {"type": "ValueError", "message": "no"})
    assert driver.read() == (12, {"type": "ValueError", "message": "no"})
    driver.stop()
    with pytest.raises(StoppedError):
        task.tell(0, 6)
    driver.clear()
    with pytest.raises(StoppedError):  # also when it looks late
        task.tell(0, 6)
    assert driver.read() == (0, None)
    assert others.read() == (100, None)
    monkeypatch.setattr(notices, "_KEPT_MILLIS", -1000)
    driver.forget_old()
    assert list(folder.files(notices.FOLDER)) == []


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
