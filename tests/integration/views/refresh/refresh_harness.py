"""Pennon in this process with a worker and a Spark of its own: tests see every step between a plan and its commit."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from lance_namespace_urllib3_client.models import MaterializedViewUdtfEntry

from pennon.catalog import tables, transactions, views
from pennon.catalog.jobs import Job
from pennon.catalog.tables import Table
from pennon.catalog.views import View
from pennon.core.job_model import TERMINAL, JobKind
from pennon.functions.decorators.udf import Function
from pennon.namespace.namespace import PennonNamespace
from pennon.pipeline.worker.loop import Worker
from pennon.pipeline.worker.worker_services import WorkerServices
from pennon.tables.arrow_stream import ArrowSource
from pennon.views.compilation import OpenedTable, compile_query
from pennon.views.function_views import compile_function_view
from pennon.views.model.definition import Definition, Kind
from pennon.views.model.query import StructuredQuery, TableUse
from pennon.views.model.schemas import HIDDEN
from pennon.views.query_parser import parse_request

_TAKEOVER_SECONDS = 60.0


def source_of(rows: pa.Table) -> ArrowSource:
    """Return rows as they come in with a request."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return ArrowSource(io.BytesIO(sink.getvalue().to_pybytes()), 1024 * 1024)


@dataclass
class Outcome:
    """How a job ended."""

    job: Job

    @property
    def result(self) -> dict[str, Any]:
        assert self.job.state == "done", self.job.failure
        assert self.job.result is not None
        return self.job.result  # type: ignore[return-value]

    @property
    def failure(self) -> dict[str, Any]:
        assert self.job.state == "failed", (self.job.state, self.job.result)
        assert self.job.failure is not None
        return self.job.failure  # type: ignore[return-value]


