"""Pennon in this process with a worker and no Spark: tests run maintenance jobs step by step, beside other writers."""

from __future__ import annotations

import io
import threading
from typing import Any, cast

import lance
import numpy as np
import pyarrow as pa

from pennon.catalog import tables, transactions
from pennon.catalog.jobs import Job
from pennon.catalog.tables import Table
from pennon.core.job_model import JobKind, MaintenanceResult
from pennon.maintenance.health import TableHealth, measure
from pennon.maintenance.policy import MaintenancePolicy
from pennon.namespace.namespace import PennonNamespace
from pennon.pipeline.worker.loop import Worker
from pennon.pipeline.worker.worker_services import WorkerServices
from pennon.tables.arrow_stream import ArrowSource

DIMENSIONS = 16
#: Small enough that tables of a test have all tiers.
POLICY: dict[str, bool | int | float | str] = {"target_fragment_bytes": 256 * 1024, "max_small_fragments": 4}


def rows(start: int, stop: int, seed: int = 0) -> pa.Table:
    """Return rows with a number, a vector, words and a category; those of one number differ by seed."""
    count = stop - start
    vectors = np.random.default_rng(start + 1_000_003 * seed).random((count, DIMENSIONS), dtype=np.float32)
    return pa.table(
        {
            "id": pa.array(range(start, stop), pa.int64()),
            "v": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), DIMENSIONS),
            "words": [f"w{number % 7} n{number % 31} s{seed}" for number in range(start, stop)],
            "kind": pa.array([(number + seed) % 5 for number in range(start, stop)], pa.int64()),
        }
    )


def source_of(table: pa.Table) -> ArrowSource:
    """Return rows as they come in with a request."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return ArrowSource(io.BytesIO(sink.getvalue().to_pybytes()), 1024 * 1024)


class MaintenanceHarness:
    """Tables and their maintenance."""

    def __init__(self, namespace: PennonNamespace) -> None:
        self.namespace = namespace
        self.services = WorkerServices(**vars(namespace.services), sessions=cast("Any", None))
        self.worker = Worker.__new__(Worker)
        self.worker._services = self.services
        self.worker.stopping = threading.Event()

    # Tables.

    def create(self, name: str, content: pa.Table, *, stable: bool = True) -> None:
        """Create a table as the server does, or without stable row ids as a client of Lance does."""
        if not stable:
            lance.write_dataset(content, namespace_client=self.namespace, table_id=[name], mode="create")
            return
        table = self.namespace.tables.new_tables.plan((name,), None, {})

        def on_commit(connection: Any) -> str:
            tables.insert(connection, table)
            return transactions.insert(connection, "CreateTable", table.identifier, {})

        self.services.writer.create(table, source_of(content), on_commit)

    def append(self, name: str, content: pa.Table, branch: str = "") -> None:
        self.services.writer.append(self.table(name), branch, source_of(content), _record)

    def change(self, name: str, work: Any, branch: str = "") -> Any:
        """Change the newest dataset of a table, as another writer does."""
        return self.services.writer.change(self.table(name), branch, _record, work)[0]

    def delete(self, name: str, where: str) -> None:
        self.change(name, lambda dataset: dataset.delete(where))

    def upsert(self, name: str, content: pa.Table) -> None:
        def work(dataset: Any) -> Any:
            merge = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
            return merge.execute(content)

        self.change(name, work)

    def table(self, name: str, namespace: tuple[str, ...] = ()) -> Table:
        found = self.services.database.read(lambda connection: tables.find(connection, (*namespace, name)))
        assert found is not None
        return found

    def dataset(self, name: str, branch: str = "", version: int | None = None) -> Any:
        return self.services.datasets.at(self.table(name), branch, version)

    def fragments(self, name: str, branch: str = "") -> list[int]:
        """Return the rows of each fragment."""
        return [fragment.count_rows() for fragment in self.dataset(name, branch).get_fragments()]

    def data_files(self, name: str, branch: str = "") -> set[str]:
        """Return the data files in the folder of a table."""
        folder = self.services.storage_root.folder(self.table(name).location)
        home = f"tree/{branch}/" if branch else ""
        return {file.path.rsplit("/", 1)[1] for file in folder.files(f"{home}data")}

    def named_files(self, name: str, branch: str = "") -> set[str]:
        """Return the data files that some version of a table names."""
        newest = self.dataset(name, branch).version
        found = set()
        for version in range(1, newest + 1):
            for fragment in self.dataset(name, branch, version).get_fragments():
                found |= {file.path for file in fragment.metadata.files}
        return found

    # Jobs.

    def submit(
        self,
        name: str,
        kind: JobKind = JobKind.MAINTAIN,
        branch: str = "",
        reasons: list[str] | None = None,
        namespace: tuple[str, ...] = (),
        **policy: Any,
    ) -> Job:
        """Submit a job with the policy of these tests; with reasons, as the trigger does."""
        spec: Any = {"policy": {**POLICY, **policy}, "reasons": ["test"] if reasons is None else reasons}
        table = self.table(name, namespace)
        return self.services.database.write(
            lambda connection: self.services.queue.submit(
                connection, kind, table, spec, branch=branch, target="maintenance", priority=-10, submitted_by="test"
            )
        )

    def run_job(self, job: Job) -> Job:
        """Claim a job and run it here, and return it as it is then."""
        claimed = self.services.queue.claim("harness", self.services.settings.job_lease_seconds)
        assert claimed is not None
        assert claimed.id == job.id
        self.worker.run_job(claimed)
        ended = self.services.queue.find(job.id)
        assert ended is not None
        return ended

    def run(self, name: str, kind: JobKind = JobKind.MAINTAIN, **options: Any) -> MaintenanceResult:
        """Run a job to its end, and return its result."""
        ended = self.run_job(self.submit(name, kind, **options))
        assert ended.state == "done", ended.failure
        result = cast("MaintenanceResult", ended.result)
        assert result["failures"] == {}, result
        return result

    def health(self, name: str, branch: str = "", **policy: Any) -> TableHealth:
        return measure(self.dataset(name, branch), branch, MaintenancePolicy.model_validate({**POLICY, **policy}))


def _record(connection: Any) -> str:
    return transactions.insert(connection, "Change", ("harness",), {})
