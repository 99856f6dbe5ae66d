"""Rows of many megabytes: neither the tasks nor the worker hold more than a few of them at a time."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import pennon
from tests.integration.backfill.sample_tables import new_name

if TYPE_CHECKING:
    from tests.integration.backfill.conftest import NewSample
    from tests.support.server import PennonProcess

MEGABYTE = 1024 * 1024
ROW_BYTES = 6 * MEGABYTE
ROWS = 150


def peak_of_worker(server: PennonProcess) -> int:
    """Return the most memory that the worker of a server has ever had, in bytes."""
    supervisor = server._running().pid
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            lines = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
            command = (status.parent / "cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
        if int(lines["PPid"]) == supervisor and b"pennon.pipeline.worker.process" in command:
            return int(lines["VmHWM"].split()[0]) * 1024
    raise AssertionError("the server has no worker")


@pytest.fixture(scope="module")
def large_rows(spark_server: PennonProcess) -> str:
    """A table with more bytes than any of its readers may hold; they do not compress."""
    db, name = pennon.connect(spark_server.url), new_name()
    for start in range(0, ROWS, 10):
        blobs = [os.urandom(ROW_BYTES) for _ in range(10)]
        table = pa.table({"id": pa.array(range(start, start + 10)), "blob": pa.array(blobs, pa.large_binary())})
        if start:
            db.open_table(name).add(table)
        else:
            db.create_table(name, table)
    return name


def test_a_job_reports_the_memory_of_its_function(new_sample: NewSample) -> None:
    def weigh(x: int) -> int:
        return len(bytes([x % 256]) * (256 * MEGABYTE))

    sample = new_sample(2)
    sample.table.add_columns({"heavy": pennon.udf(weigh), "light": pennon.computed("x + 1")})
    heavy, light = (sample.table.backfill(column, progress=False) for column in ("heavy", "light"))
    assert heavy.counters["peak_memory_bytes"] > 256 * MEGABYTE
    assert 0 < light.counters["peak_memory_bytes"] < heavy.counters["peak_memory_bytes"] - 128 * MEGABYTE


def test_wide_inputs_are_read_a_few_at_a_time(spark_server: PennonProcess, large_rows: str) -> None:
    table = pennon.connect(spark_server.url).open_table(large_rows)

    def measure(blob: bytes) -> int:
        return len(blob)

    table.add_columns({"size": pennon.udf(measure)})
    before = peak_of_worker(spark_server)
    job = table.backfill("size", progress=False)
    assert table.column_state("size").computed == ROWS
    assert job.counters["bytes_read"] >= ROWS * ROW_BYTES
    assert job.counters["peak_memory_bytes"] < 700 * MEGABYTE
    assert peak_of_worker(spark_server) - before < 100 * MEGABYTE


def test_wide_outputs_are_written_a_few_at_a_time(spark_server: PennonProcess, large_rows: str) -> None:
    table = pennon.connect(spark_server.url).open_table(large_rows)
    size = ROW_BYTES

    def paint(id: int) -> bytes:  # noqa: A002
        import os

        return os.urandom(size)

    table.add_columns({"picture": pennon.udf(data_type=pa.large_binary())(paint)})
    before = peak_of_worker(spark_server)
    job = table.backfill("picture", progress=False)
    assert table.column_state("picture").computed == ROWS
    assert job.counters["peak_memory_bytes"] < 700 * MEGABYTE
    assert peak_of_worker(spark_server) - before < 100 * MEGABYTE
