"""Maintenance of views and of their sources: refreshes stay incremental, also when the rewriting was done on Spark."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from pennon.core.job_model import JobKind
from tests.integration.views.refresh.refresh_harness import RefreshHarness


def rows(start: int, stop: int) -> pa.Table:
    return pa.table({"id": pa.array(range(start, stop)), "a": pa.array([i % 7 for i in range(start, stop)])})


def compact(harness: RefreshHarness, name: str) -> dict[str, Any]:
    """Compact a table by a maintenance job."""
    table = harness.table(name)
    job = harness.services.database.write(
        lambda connection: harness.services.queue.submit(
            connection, JobKind.COMPACT, table, {}, target="maintenance", submitted_by="test"
        )
    )
    return harness.run_job(job).result


def test_refreshes_stay_incremental(harness: RefreshHarness) -> None:
    harness.create("kept", rows(0, 20))
    harness.view("kept_view", {"source": "kept", "columns": {"id": "id", "twice": "a * 2"}})
    for start in range(20, 28):
        harness.append("kept", rows(start, start + 1))
        harness.refresh("kept_view")
    assert compact(harness, "kept")["fragments_added"] == 1
    assert compact(harness, "kept_view")["fragments_added"] == 1
    result = harness.refresh("kept_view").result
    assert (result["rows_added"], result["rows_updated"], result["rows_removed"]) == (0, 0, 0)
    harness.append("kept", rows(28, 30))
    harness.change("kept", lambda dataset: dataset.update({"a": "6"}, where="id = 3"))
    harness.change("kept", lambda dataset: dataset.delete("id = 5"))
    result = harness.refresh("kept_view").result
    assert result["mode"] == "incremental"
    assert (result["rows_added"], result["rows_updated"], result["rows_removed"]) == (2, 1, 1)
    expected = [{"id": n, "twice": 12 if n == 3 else n % 7 * 2} for n in range(30) if n != 5]
    assert harness.rows("kept_view") == sorted(expected, key=repr)


def test_much_data_is_rewritten_on_spark(harness: RefreshHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = harness.services.settings.model_copy(update={"maintenance_spark_bytes": 0})
    services = replace(harness.services, settings=settings)
    monkeypatch.setattr(harness.worker, "_services", services)
    harness.create("spread", rows(0, 20))
    for start in range(20, 28):
        harness.append("spread", rows(start, start + 1))
    result = compact(harness, "spread")
    assert (result["fragments_removed"], result["fragments_added"]) == (9, 1)
    assert harness.rows("spread") == sorted(rows(0, 28).to_pylist(), key=repr)
    assert harness.data_files("spread") == harness.named_files("spread")
