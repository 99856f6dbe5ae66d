"""What checkpoints kept of a fragment is taken over, a part at a time, and only the rest is computed."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING

import lance
import numpy as np
import pyarrow as pa

from pennon.columns.plan import WorkUnit
from pennon.pipeline.backfill.checkpoints import Checkpoints
from pennon.pipeline.backfill.fragment import FragmentBackfill
from pennon.pipeline.backfill.results import ComputedRows, Results
from pennon.pipeline.batch_sizer import BatchLimits, BatchSizer
from pennon.pipeline.column_work import TargetColumn
from pennon.storage.local import LocalFileIO

if TYPE_CHECKING:
    from pennon.pipeline.function_execution import Errors

ROWS = 40
SIGNATURE = "f" * 40
MEGABYTE = 1024 * 1024


class Resumed:
    """A fragment whose function writes down what it is called for."""

    def __init__(self, folder: Path) -> None:
        data = pa.table({"id": pa.array(range(ROWS), pa.int64()), "y": pa.nulls(ROWS, pa.large_binary())})
        self.dataset = lance.write_dataset(data, str(folder / "table"))
        self.checkpoints = Checkpoints(LocalFileIO(str(folder)), "checkpoints")
        self.computed: list[int] = []

    def compute(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Errors]:
        ids = batch.column(0).to_pylist()
        self.computed += ids
        return values(ids), []

    def keep(self, *rows: int, errors: Errors | None = None, text: str = "kept") -> None:
        """Keep the results of some rows."""
        found = ComputedRows(np.array(rows), values(list(rows), text), errors or [])
        self.checkpoints.save(SIGNATURE, found.to_checkpoint(), len(found.errors))

    def begin(self) -> tuple[FragmentBackfill, Results]:
        """Begin to fill the fragment."""
        unit = WorkUnit(0, ROWS, ((0, ROWS),), ROWS, False, False, SIGNATURE, SIGNATURE, 8 * ROWS)
        target, limits = TargetColumn("y", "y", ""), BatchLimits()
        batch_sizer = BatchSizer(limits, 1, 8)
        fragment = FragmentBackfill(
            self.dataset, unit, ["id"], [target], limits, self.checkpoints, self.compute, batch_sizer
        )
        return fragment, Results(fragment)


def values(rows: list[int], text: str = "new") -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"out0": pa.array([f"{text} {row}".encode() for row in rows], pa.large_binary())})


def test_what_was_kept_is_not_computed_again(tmp_path: Path) -> None:
    resumed = Resumed(tmp_path)
    resumed.keep(3, 5, 7)
    resumed.keep(4, 6, errors=[(1, "ValueError", "six", 1)])  # lies between the rows of the other part
    resumed.keep(6, 7, 8, text="again")  # by a task that was given up, and did not know it
    resumed.keep(30, 31)
    (torn,) = (part.path for part in resumed.checkpoints.parts() if part.start == 30)
    (tmp_path / torn).write_bytes(b"ARROW1")
    fragment, results = resumed.begin()
    found = [value for block in fragment._column_batches(results) for value in block["y"].to_pylist()]
    kept = {3: b"kept 3", 4: b"kept 4", 5: b"kept 5", 6: b"kept 6", 7: b"kept 7", 8: b"again 8"}
    assert found == [kept.get(row, f"new {row}".encode()) for row in range(ROWS)]
    assert resumed.computed == [row for row in range(ROWS) if row not in kept]
    assert (results.errors, np.flatnonzero(results.failed).tolist()) == ([(6, "ValueError", "six", 1)], [6])


def test_only_a_part_at_a_time_is_held(tmp_path: Path) -> None:
    resumed = Resumed(tmp_path)
    for row in range(ROWS):
        resumed.keep(row, text="x" * MEGABYTE)
    tracemalloc.start()
    try:
        fragment, results = resumed.begin()
        rows = sum(block.num_rows for block in fragment._column_batches(results))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (rows, resumed.computed) == (ROWS, [])
    assert peak < ROWS * MEGABYTE / 4
