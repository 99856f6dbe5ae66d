"""Processes that append to one table at the same time: every row arrives once, and nobody sees an error."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tests.clients.lakes import ClientTable, Lake

if TYPE_CHECKING:
    from tests.conftest import StartPennon

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 1200.0


def append_from(lake: Lake, processes: int, times: int) -> None:
    """Let processes append together, then insist on every row, version and file."""
    table = ClientTable(lake, lake.connect(), "appended")
    table.write(pa.table({"id": pa.array([], pa.int64())}), "create")
    with ExitStack() as stack:
        running = [stack.enter_context(start(lake, number * times, times)) for number in range(processes)]
        for process in running:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in running:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        errors = [process.communicate(timeout=SECONDS)[1] for process in running]
        assert [process.returncode for process in running] == [0] * processes, "\n".join(errors)
    table.check(version=1 + processes * times, ids=range(processes * times))


def start(lake: Lake, first: int, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.chaos.appender", lake.url, "appended", str(first), str(count)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_some_processes_append_to_one_table(start_pennon: StartPennon) -> None:
    append_from(Lake(start_pennon("--processes", "2")), processes=6, times=5)


def test_some_processes_append_to_one_table_on_object_storage(s3_lake: Lake) -> None:
    append_from(s3_lake, processes=4, times=4)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_many_processes_append_to_one_table(start_pennon: StartPennon) -> None:
    append_from(Lake(start_pennon("--processes", "2")), processes=16, times=20)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_many_processes_append_to_one_table_on_object_storage(s3_lake: Lake) -> None:
    # Fewer: this S3 carries out one request at a time, and a client gives up after half a minute of conflicts.
    append_from(s3_lake, processes=6, times=10)
