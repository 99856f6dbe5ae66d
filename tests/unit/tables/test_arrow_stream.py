"""The batches of a request, and the memory that is reserved for them."""

from __future__ import annotations

import io

import pyarrow as pa
import pytest

from pennon.core.memory_budget import MemoryBudget
from pennon.tables.arrow_stream import ArrowSource
from pennon.tables.message_stream import ArrowLimits

MEGABYTE = 1024**2


def stream(rows: int, value_bytes: int) -> io.BytesIO:
    sink = io.BytesIO()
    batch = pa.record_batch({"v": pa.array([b"\0" * value_bytes] * rows, pa.large_binary())})
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return io.BytesIO(sink.getvalue())


@pytest.mark.parametrize(("rows", "value_bytes", "copies"), [(1, 80 * MEGABYTE, 3), (80, MEGABYTE, 1)])
def test_a_long_value_reserves_memory_for_the_copies_that_lance_makes(rows: int, value_bytes: int, copies: int) -> None:
    budget = MemoryBudget(1024 * MEGABYTE)
    with ArrowSource(stream(rows, value_bytes), 1024, ArrowLimits(budget=budget)) as source:
        held = {budget.used // (80 * MEGABYTE) for _ in source.reader()}
        assert held == {copies}
    assert budget.used == 0
