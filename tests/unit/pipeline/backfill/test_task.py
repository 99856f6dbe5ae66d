"""The task of a backfill, run in this process: files, receipts, failures and stops."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from pennon import udf
from pennon.columns.plan import WorkUnit
from pennon.pipeline.backfill.checkpoints import Checkpoints
from pennon.pipeline.backfill.task import BackfillTask, is_receipt_for
from pennon.pipeline.batch_sizer import BatchLimits
from pennon.pipeline.column_work import ColumnWork, TargetColumn
from pennon.pipeline.run_signals import RunStoppedError
from pennon.storage.local import LocalFileIO
from pennon.tables.snapshots import Snapshot

ROWS = 20


@udf
def double(id: int) -> int:  # noqa: A002 (the column)
    return 2 * id


@udf
def refuse(id: int) -> int:  # noqa: A002 (the column)
    raise ValueError(f"{id} is too hot")


class Scene:
    """A table of one fragment, and the task that fills a column of it."""

    def __init__(self, folder: Path, function: bytes) -> None:
        data = pa.table({"id": pa.array(range(ROWS), pa.int64()), "y": pa.nulls(ROWS, pa.int64())})
        location = str(folder / "table")
        self.version = lance.write_dataset(data, location).version
        self.files = LocalFileIO(location)
        self.unit = WorkUnit(0, ROWS, ((0, ROWS),), ROWS, False, False, "a" * 40, "b" * 40, 8 * ROWS)
        work = ColumnWork(("id",), (TargetColumn("y", "y", ""),), function)
        source = Snapshot(location, {}, "", self.version)
        task = BackfillTask(source, work, BatchLimits(), "checkpoints", (self.unit,))
        self.task: BackfillTask = pickle.loads(pickle.dumps(task))  # noqa: S301 (as Spark sends it to an executor)
        self.signals = self.task.signals(self.files)
        self.checkpoints = Checkpoints(self.files, "checkpoints")


def test_a_task_fills_its_fragments_and_leaves_receipts(tmp_path: Path) -> None:
    scene = Scene(tmp_path, double.pack())
    scene.signals.start()
    scene.task.dry_run()
    answer = scene.task(0)
    assert json.loads(json.dumps(answer)) == {"result": None, "failure": None}
    receipt = scene.checkpoints.receipt(scene.unit.input_signature)
    assert receipt is not None
    assert is_receipt_for(receipt, scene.unit)
    assert (receipt["counters"]["rows_computed"], receipt["failed"], receipt["errors"]) == (ROWS, [], [])
    fields = lance.LanceOperation
    group = fields.DataReplacementGroup(0, lance.fragment.DataFile(**receipt["file"]))
    done = lance.LanceDataset.commit(
        str(tmp_path / "table"), fields.DataReplacement([group]), read_version=scene.version
    )
    assert done.to_table().column("y").to_pylist() == [2 * row for row in range(ROWS)]


def test_a_failure_of_the_function_is_answered_and_signalled(tmp_path: Path) -> None:
    scene = Scene(tmp_path, refuse.pack())
    scene.signals.start()
    failure = scene.task(0)["failure"]
    assert failure is not None
    assert failure["type"] == "ValueError"
    assert "row 0 of fragment 0" in failure["message"]
    assert scene.signals.poll().failure == failure
    assert scene.checkpoints.receipt_names() == set()


def test_a_task_whose_run_was_stopped_computes_nothing(tmp_path: Path) -> None:
    scene = Scene(tmp_path, double.pack())
    with pytest.raises(RunStoppedError):
        scene.task(0)
    assert scene.checkpoints.receipt_names() == set()