class RefreshHarness:
    """Tables, views and their refreshes."""

    def __init__(self, namespace: PennonNamespace, services: WorkerServices, worker: Worker) -> None:
        self.namespace = namespace
        self.services = namespace.services
        self.services = services
        self.worker = worker

    # Tables.

    def create(self, name: str, rows: pa.Table) -> None:
        table = self.namespace.tables.new_tables.plan((name,), None, {})

        def note(connection: Any) -> str:
            tables.insert(connection, table)
            return transactions.insert(connection, "CreateTable", table.identifier, {})

        self.services.writer.create(table, source_of(rows), note)

    def append(self, name: str, rows: pa.Table) -> None:
        self.services.writer.append(self.table(name), "", source_of(rows), _note)

    def overwrite(self, name: str, rows: pa.Table) -> None:
        self.services.writer.overwrite(self.table(name), "", source_of(rows), _note)

    def change(self, name: str, work: Any) -> Any:
        """Do something to the newest dataset of a table."""
        return self.services.writer.change(self.table(name), "", _note, work)[0]

    def commit(self, name: str, build: Any) -> None:
        """Commit an operation that is built from the newest dataset of a table."""
        self.services.writer.commit(self.table(name), "", lambda connection, _: _note(connection), build)

    def table(self, name: str) -> Table:
        found = self.services.database.read(lambda connection: tables.find(connection, (name,)))
        assert found is not None
        return found

    def dataset(self, name: str, version: int | None = None) -> Any:
        return self.services.datasets.at(self.table(name), "", version)

    def rows(self, name: str, *columns: str, version: int | None = None) -> list[dict[str, Any]]:
        """Return what a table holds, without what ties a view to its source, in a steady order."""
        dataset = self.dataset(name, version)
        wanted = list(columns) or [column for column in dataset.schema.names if column not in HIDDEN]
        found: list[dict[str, Any]] = dataset.to_table(columns=wanted).to_pylist()
        return sorted(found, key=repr)

    def version(self, name: str) -> int:
        version: int = self.services.datasets.newest(self.table(name), "").version
        return version

    # Views.

    def view(
        self,
        name: str,
        query: Mapping[str, Any] | str,
        function: Any = None,
        schema: pa.Schema | None = None,
        on_schema_change: str = "ignore_new",
        **entry: Any,
    ) -> None:
        """Make a view of a query, or of what a function makes of it."""
        request = {"source_query": query if isinstance(query, str) else json.dumps(query)}
        parsed = parse_request(request)
        if function is None:
            draft = compile_query(parsed, self._open, schema)
        else:
            assert isinstance(parsed, StructuredQuery)
            kind: Kind = "udtf" if function.kind == "udtf" else "chunker"
            draft = compile_function_view(kind, parsed, _entry(kind, function, entry), self._open, schema)
        table = self.namespace.tables.new_tables.plan((name,), None, {})
        folder = self.services.storage_root.folder(table.location)
        for content in draft.functions:
            folder.put_if_absent(f"_udfs/{hashlib.sha256(content).hexdigest()}", content)
        definition = draft.definition
        view = View(table.id, definition.kind, definition.to_json(), request, on_schema_change=on_schema_change)

        def note(connection: Any) -> str:
            tables.insert(connection, table)
            views.insert(connection, view, {source.table_id: source.columns for source in definition.sources})
            return transactions.insert(connection, "CreateMaterializedView", table.identifier, {})

        empty = draft.schema.empty_table()
        self.services.writer.create(table, source_of(empty), note)

    def configure(self, name: str, on_schema_change: str) -> None:
        """Change what new columns of a view's sources do."""
        table = self.table(name)

        def work(connection: Any) -> None:
            views.configure(connection, table.id, auto_refresh=False, schedule=None, on_schema_change=on_schema_change)

        self.services.database.write(work)

    def catalogued(self, name: str) -> View:
        """Return what the catalog knows of a view."""
        found = self.services.database.read(lambda connection: views.find(connection, self.table(name).id))
        assert found is not None
        return found

    def definition(self, name: str) -> Definition:
        return Definition.from_json(self.catalogued(name).definition)

    def submit(self, name: str, **spec: Any) -> Job:
        table = self.table(name)
        return self.services.database.write(
            lambda connection: self.services.queue.submit(
                connection,
                JobKind.REFRESH,
                table,
                spec,  # type: ignore[arg-type]
                submitted_by="test",
                context={},
            )
        )

    def refresh(self, name: str, **spec: Any) -> Outcome:
        """Refresh a view, here and now."""
        return self.run_job(self.submit(name, **spec))

    def run_job(self, job: Job) -> Outcome:
        claimed = self.services.queue.claim("lab", self.services.settings.job_lease_seconds)
        assert claimed is not None
        assert claimed.id == job.id
        self.worker.run_job(claimed)
        ended = self.services.queue.find(job.id)
        assert ended is not None
        return Outcome(ended)

    def wait(self, job: Job) -> Outcome:
        """Return how a job ended; one that its worker died over is taken over as soon as its lease ran out."""
        deadline = time.monotonic() + _TAKEOVER_SECONDS
        while time.monotonic() < deadline:
            current = self.services.queue.find(job.id)
            assert current is not None
            if current.state in TERMINAL:
                return Outcome(current)
            claimed = self.services.queue.claim("another", 60)
            if claimed is not None:
                assert claimed.id == job.id
                self.worker.run_job(claimed)
            else:
                time.sleep(0.02)
        raise AssertionError("the job was not taken over")

    def data_files(self, name: str) -> set[str]:
        """Return the data files in the folder of a table."""
        folder = self.services.storage_root.folder(self.table(name).location)
        return {file.path.rsplit("/", 1)[1] for file in folder.files("data")}

    def named_files(self, name: str) -> set[str]:
        """Return the data files that some version of a table names."""
        found = set()
        for version in range(1, self.version(name) + 1):
            for fragment in self.dataset(name, version).get_fragments():
                found |= {file.path for file in fragment.metadata.files}
        return found

    def _open(self, use: TableUse) -> OpenedTable:
        table = self.table(use.name[-1])
        version = use.version if isinstance(use.version, int) else None
        return OpenedTable(use, table, self.services.datasets.at(table, "", version), version)


def open_lab(namespace: PennonNamespace, sessions: Any) -> RefreshHarness:
    """Return a lab in a namespace, whose jobs use these sessions."""
    services = WorkerServices(**vars(namespace.services), sessions=sessions)
    worker = Worker.__new__(Worker)
    worker._services = services
    worker.stopping = threading.Event()
    return RefreshHarness(namespace, services, worker)


def _note(connection: Any) -> str:
    return transactions.insert(connection, "Change", ("lab",), {})


def _entry(kind: str, function: Function[..., Any], settings: Mapping[str, Any]) -> MaterializedViewUdtfEntry:
    text = base64.b64encode(function.pack()).decode()
    return MaterializedViewUdtfEntry(
        kind=kind,
        udtf=text,
        udtf_sha=hashlib.sha256(text.encode()).hexdigest(),
        udtf_name=function.name,
        udtf_version=function.version,
        **settings,
    )
