"""The split of a refresh: every row goes to one task, and changed rows are read once."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pennon.columns.row_spans import numbers_of
from pennon.pipeline.refresh.work_split import RowIdRuns, changed_items, split_ids, split_work
from pennon.storage.local import LocalFileIO
from pennon.views.refresh.changes import compare


@given(st.sets(st.integers(0, 500)), st.integers(1, 40), st.integers(1, 6))
def test_every_row_goes_to_one_task_in_order(ids: set[int], most: int, tasks: int) -> None:
    items = split_ids(np.array(sorted(ids), dtype=np.int64), most, known=True)
    groups = split_work(items, tasks)
    assert all(item.rows <= most for item in items)
    assert len(groups) <= tasks
    found = [
        number
        for group in groups
        for item in group
        if isinstance(item, RowIdRuns)
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
        if isinstance(item, RowIdRuns):
            rows = new._take_rows(pa.array(numbers_of(item.runs), pa.uint64()), columns=["id"])
        else:
            piece = {} if item.is_whole else {"offset": item.start, "limit": item.rows}
            rows = new.scanner(fragments=[new.get_fragment(item.fragment_id)], **piece).to_table()
        found[item.known] += rows.column("id").to_pylist()
    wanted = new.to_table(filter="id >= 1000").column("id").to_pylist()
    assert sorted(found[True]) == sorted(number for number in wanted if number < 2000)
    assert sorted(found[False]) == sorted(number for number in wanted if number >= 2000)
    assert any(isinstance(item, RowIdRuns) for item in items) == (appends == 50)
