"""Backfills on other Sparks than the worker's own: a standalone cluster of two workers, and a Connect server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import pennon
from pennon.client import JobFailedError
from tests.integration.backfill.conftest import NewSheet
from tests.integration.backfill.sheets import tenfold
from tests.support.server import PennonProcess
from tests.support.spark import QUICK_DRIVER, STANDALONE, ConnectServer, StandaloneCluster
from tests.support.wheels import make_wheel

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.backfill.calls import CallLog


@pytest.fixture(scope="module")
def clustered(
    tmp_path_factory: pytest.TempPathFactory, standalone: StandaloneCluster, connect_server: ConnectServer
) -> Iterator[PennonProcess]:
    """A server whose settings name both clusters; its worker starts no Spark of its own before it is asked to."""
    clusters = {
        "standalone": {"master": standalone.url, "conf": STANDALONE},
        "connect": {"remote": connect_server.url},
    }
    env = {
        "PENNON_WORKERS": "1",
        "PENNON_CLUSTERS": json.dumps(clusters),
        "PENNON_SPARK_CONF": json.dumps(QUICK_DRIVER),
    }
    with PennonProcess(tmp_path_factory.mktemp("clustered"), env=env) as server:
        yield server


@pytest.mark.parametrize("cluster", ["standalone", "connect"])
class TestOtherSparks:
    """The same job, on a cluster that the request names."""

    def test_a_column_is_filled_there(
        self, cluster: str, clustered: PennonProcess, new_sheet: NewSheet, log: CallLog
    ) -> None:
        sheet = new_sheet(60, fragments=3, server=clustered)
        sheet.table.add_columns({"y": tenfold(log)})
        computed = sheet.fill(cluster=cluster)
        assert set(computed) == set(range(60))
        assert len(computed) <= 63  # a Connect server does not tell a task that it only tries the function
        assert sheet.values() == {number: 1000 * number for number in range(60)}
        sheet.add(60, 70)
        assert sheet.fill(cluster=cluster) == list(range(60, 70))

    def test_a_function_that_is_short_of_a_package_fails_before_anything_is_written(
        self, cluster: str, clustered: PennonProcess, new_sheet: NewSheet
    ) -> None:
        sheet = new_sheet(10, server=clustered)

        def reach(x: int) -> int:
            import importlib

            return int(importlib.import_module("absent_package").add(x))

        sheet.table.add_columns({"y": pennon.udf(reach)})
        version = sheet.open().version
        with pytest.raises(JobFailedError, match="absent_package") as failed:
            sheet.fill(cluster=cluster)
        assert failed.value.phase == "preflight"
        assert sheet.open().version == version

    def test_the_packages_of_a_manifest_are_there(
        self, cluster: str, clustered: PennonProcess, new_sheet: NewSheet, tmp_path: Path
    ) -> None:
        sheet = new_sheet(10, server=clustered)
        wheel = make_wheel(tmp_path, "brought_along", "7.0")

        def reach(x: int) -> int:
            import importlib

            return x + int(float(importlib.import_module("brought_along").VERSION))

        function = pennon.udf(manifest={"py_modules": [str(wheel)]}, data_type=pa.int64())(reach)
        sheet.table.add_columns({"y": function})
        sheet.fill(cluster=cluster)
        assert sheet.values() == {number: 100 * number + 7 for number in range(10)}


def test_a_cluster_that_is_not_known_is_refused(clustered: PennonProcess, new_sheet: NewSheet, log: CallLog) -> None:
    sheet = new_sheet(10, server=clustered)
    sheet.table.add_columns({"y": tenfold(log)})
    with pytest.raises(Exception, match="standalone"):
        sheet.table.backfill_async("y", cluster="standalon")
    assert sheet.db.jobs(table=sheet.name) == []
