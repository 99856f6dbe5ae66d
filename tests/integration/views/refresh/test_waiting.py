"""A refresh whose Spark does not answer: it says that it waits, and then that it was in vain."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from pennon.catalog import job_events
from pennon.namespace.namespace import PennonNamespace
from pennon.pipeline.cluster.session import Sessions
from tests.integration.views.refresh.refresh_harness import open_lab

if TYPE_CHECKING:
    from pathlib import Path


def test_a_job_that_waits_for_a_cluster_says_so(tmp_path: Path, silence: int) -> None:
    clusters = {"gone": {"remote": f"sc://127.0.0.1:{silence}"}}
    namespace = PennonNamespace(directory=str(tmp_path), clusters=clusters, spark_start_timeout_seconds=4)
    harness = open_lab(namespace, Sessions(namespace.services.settings))
    harness.create("t", pa.table({"a": [1]}))
    harness.view("v", {"source": "t"})
    ended = harness.refresh("v", cluster="gone")
    assert (ended.failure["type"], ended.failure["retryable"]) == ("ClusterUnavailableError", True)
    events = harness.services.database.read(lambda connection: job_events.after(connection, ended.job.id, 0, 100))
    waiting_events = [event.data for event in events if event.kind == "waiting"]
    assert waiting_events == [{"cluster": "gone", "reason": "it does not answer yet"}]
    namespace.close()
