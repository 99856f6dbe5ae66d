"""A fragment that is divided into ranges of rows gets the same column file, states and errors as one that is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from pennon import udf
from pennon.columns.plan import WorkUnit
from pennon.columns.row_spans import NO_SPANS, Spans, count_rows
from pennon.functions import ErrorPolicy, Function
from pennon.pipeline.backfill import fragment
from pennon.pipeline.backfill.checkpoints import Checkpoints, Receipt
from pennon.pipeline.backfill.task import BackfillTask
from pennon.pipeline.batch_sizer import BatchLimits
from pennon.pipeline.column_work import ColumnWork, TargetColumn
from pennon.storage.local import LocalFileIO
from pennon.tables.snapshots import Snapshot

ROWS = 300
TEXT = TargetColumn("text", "text", "")
#: Results are saved after every call.
EAGER = BatchLimits(checkpoint_seconds=0.0)


@udf
def describe(id: int) -> str | None:  # noqa: A002 (the column)
    return None if id % 3 == 0 else f"row {id} " + "x" * (id % 100)


@udf(error_policy=ErrorPolicy.skip())
def refuse_some(id: int) -> str:  # noqa: A002 (the column)
    if id % 50 == 7:
        raise ValueError(f"{id} is too hot")
    return f"row {id}"


@udf(data_type=pa.struct({"text": pa.string(), "square": pa.int64()}))
def both(id: int) -> dict[str, Any]:  # noqa: A002 (the column)
    return {"text": f"row {id}", "square": id * id}


@udf(data_type=pa.large_binary())
def pack(id: int) -> bytes | None:  # noqa: A002 (the column)
    return None if id == 5 else bytes([id % 256]) * (id * 10)


@dataclass(frozen=True)
class Case:
    """A function, its targets, and the rows that are computed."""

    function: Function[..., Any]
    targets: tuple[TargetColumn, ...] = (TEXT,)
    todo: Spans = ((0, ROWS),)
    deleted: str = ""


CASES = {
    "nulls": Case(describe),
    "errors": Case(refuse_some),
    "several outputs": Case(both, (TargetColumn("text", "text", "text"), TargetColumn("square", "square", "square"))),
    "large values": Case(pack, (TargetColumn("packed", "packed", ""),)),
    "a nested target": Case(describe, (TargetColumn("deep.text", "deep", ""),)),
    "some rows": Case(describe, todo=((3, 40), (41, 42), (100, 290))),
    "scattered rows": Case(describe, todo=tuple((row, row + 1) for row in range(1, ROWS, 7))),
    "deleted rows": Case(refuse_some, todo=((0, 50), (60, ROWS)), deleted="id >= 50 and id < 60"),
}


class Scene:
    """A table of one fragment, and the task that fills columns of it."""

    def __init__(self, folder: Path, case: Case) -> None:
        schema = pa.schema(
            {"id": pa.int64(), "text": pa.string(), "square": pa.int64(), "packed": pa.large_binary()}
        ).append(pa.field("deep", pa.struct({"text": pa.string(), "other": pa.int64()})))
        rows = [{"id": row, "text": f"before {row}", "deep": {"other": row}} for row in range(ROWS)]
        self.location = str(folder / "table")
        dataset = lance.write_dataset(
            pa.Table.from_pylist(rows, schema), self.location, enable_stable_row_ids=True, data_storage_version="2.1"
        )
        if case.deleted:
            dataset.delete(case.deleted)
        self.files = LocalFileIO(self.location)
        self.checkpoints = Checkpoints(self.files, "checkpoints")
        count = count_rows(case.todo)
        deletes, keeps = bool(case.deleted), count < ROWS
        self.unit = WorkUnit(0, ROWS, case.todo, count, keeps, deletes, "a" * 40, "b" * 40, 8 * count)
        self.task = BackfillTask(
            Snapshot(self.location, {}, "", dataset.version),
            ColumnWork(("id",), case.targets, case.function.pack()),
            EAGER,
            "checkpoints",
            (self.unit,),
        )
        self.task.signals(self.files).start()

    def run(self, most_tasks: int) -> tuple[Receipt, list[dict[str, Any]]]:
        """Do all work in one task; return the receipt and the rows of the table with its file."""
        assert replace(self.task, most_tasks=most_tasks)(0) == {"result": None, "failure": None}
        receipt = self.checkpoints.receipt(self.unit.input_signature)
        assert receipt is not None
        group = lance.LanceOperation.DataReplacementGroup(0, lance.fragment.DataFile(**receipt["file"]))
        dataset = lance.LanceDataset.commit(
            self.location,
            lance.LanceOperation.DataReplacement([group]),
            read_version=lance.dataset(self.location).version,
        )
        return receipt, dataset.to_table().to_pylist()

    def data_files(self) -> int:
        return len(list(Path(self.location, "data").iterdir()))

    def queue_files(self, kind: str) -> list[str]:
        return sorted(path.name.split(".")[2] for path in Path(self.location, "checkpoints/queue").glob(f"*.{kind}.*"))


@pytest.fixture
def always_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fragment, "_LEAST_SECONDS", 0.0)


@pytest.mark.usefixtures("always_divided")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_divided_fragment_is_the_same_as_a_whole_one(tmp_path: Path, case: Case) -> None:
    whole, divided = Scene(tmp_path / "whole", case), Scene(tmp_path / "divided", case)
    receipt, rows = whole.run(most_tasks=1)
    other, others = divided.run(most_tasks=3)
    assert whole.queue_files("ranges") == []
    assert len(divided.queue_files("done")) >= 3
    assert rows == others
    for name in ("todo", "failed", "errors", "row_ids"):
        assert other[name] == receipt[name], name
    for counters in (receipt["counters"], other["counters"]):
        assert counters["rows_failed"] == len(receipt["errors"])
        assert counters["rows_computed"] == count_rows(case.todo)
    assert divided.data_files() == whole.data_files()  # the unfinished file is gone


@pytest.mark.usefixtures("always_divided")
def test_ranges_of_several_tasks_make_one_file(tmp_path: Path) -> None:
    scene = Scene(tmp_path, Case(describe))
    task = replace(scene.task, most_tasks=2)
    fill, computed = BackfillTask._do, []

    def share(self: BackfillTask, work: Any, *others: Any) -> None:
        computed.append(work.name)
        fill(self, work, *others)
        if work.name == "0-1":  # another task comes, and finds the rest
            assert replace(task, first=1)(0) == {"result": None, "failure": None}

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(BackfillTask, "_do", share)
        _, rows = scene.run(most_tasks=2)
    assert computed[0] == "0"
    assert computed[-1] == "0-file"
    assert len(computed) == len(set(computed))
    assert scene.queue_files("ended") == ["0", "1"]
    assert rows == Scene(tmp_path / "whole", Case(describe)).run(most_tasks=1)[1]


@pytest.mark.usefixtures("always_divided")
@pytest.mark.parametrize("dies_at", ["0-1", "0-file"])
def test_a_range_whose_task_died_is_computed_by_its_next_attempt(
    tmp_path: Path, dies_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path, Case(describe))
    calls = tmp_path / "calls"

    def note(id: int) -> str:  # noqa: A002 (the column)
        with calls.open("a", encoding="ascii") as log:
            log.write(f"{id}\n")
        return f"row {id}"

    work = ColumnWork(("id",), (TEXT,), udf(note).pack())
    task = replace(scene.task, most_tasks=2, work=work)
    fill = BackfillTask._do

    def die(self: BackfillTask, work: Any, *others: Any) -> None:
        if work.name == dies_at:
            raise MemoryError
        fill(self, work, *others)

    with monkeypatch.context() as patched:
        patched.setattr(BackfillTask, "_do", die)
        with pytest.raises(MemoryError):
            task(0)
    assert scene.checkpoints.receipt_names() == set()
    (lost,) = task.queue(scene.files).state().claimed
    assert lost.name == dies_at
    monkeypatch.setattr("pennon.pipeline.function_execution.has_crashed_before", attempts([True, False]))
    assert task(0)["failure"] is None
    assert sorted(map(int, calls.read_text().split())) == list(range(ROWS))
    assert scene.checkpoints.receipt_names() != set()


def attempts(answers: list[bool]) -> Callable[[], bool]:
    """Return a function that says whether the task has crashed before: first for its claims, then for the sandbox."""
    left = iter(answers)
    return lambda: next(left)


def test_a_fast_function_is_not_divided(tmp_path: Path) -> None:
    scene = Scene(tmp_path, Case(describe))
    scene.run(most_tasks=8)
    assert scene.queue_files("ranges") == []
    assert scene.queue_files("done") == ["0"]


@pytest.mark.usefixtures("always_divided")
def test_results_that_are_not_worth_a_checkpoint_are_not_divided(tmp_path: Path) -> None:
    scene = Scene(tmp_path, Case(describe))
    scene.task = replace(scene.task, limits=replace(EAGER, checkpoint_seconds=3600.0))
    scene.run(most_tasks=8)
    assert scene.queue_files("ranges") == []


@pytest.mark.usefixtures("always_divided")
def test_a_failure_in_a_range_names_the_row_of_the_fragment(tmp_path: Path) -> None:
    def refuse(id: int) -> str:  # noqa: A002 (the column)
        if id == 250:
            raise ValueError("no")
        return ""

    scene = Scene(tmp_path, Case(udf(refuse)))
    failure = replace(scene.task, most_tasks=2)(0)["failure"]
    assert failure is not None
    assert "row 250 of fragment 0 (row id 250)" in failure["message"]
    assert json.loads(json.dumps(failure)) == failure


def test_a_unit_within_a_range_has_only_its_rows() -> None:
    unit = WorkUnit(0, 100, ((0, 10), (20, 30), (50, 60)), 30, True, False, "s", "i", 300)
    assert unit.within(5, 55).todo == ((5, 10), (20, 30), (50, 55))
    assert (unit.within(5, 55).count, unit.within(5, 55).bytes) == (20, 200)
    assert unit.within(10, 20).todo == NO_SPANS
