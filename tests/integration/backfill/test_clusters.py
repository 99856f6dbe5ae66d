"""Jobs on other Sparks than the worker's own: a standalone cluster of two workers, and a Connect server."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import pennon
from pennon.client import JobFailedError
from tests.clients.lakes import ClientTable
from tests.integration.backfill.calls import CallLog, note
from tests.integration.backfill.conftest import NewSample
from tests.integration.backfill.sample_tables import SampleTable, ended, tenfold
from tests.support.server import PennonProcess
from tests.support.spark import QUICK_DRIVER, SPECULATING, STANDALONE, WITH_GPU, ConnectServer, StandaloneCluster
from tests.support.waiting import wait_until
from tests.support.wheels import make_wheel

if TYPE_CHECKING:
    from pennon.client import View


@pytest.fixture(scope="module")
def clustered(
    tmp_path_factory: pytest.TempPathFactory,
    standalone: StandaloneCluster,
    connect_server: ConnectServer,
    silence: int,
) -> Iterator[PennonProcess]:
    """A server whose settings name both clusters; its worker starts no Spark of its own before it is asked to."""
    clusters = {
        "standalone": {"master": standalone.url, "conf": STANDALONE},
        "connect": {"remote": connect_server.url},
        "gpu": {"master": standalone.url, "conf": STANDALONE | WITH_GPU},
        "speculating": {"master": standalone.url, "conf": STANDALONE | SPECULATING},
        "mute": {"master": f"spark://127.0.0.1:{silence}", "conf": QUICK_DRIVER},
        "far and mute": {"remote": f"sc://127.0.0.1:{silence}"},
    }
    env = {
        "PENNON_WORKERS": "1",
        "PENNON_CLUSTERS": json.dumps(clusters),
        "PENNON_SPARK_CONF": json.dumps(QUICK_DRIVER),
    }
    with PennonProcess(tmp_path_factory.mktemp("clustered"), env=env) as server:
        yield server


def views_of(sample: SampleTable, wheel: Path) -> dict[str, View]:
    """Make views of every kind over a table, all empty; the chunker needs a package."""

    @pennon.chunker(manifest={"py_modules": [str(wheel)]})
    def part(x: int) -> Iterator[int]:
        import importlib

        first = int(float(importlib.import_module("brought_in").VERSION))
        yield from (first, first + 1)

    @pennon.udtf(output_schema=pa.schema({"parity": pa.int64(), "total": pa.int64()}))
    def totals(batches: Iterator[pa.RecordBatch]) -> dict[str, list[int]]:
        rows = pa.Table.from_batches(batches).to_pylist()
        return {"parity": [rows[0]["parity"]], "total": [sum(row["x"] for row in rows)]}

    @pennon.udf
    def tenfold(x: int) -> int:
        return 10 * x

    db, name = sample.db, sample.name
    empty: dict[str, Any] = {"with_no_data": True}
    halves = pennon.query(name).select({"parity": "id % 2", "x": "x"})
    joined = f"SELECT count(*) AS rows, a.id % 2 AS parity FROM {name} a JOIN {name} b ON a.id = b.id GROUP BY a.id % 2"
    return {
        "udf": db.create_materialized_view(f"{name}_udf", name, select={"id": "id", "y": tenfold}, **empty),
        "chunker": db.create_chunk_view(f"{name}_parts", name, part, columns=["id"], **empty),
        "udtf": db.create_udtf_view(f"{name}_totals", halves, totals, partition_by="parity", **empty),
        "group": db.create_materialized_view(f"{name}_group", sql=joined, **empty),
        "spark": db.create_materialized_view(f"{name}_spark", sql=f"SELECT id, hex(x) AS hex FROM {name}", **empty),
    }


def rows_of(view: View) -> list[tuple[Any, ...]]:
    """Return the rows of a view, in a steady order."""
    found = view.search().limit(1000).to_list()
    return sorted(tuple(value for name, value in row.items() if not name.startswith("__")) for row in found)


def resources(x: int) -> Iterator[str]:
    """Tell what Spark keeps for the task that runs this."""
    from pyspark import TaskContext

    context: Any = TaskContext.get()
    gpus = [f" and the GPU {address}" for each in context.resources().values() for address in each.addresses]
    yield f"{context.cpus()} cores{''.join(gpus)}"


@pytest.mark.parametrize("cluster", ["standalone", "connect"])
class TestOtherSparks:
    """The same job, on a cluster that the request names."""

    def test_a_column_is_filled_there(
        self, cluster: str, clustered: PennonProcess, new_sample: NewSample, log: CallLog
    ) -> None:
        sample = new_sample(60, fragments=3, server=clustered)
        sample.table.add_columns({"y": tenfold(log)})
        computed = sample.fill(cluster=cluster)
        assert set(computed) == set(range(60))
        assert len(computed) <= 63  # a Connect server does not tell a task that it only tries the function
        assert sample.values() == {number: 1000 * number for number in range(60)}
        sample.add(60, 70)
        assert sample.fill(cluster=cluster) == list(range(60, 70))

    def test_a_function_that_is_short_of_a_package_fails_before_anything_is_written(
        self, cluster: str, clustered: PennonProcess, new_sample: NewSample
    ) -> None:
        sample = new_sample(10, server=clustered)

        def reach(x: int) -> int:
            import importlib

            return int(importlib.import_module("absent_package").add(x))

        sample.table.add_columns({"y": pennon.udf(reach)})
        version = sample.open().version
        with pytest.raises(JobFailedError, match="absent_package") as failed:
            sample.fill(cluster=cluster)
        assert failed.value.phase == "preflight"
        assert sample.open().version == version

    def test_the_packages_of_a_manifest_are_there(
        self, cluster: str, clustered: PennonProcess, new_sample: NewSample, tmp_path: Path
    ) -> None:
        sample = new_sample(10, server=clustered)
        wheel = make_wheel(tmp_path, "brought_along", "7.0")

        def reach(x: int) -> int:
            import importlib

            return x + int(float(importlib.import_module("brought_along").VERSION))

        function = pennon.udf(manifest={"py_modules": [str(wheel)]}, data_type=pa.int64())(reach)
        sample.table.add_columns({"y": function})
        sample.fill(cluster=cluster)
        assert sample.values() == {number: 100 * number + 7 for number in range(10)}

    def test_views_of_every_kind_follow_their_source_there(
        self, cluster: str, clustered: PennonProcess, new_sample: NewSample, tmp_path: Path
    ) -> None:
        sample = new_sample(30, fragments=3, server=clustered)
        views = views_of(sample, make_wheel(tmp_path, "brought_in", "7.0"))

        def refresh() -> dict[str, str]:
            jobs = {kind: view.refresh(cluster=cluster, progress=False) for kind, view in views.items()}
            return {kind: (job.result or {})["mode"] for kind, job in jobs.items()}

        def check(ids: list[int]) -> None:
            groups = {parity: [100 * number for number in ids if number % 2 == parity] for parity in (0, 1)}
            assert rows_of(views["udf"]) == sorted((number, 1000 * number) for number in ids)
            assert rows_of(views["chunker"]) == sorted((number, part) for number in ids for part in (7, 8))
            assert rows_of(views["udtf"]) == sorted((parity, sum(xs)) for parity, xs in groups.items())
            assert rows_of(views["group"]) == sorted((len(xs), parity) for parity, xs in groups.items())
            assert rows_of(views["spark"]) == sorted((number, f"{100 * number:x}".upper()) for number in ids)

        assert set(refresh().values()) == {"rebuild"}
        check(list(range(30)))
        sample.add(30, 33)
        sample.table.delete("id = 4")
        row_by_row = dict.fromkeys(("udf", "chunker", "spark"), "incremental")
        assert refresh() == row_by_row | {"udtf": "rebuild", "group": "rebuild"}
        check([number for number in range(33) if number != 4])


class TestTaskResources:
    """What a function asks for is kept for each of its tasks, or the job says why not."""

    @pytest.mark.parametrize(
        ("asked", "given"),
        [
            ({"num_cpus": 2}, "2 cores"),
            ({"num_gpus": 1}, "1 cores and the GPU 7"),
            ({"memory": 200 * 1024 * 1024}, "2 cores"),  # more than half of what Python has on the executor
        ],
    )
    def test_a_cluster_gives_them(
        self, clustered: PennonProcess, new_sample: NewSample, asked: dict[str, Any], given: str
    ) -> None:
        sample = new_sample(4, server=clustered)
        view = sample.db.create_chunk_view(
            f"{sample.name}_given", sample.name, pennon.chunker(**asked)(resources), columns=[], with_no_data=True
        )
        view.refresh(cluster="gpu", progress=False)
        assert rows_of(view) == [(given,)] * 4

    def test_a_backfill_is_given_them_too(self, clustered: PennonProcess, new_sample: NewSample) -> None:
        sample = new_sample(4, server=clustered)

        def cores(x: int) -> str:
            return f"{x} {next(resources(x))}"

        sample.table.add_columns({"y": pennon.udf(num_cpus=2)(cores)})
        sample.fill(cluster="gpu")
        assert set(sample.values().values()) == {f"{100 * number} 2 cores" for number in range(4)}

    @pytest.mark.parametrize(
        ("cluster", "reason"),
        [
            ("default", "on a local master, spark.executor.resource.gpu.amount"),
            ("standalone", "No executor resource configs were specified"),
            ("connect", "TaskResourceProfiles are only supported"),
        ],
    )
    def test_a_cluster_without_them_says_so(
        self, clustered: PennonProcess, new_sample: NewSample, cluster: str, reason: str
    ) -> None:
        sample = new_sample(4, server=clustered)
        view = sample.db.create_chunk_view(
            f"{sample.name}_given", sample.name, pennon.chunker(num_gpus=1)(resources), columns=[], with_no_data=True
        )
        with pytest.raises(JobFailedError, match=f"asks for num_gpus 1, which the cluster {cluster!r} .*{reason}"):
            view.refresh(cluster=cluster, progress=False)


def test_what_spark_tries_twice_at_once_is_there_once(
    clustered: PennonProcess, new_sample: NewSample, log: CallLog
) -> None:
    def wait_for_the_other(id: int) -> int:  # noqa: A002
        note(log.path, id)
        until = time.monotonic() + 120
        while id == 0 and log.counts()[0] % 2:  # none is counted while the function is only tried
            assert time.monotonic() < until, "there is no second attempt"
            time.sleep(0.02)
        return 10 * id

    @pennon.chunker
    def part(id: int) -> Iterator[int]:  # noqa: A002
        yield wait_for_the_other(id)

    sample = new_sample(60, fragments=6, server=clustered)
    view = sample.db.create_chunk_view(f"{sample.name}_parts", sample.name, part, columns=["id"], with_no_data=True)
    view.refresh(cluster="speculating", progress=False)
    assert log.counts()[0] == 2
    assert rows_of(view) == [(number, 10 * number) for number in range(60)]
    stored = ClientTable(sample.lance.lake, sample.lance.client, view.name)
    named = {file.path for fragment in stored.open().get_fragments() for file in fragment.metadata.files}
    files = Path(stored.location, "data")
    # Where Spark kills a Python worker, Lance leaves a temporary file.
    wait_until(lambda: {file.name for file in files.glob("*.lance")} == named, "what nobody needs is gone")
    sample.table.add_columns({"y": pennon.udf(wait_for_the_other)})
    sample.fill(cluster="speculating")
    assert log.counts()[0] == 4
    assert sample.values() == {number: 10 * number for number in range(60)}


@pytest.mark.parametrize("cluster", ["mute", "far and mute"])
def test_a_job_is_cancelled_while_its_cluster_does_not_answer(
    clustered: PennonProcess, new_sample: NewSample, log: CallLog, cluster: str
) -> None:
    sample = new_sample(10, server=clustered)
    sample.table.add_columns({"y": tenfold(log)})
    job = sample.table.backfill_async("y", cluster=cluster)
    wait_until(lambda: "waiting" in job.events()["kind"].to_pylist(), "the job says what it waits for")
    assert job.cancel() == "cancelling"
    assert ended(job).state == "cancelled"


def test_an_image_that_the_cluster_ignores_is_reported(
    clustered: PennonProcess, new_sample: NewSample, log: CallLog
) -> None:
    sample = new_sample(10, server=clustered)
    sample.table.add_columns({"y": tenfold(log, image="registry/tea:1")})
    job = sample.table.backfill("y", cluster="connect", progress=False)
    (message,) = (event["data"] for event in job.events().to_pylist() if event["kind"] == "image_unused")
    assert "registry/tea:1" in message


def test_a_cluster_that_is_not_known_is_refused(clustered: PennonProcess, new_sample: NewSample, log: CallLog) -> None:
    sample = new_sample(10, server=clustered)
    sample.table.add_columns({"y": tenfold(log)})
    with pytest.raises(Exception, match="standalone"):
        sample.table.backfill_async("y", cluster="standalon")
    assert sample.db.jobs(table=sample.name) == []
