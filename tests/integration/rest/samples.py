"""A sound request for every operation, on a table that was made for it."""

from __future__ import annotations

import io
import secrets
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pennon.catalog import open_database, tables
from pennon.core.job_model import JobKind
from pennon.jobs.queue import Queue
from tests.integration.catalog.lakes import stage_in
from tests.integration.rest.wire import Wire, quoted
from tests.support.jobs import change_job

if TYPE_CHECKING:
    from collections.abc import Callable

    from pennon.server.operations.model import Operation

STREAM = {"content-type": "application/vnd.apache.arrow.stream"}


def rows(count: int = 3, start: int = 0) -> pa.Table:
    """Return some rows with a vector and a text."""
    numbers = list(range(start, start + count))
    vectors = pa.array([[float(n), 1.0] for n in numbers], pa.list_(pa.float32(), 2))
    return pa.table({"id": pa.array(numbers, pa.int64()), "word": [f"w{n}" for n in numbers], "vector": vectors})


def stream(table: pa.Table | None = None) -> bytes:
    """Return rows as an Arrow stream."""
    data = rows() if table is None else table
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, data.schema) as writer:
        writer.write_table(data)
    return sink.getvalue()


class Home:
    """A namespace of its own on a running server, with a table of three versions in it."""

    def __init__(self, wire: Wire, directory: Path) -> None:
        self.wire = wire
        self.directory = directory
        self.name = f"home_{secrets.token_hex(5)}"
        self.table = f"{self.name}$t"
        self.ask("namespace", self.name, "create")

    def fill(self) -> Home:
        """Write the table: three versions, a tag, a branch, and another with a column that backfills compute."""
        self.send("table", self.table, "create", stream())
        self.send("table", self.table, "insert", stream(rows(3, 10)))
        self.send("table", self.table, "insert", stream(rows(3, 20)))
        self.ask("table", self.table, "tags/create", {"tag": "first", "version": 1})
        self.ask("table", self.table, "branches/create", {"name": "dev"})
        self.ask("table", self.table, "branches/create", {"name": "features"})
        column = {"name": "next", "computed": "id + 1"}
        self.ask("table", self.table, "add_columns", {"new_columns": [column], "branch": "features"})
        return self

    def ask(self, kind: str, identifier: str, verb: str, body: Any = None) -> Any:
        """Send a JSON request that must succeed."""
        answer = self.wire.post(f"/v1/{kind}/{quoted(identifier)}/{verb}", body)
        assert answer.status < 300, answer
        return answer.json if answer.content else None

    def send(self, kind: str, identifier: str, verb: str, body: bytes) -> Any:
        """Send an Arrow request that must succeed."""
        answer = self.wire.post(f"/v1/{kind}/{quoted(identifier)}/{verb}", body, STREAM)
        assert answer.status < 300, answer
        return answer.json

    def other(self, name: str) -> str:
        """Return the identifier of another object in this namespace."""
        return f"{self.name}${name}"

    def folder(self, identifier: str) -> Path:
        """Return the folder of a table."""
        return Path(self.ask("table", identifier, "describe")["location"])

    def staged(self, identifier: str) -> dict[str, Any]:
        """Stage an append to a table and return what a client asks for then."""
        return stage_in(self.folder(identifier), rows(1, 90)).request


@dataclass(frozen=True)
class Sample:
    """A request that succeeds."""

    identifier: str
    body: Any = None
    query: str = ""
    values: dict[str, str] = field(default_factory=dict)

    @property
    def arrow(self) -> bool:
        """Whether the body is an Arrow stream."""
        return isinstance(self.body, bytes)


def path_of(row: Operation, identifier: str, values: dict[str, str] | None = None, query: str = "") -> str:
    """Return the path of an operation on an object; parts that are not given are made up."""
    path = row.path.replace("{id}", identifier)
    for name in ("index_name", "column", "row_id", "job_id"):
        path = path.replace("{" + name + "}", (values or {}).get(name, "0"))
    return f"{path}?{query}" if query else path


def _on_table(body: Any = None, query: str = "", **values: str) -> Callable[[Home], Sample]:
    return lambda home: Sample(quoted(home.table), body, query, values)


def _declared(body: Any = None) -> Callable[[Home], Sample]:
    def make(home: Home) -> Sample:
        identifier = home.other(f"d{secrets.token_hex(4)}")
        home.ask("table", identifier, "declare")
        return Sample(quoted(identifier), body)

    return make


def _new(body: Any = None, query: str = "") -> Callable[[Home], Sample]:
    return lambda home: Sample(quoted(home.other(f"n{secrets.token_hex(4)}")), body, query)


def _on_namespace(body: Any = None) -> Callable[[Home], Sample]:
    def make(home: Home) -> Sample:
        identifier = home.other(f"s{secrets.token_hex(4)}")
        home.ask("namespace", identifier, "create")
        return Sample(quoted(identifier), body)

    return make


def _register(home: Home) -> Sample:
    identifier = home.other(f"r{secrets.token_hex(4)}")
    home.send("table", identifier, "create", stream())
    location = home.folder(identifier)
    home.ask("table", identifier, "deregister")
    return Sample(quoted(identifier), {"location": str(location)})


