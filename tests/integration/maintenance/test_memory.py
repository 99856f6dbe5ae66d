"""Tables of large rows and of blobs are maintained with bounded memory, in a process that does nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from pennon.core.job_model import JobKind
from pennon.namespace.namespace import PennonNamespace
from tests.integration.maintenance.maintenance_harness import MaintenanceHarness

MEGABYTE = 1024 * 1024
MAX_PEAK_BYTES = 500 * MEGABYTE
POLICY: dict[str, Any] = {"target_fragment_bytes": 256 * MEGABYTE}
ROOT = Path(__file__).resolve().parents[3]


def large_rows(start: int, stop: int) -> pa.Table:
    values = pa.array([os.urandom(MEGABYTE) for _ in range(start, stop)], pa.large_binary())
    return pa.table({"id": pa.array(range(start, stop)), "x": values})


def blob_rows(start: int, stop: int) -> pa.Table:
    blobs: Any = lance.blob_array([os.urandom(MEGABYTE) for _ in range(start, stop)])
    return pa.table({"id": pa.array(range(start, stop)), "x": blobs})


@pytest.mark.parametrize("kind", ["rows", "blobs"])
def test_rows_of_a_megabyte_are_maintained_in_bounded_memory(tmp_path: Path, kind: str) -> None:
    with closing(PennonNamespace(directory=str(tmp_path))) as namespace:
        harness = MaintenanceHarness(namespace)
        if kind == "rows":
            harness.create("large", large_rows(0, 160))
            for start in range(160, 200, 4):
                harness.append("large", large_rows(start, start + 4))
        else:
            options: dict[str, Any] = {"data_storage_version": "2.2", "enable_stable_row_ids": True}
            lance.write_dataset(
                blob_rows(0, 20), namespace_client=namespace, table_id=["large"], mode="create", **options
            )
            for start in range(20, 200, 20):
                harness.change("large", lambda dataset, n=start: dataset.insert(blob_rows(n, n + 20)))
        harness.delete("large", "id % 3 = 0")
        harness.submit("large", JobKind.COMPACT, reasons=[], **POLICY)
    maintained = subprocess.run(
        [sys.executable, "-m", "tests.integration.maintenance.peak_memory", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
        check=True,
    )
    rewritten, peak = map(int, maintained.stdout.split())
    assert rewritten > 190 * MEGABYTE
    assert peak < MAX_PEAK_BYTES, f"{peak / MEGABYTE:.0f} MB"
