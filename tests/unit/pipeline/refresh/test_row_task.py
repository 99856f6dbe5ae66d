"""The task of a row-by-row refresh, run in this process: fragments, errors and stops."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

from pennon import ErrorPolicy, chunker, udf
from pennon.pipeline.batch_sizer import BatchLimits
from pennon.pipeline.column_work import ColumnWork, TargetColumn
from pennon.pipeline.refresh.counts import unpack_ids
from pennon.pipeline.refresh.fragments import fragment_metadata
from pennon.pipeline.refresh.row_task import Chunker, Projection, RowRefreshTask, open_signals
from pennon.pipeline.refresh.work_split import FragmentRange, RowIdRuns, WorkItem
from pennon.pipeline.run_signals import RunStoppedError
from pennon.tables.snapshots import Snapshot
from pennon.views.model.definition import CHILD, SOURCE_ROW

if TYPE_CHECKING:
    from pennon.pipeline.refresh.task_result import RefreshTaskResult

ROWS = 20
ITEMS: tuple[WorkItem, ...] = (FragmentRange(0, 0, 10, is_whole=False), RowIdRuns(((10, 10),), known=True))


@udf(error_policy=ErrorPolicy.skip())
def halve(id: int) -> int:  # noqa: A002 (the column)
    if id % 2:
        raise ValueError("odd")
    return id // 2


@chunker
def copies(id: int) -> list[int]:  # noqa: A002 (the column)
    return [id] * (id % 3)


class Scene:
    """A source, an empty view of it, and the task that refreshes the view."""

    def __init__(self, folder: Path, projection: Projection, columns: dict[str, Any], threads: int = 1) -> None:
        source, view = str(folder / "source"), str(folder / "view")
        data = pa.table({"id": pa.array(range(ROWS), pa.int64())})
        read = Snapshot(source, {}, "", lance.write_dataset(data, source, enable_stable_row_ids=True).version)
        self.view = lance.write_dataset(pa.schema(columns).empty_table(), view)
        target = Snapshot(view, {}, "", self.view.version)
        limits = BatchLimits(threads=threads)
        task = RowRefreshTask(read, target, projection, limits, "refresh-1", None, (ITEMS,))
        self.task: RowRefreshTask = pickle.loads(pickle.dumps(task))  # noqa: S301 (as Spark sends it to an executor)
        self.signals = open_signals(target, "refresh-1")

    def run(self) -> RefreshTaskResult:
        """Run the task as an executor does, and return its result."""
        self.signals.start()
        self.task.dry_run()
        answer = json.loads(json.dumps(self.task(0)))
        assert answer["failure"] is None
        result: RefreshTaskResult = answer["result"]
        return result

    def rows(self, result: RefreshTaskResult) -> list[dict[str, Any]]:
        """Commit the fragments of a result, and return the rows of the view."""
        new = lance.LanceOperation.Append([fragment_metadata(fragment) for fragment in result["fragments"]])
        found = lance.LanceDataset.commit(self.view.uri, new, read_version=self.view.version)
        rows: list[dict[str, Any]] = found.to_table().to_pylist()
        return rows


@pytest.mark.parametrize("threads", [1, 3])
def test_functions_are_applied_and_their_errors_listed(tmp_path: Path, threads: int) -> None:
    work = ColumnWork(("id",), (TargetColumn("half", "half", ""),), halve.pack())
    projection = Projection(((SOURCE_ROW, "_rowid"), ("id", "id")), "id != 4", (work,))
    scene = Scene(tmp_path, projection, {SOURCE_ROW: pa.int64(), "id": pa.int64(), "half": pa.int64()}, threads)
    result = scene.run()
    ids = [number for number in range(ROWS) if number != 4]
    halves = [None if number % 2 else number // 2 for number in ids]
    assert [(row["id"], row["half"]) for row in scene.rows(result)] == list(zip(ids, halves, strict=True))
    assert sorted(error["row"] or 0 for error in result["errors"]) == [number for number in ids if number % 2]
    assert {(error["column"], error["error_type"], error["partition"]) for error in result["errors"]} == {
        ("half", "ValueError", None)
    }
    assert unpack_ids(result["known"]).tolist() == list(range(10, ROWS))
    assert (result["counters"]["rows_computed"], result["counters"]["rows_failed"]) == (19, 10)


@pytest.mark.parametrize("threads", [1, 3])
def test_a_chunker_makes_several_rows_of_one(tmp_path: Path, threads: int) -> None:
    projection = Projection(((SOURCE_ROW, "_rowid"),), chunker=Chunker(copies.pack(), ("id",), ("copy",)))
    scene = Scene(tmp_path, projection, {SOURCE_ROW: pa.int64(), CHILD: pa.int32(), "copy": pa.int64()}, threads)
    expected = [(number, child, number) for number in range(ROWS) for child in range(number % 3)]
    assert [tuple(row.values()) for row in scene.rows(scene.run())] == expected


def test_a_task_whose_run_was_stopped_leaves_no_file(tmp_path: Path) -> None:
    scene = Scene(tmp_path, Projection(((SOURCE_ROW, "_rowid"),)), {SOURCE_ROW: pa.int64()})
    with pytest.raises(RunStoppedError):
        scene.task(0)
    assert not list((tmp_path / "view" / "data").glob("refresh-1*"))