def _indexed(home: Home, **values: str) -> Sample:
    home.ask("table", home.table, "create_index", {"column": "id", "index_type": "BTREE", "name": "by_id"})
    home.ask("table", home.table, "index/by_id/prewarm")  # waits until it is built
    return Sample(quoted(home.table), {}, values={"index_name": "by_id", **values})


def _job(body: Any = None, *, ended: bool = False) -> Callable[[Home], Sample]:
    """Make a job that no worker takes: one that rests, or that was cancelled."""

    def make(home: Home) -> Sample:
        database = open_database(f"sqlite:///{home.directory / '.pennon' / 'catalog.db'}")
        with closing(database):
            queue, identifier = Queue(database), tuple(home.table.split("$"))
            found = database.read(lambda connection: tables.find(connection, identifier))
            assert found is not None
            job = database.write(
                lambda connection: queue.submit(
                    connection,
                    JobKind.BACKFILL,
                    found,
                    {},
                    target="word",
                    submitted_by="ada",
                    context={},
                )
            )
            change_job(queue, "pause", job.id)
            if ended:
                change_job(queue, "cancel", job.id)
        return Sample("", {"job_id": job.id, **(body or {})})

    return make


def _transaction(body: Any) -> Callable[[Home], Sample]:
    def make(home: Home) -> Sample:
        return Sample(home.ask("table", home.other(f"x{secrets.token_hex(4)}"), "declare")["transaction_id"], body)

    return make


def _upload(body: Any, verb: str) -> Callable[[Home], Sample]:
    def make(home: Home) -> Sample:
        upload = home.ask("table", home.table, "multipart_write/create")["upload_id"]
        if verb == "complete":
            home.send("table", home.table, f"insert?upload_id={upload}&upload_part_id=1", stream())
        return Sample(quoted(home.table), {**body, "upload_id": upload})

    return make


def _view(body: Any = None) -> Callable[[Home], Sample]:
    """Make a view over the table."""

    def make(home: Home) -> Sample:
        identifier = home.other(f"v{secrets.token_hex(4)}")
        home.ask(
            "materialized_view",
            identifier,
            "create",
            {"kind": "query", "output_schema": None, "source_query": f"SELECT id FROM {home.name}.t"},
        )
        return Sample(quoted(identifier), body)

    return make


QUERY = {"k": 2, "vector": {"single_vector": [1.0, 1.0]}}

