"""The tasks of views over a table function and over a Spark SQL statement, run in this process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from pennon import ErrorPolicy, udtf
from pennon.pipeline.batch_sizer import BatchLimits
from pennon.pipeline.refresh import partition_task
from pennon.pipeline.refresh.counts import unpack_ids
from pennon.pipeline.refresh.fragments import fragment_metadata
from pennon.pipeline.refresh.partition_task import PartitionTask
from pennon.pipeline.refresh.row_task import open_signals
from pennon.pipeline.refresh.sql_task import WriteRows
from pennon.tables.snapshots import Snapshot
from pennon.views.model.definition import SOURCE_ROW, Column, Definition, Expansion

if TYPE_CHECKING:
    from pennon.pipeline.refresh.task_result import RefreshTaskResult

ROWS, GROUPS = 30, 3
TOTAL = pa.schema({"group": pa.int64(), "total": pa.int64()})


@udtf(output_schema=TOTAL, error_policy=ErrorPolicy.skip())
def totals(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    found = pa.Table.from_batches(list(batches)).to_pydict()
    yield pa.record_batch({"group": found["group"][:1], "total": [sum(found["id"])]}, schema=TOTAL)
    if found["group"][0] == 2:
        raise ValueError("two is too many")


def new_view(folder: Path, schema: pa.Schema) -> Snapshot:
    view = str(folder / "view")
    return Snapshot(view, {}, "", lance.write_dataset(schema.empty_table(), view).version)


def rows_of(target: Snapshot, result: RefreshTaskResult) -> list[dict[str, Any]]:
    new = lance.LanceOperation.Append([fragment_metadata(fragment) for fragment in result["fragments"]])
    found = lance.LanceDataset.commit(target.location, new, read_version=target.version)
    rows: list[dict[str, Any]] = found.to_table().to_pylist()
    return rows


@pytest.mark.parametrize("buffer_bytes", [64 * 1024 * 1024, 0], ids=["in memory", "in a file"])
def test_a_partition_that_fails_leaves_no_rows_but_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, buffer_bytes: int
) -> None:
    monkeypatch.setattr(partition_task, "_BUFFER_BYTES", buffer_bytes)
    source, target = str(tmp_path / "source"), new_view(tmp_path, TOTAL)
    ids = pa.array(range(ROWS), pa.int64())
    data = pa.table({"id": ids, "group": pa.array([number % GROUPS for number in range(ROWS)], pa.int64())})
    version = lance.write_dataset(data, source, enable_stable_row_ids=True).version
    expansion = Expansion("function", "totals", "1", None, tuple(TOTAL.names), partition_by="group")
    definition = Definition("udtf", "lance", (), (Column("id", "id"), Column("group", "`group`")), expansion=expansion)
    task = PartitionTask(
        source=Snapshot(source, {}, "", version),
        target=target,
        definition=definition,
        function=totals.pack(),
        limits=BatchLimits(),
        run="refresh-1",
        most_rows=None,
        buckets=1,
        groups=(0,),
    )
    open_signals(target, "refresh-1").start()
    task.dry_run()
    answer = json.loads(json.dumps(task.with_groups(0, 1)(0)))
    assert answer["failure"] is None
    result: RefreshTaskResult = answer["result"]
    expected = [{"group": group, "total": sum(range(group, ROWS, GROUPS))} for group in (0, 1)]
    assert sorted(rows_of(target, result), key=lambda row: row["group"]) == expected
    (error,) = result["errors"]
    assert (error["partition"], error["row"], error["error_type"]) == ("2", None, "ValueError")
    assert (result["counters"]["rows_computed"], result["counters"]["rows_failed"]) == (ROWS, ROWS // GROUPS)


def test_the_rows_of_a_statement_are_written_and_known_ones_listed(tmp_path: Path) -> None:
    schema = pa.schema({SOURCE_ROW: pa.int64(), "x": pa.int64()})
    target = new_view(tmp_path, schema)
    open_signals(target, "refresh-1").start()
    write = WriteRows(target, tuple(schema.names), "refresh-1", None, np.array([1, 3, 9], dtype=np.int64))
    batches = [pa.record_batch({SOURCE_ROW: [at, at + 1], "x": [10 * at, 10 * at + 10]}) for at in (0, 2)]
    (answered,) = write(iter(batches))
    answer = json.loads(answered.column("answer")[0].as_py())
    assert (answered.column("task").to_pylist(), answer["failure"]) == ([0], None)
    assert [row["x"] for row in rows_of(target, answer["result"])] == [0, 10, 20, 30]
    assert unpack_ids(answer["result"]["known"]).tolist() == [1, 3]


def test_rows_of_a_statement_that_do_not_fit_fail_the_job(tmp_path: Path) -> None:
    target = new_view(tmp_path, pa.schema({"x": pa.int8()}))
    signals = open_signals(target, "refresh-1")
    signals.start()
    (answered,) = WriteRows(target, ("x",), "refresh-1", None, None)(iter([pa.record_batch({"x": [1000]})]))
    failure = json.loads(answered.column("answer")[0].as_py())["failure"]
    assert failure["type"] == "TableSchemaValidationError"
    assert signals.poll().failure == failure
    assert not list((tmp_path / "view" / "data").glob("refresh-1*"))