SAMPLES: dict[str, Callable[[Home], Sample]] = {
    "CreateNamespace": _new({"mode": "create", "properties": {"owner": "ada"}}),
    "ListNamespaces": _on_namespace(),
    "DescribeNamespace": _on_namespace({}),
    "DropNamespace": _on_namespace({"mode": "Fail", "behavior": "Restrict"}),
    "NamespaceExists": _on_namespace({}),
    "ListTables": lambda home: Sample(home.name, query="limit=10&include_declared=true"),
    "ListAllTables": lambda home: Sample("", query="limit=10"),
    "RegisterTable": _register,
    "DescribeTable": _on_table({"version": 1}, "with_table_uri=true&load_detailed_metadata=true&check_declared=true"),
    "TableExists": _on_table({"version": 2}),
    "DropTable": _declared({}),
    "DeregisterTable": _declared({}),
    "RenameTable": lambda home: Sample(_declared()(home).identifier, {"new_table_name": f"m{secrets.token_hex(4)}"}),
    "DeclareTable": _new({"properties": {"owner": "ada"}}),
    "CreateEmptyTable": _new({"properties": {"owner": "ada"}}),
    "ListTableVersions": _on_table({}, "limit=2&descending=true"),
    "CreateTableVersion": lambda home: Sample(quoted(home.table), home.staged(home.table)),
    "DescribeTableVersion": _on_table({"version": 2}),
    "BatchDeleteTableVersions": _on_table({"ranges": [{"start_version": 2, "end_version": 3}]}),
    "BatchCreateTableVersions": lambda home: Sample(
        "", {"entries": [{"id": home.table.split("$"), **home.staged(home.table)}]}
    ),
    "BatchCommitTables": lambda home: Sample(
        "", {"operations": [{"declare_table": {"id": [home.name, f"b{secrets.token_hex(4)}"]}}]}
    ),
    "DescribeTransaction": _transaction({}),
    "AlterTransaction": _transaction({"actions": [{"set_property_action": {"key": "a", "value": "b"}}]}),
    "CreateTable": _new(stream(), "mode=create"),
    "InsertIntoTable": _on_table(stream(), "mode=append"),
    "MergeInsertIntoTable": _on_table(stream(), "on=id&when_matched_update_all=true&when_not_matched_insert_all=true"),
    "UpdateTable": _on_table({"updates": [["word", "'changed'"]], "predicate": "id = 1"}),
    "DeleteFromTable": _on_table({"predicate": "id = 2"}),
    "QueryTable": _on_table(QUERY),
    "CountTableRows": _on_table({"predicate": "id > 0"}),
    "ExplainTableQueryPlan": _on_table({"query": QUERY}),
    "AnalyzeTableQueryPlan": _on_table(QUERY),
    "AlterTableAddColumns": _on_table({"new_columns": [{"name": "twice", "expression": "id * 2"}]}),
    "AlterTableAlterColumns": _on_table({"alterations": [{"path": "word", "rename": "term"}]}),
    "AlterTableDropColumns": _on_table({"columns": ["word"]}),
    "AlterTableBackfillColumns": _on_table({"column": "next", "branch": "features", "where": "id > 0", "priority": 1}),
    "DescribeColumnState": _on_table({"column": "next", "branch": "features"}),
    "DescribeColumnFunction": _on_table({"column": "next", "branch": "features"}),
    "DescribeLineage": _on_table({"direction": "both", "depth": 2}),
    "DescribeCaller": lambda home: Sample(""),
    "DiffTableVersions": _on_table({"from": 1, "to": 3}),
    "ListTableFragments": _on_table({"version": 2, "limit": 5}),
    "DescribeTableHealth": _on_table({}),
    "ListTableHealth": lambda home: Sample(home.name, {"limit": 5}),
    "MaintainTable": _on_table({"kind": "cleanup", "policy": {"max_versions": 5}}),
    "DescribeVersionRetention": _on_table({"versions": [1, 2]}),
    "DescribeMaintenancePolicy": _on_table({}),
    "AlterMaintenancePolicy": _on_table({"policy": {"max_versions": 5, "quiet_hours": None}}),
    "DescribeNamespaceMaintenancePolicy": lambda home: Sample(home.name, {}),
    "AlterNamespaceMaintenancePolicy": lambda home: Sample(home.name, {"policy": {"enabled": None}}),
    "ListColumnErrors": _on_table({"column": "next", "branch": "features", "limit": 5}),
    "UpdateFieldMetadata": _on_table({"updates": [{"path": "id", "metadata": {"a": "b"}}]}),
    "UpdateTableSchemaMetadata": _on_table({"a": "b"}),
    "GetTableStats": _on_table({}),
    "RestoreTable": _on_table({"version": 1}),
    "CreateTableIndex": _on_table({"column": "vector", "index_type": "IVF_FLAT", "metric_type": "l2"}),
    "CreateTableScalarIndex": _on_table({"column": "id", "index_type": "BTREE"}),
    "ListTableIndices": _on_table({}, "limit=5"),
    "DescribeTableIndexStats": _indexed,
    "DropTableIndex": _indexed,
    "ListTableTags": _on_table({}, "limit=5"),
    "GetTableTagVersion": _on_table({"tag": "first"}),
    "CreateTableTag": _on_table({"tag": "second", "version": 2}),
    "DeleteTableTag": _on_table({"tag": "first"}),
    "UpdateTableTag": _on_table({"tag": "first", "version": 2}),
    "ListTableBranches": _on_table({}, "limit=5"),
    "CreateTableBranch": _on_table({"name": "other"}),
    "DeleteTableBranch": _on_table({"name": "dev"}),
    "CloneTable": lambda home: Sample(
        quoted(home.other(f"c{secrets.token_hex(4)}")),
        {"source_location": str(home.folder(home.table)), "is_shallow": True},
    ),
    "ListJobs": lambda home: Sample("", {"table": home.table, "state": "paused", "limit": 5}),
    "DescribeJob": _job(),
    "CancelJob": _job(),
    "PauseJob": _job(),
    "ResumeJob": _job(),
    "RetryJob": _job({"only_failed": True}, ended=True),
    "CreateMaterializedView": lambda home: Sample(
        quoted(home.other(f"w{secrets.token_hex(4)}")),
        {
            "kind": "query",
            "output_schema": None,
            "source_query": f"SELECT id, upper(word) AS word FROM {home.name}.t WHERE id > 1",
        },
    ),
    "RefreshMaterializedView": _view({"concurrency": 2, "full": True}),
    "DescribeMaterializedView": _view({}),
    "DescribeViewFunctions": _view({}),
    "AlterMaterializedView": _view({"schedule": "0 3 * * *", "auto_refresh": True}),
    "DropMaterializedView": _view({}),
    "ListMaterializedViews": lambda home: Sample(home.name, query="limit=10"),
    "BeginUpload": _on_table({}),
    "CompleteUpload": _upload({}, "complete"),
    "AbortUpload": _upload({}, "abort"),
    "DiffBranch": _on_table({"from_branch": "dev"}),
    "CherryPick": _on_table({"from_branch": "dev", "dry_run": True}),
    "MergeBranch": _on_table({"from_branch": "dev", "dry_run": True}),
    "PrewarmIndex": _indexed,
    "PrewarmData": _on_table({}),
    "GetWriteBuffer": _on_table({}),
    "GetWriteBufferStats": _on_table({}),
}

#: Rows that cannot succeed on the table above, because it has no blobs, or that tell of jobs; those are elsewhere.
WITHOUT_SAMPLE = {"FetchBlobs", "ReadBlob", "FollowJob", "QueryJobEvents"}
