"""Schemathesis over the document of a running server: whatever it thinks of, the answer is one that is described."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import Config, GenerationMode, HookContext

from pennon.server.operations.model import Operation
from pennon.server.operations.table import OPERATIONS
from tests.conftest import new_root, storage_root_with
from tests.integration.data.tables import STREAM, DataTable, rows, stream_of
from tests.support.rest import RestClient
from tests.support.server import PennonProcess

#: How many requests are made up for an operation: in every run, and in the long version.
FEW, MANY = 10, 60
CHECKS = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
]
CONFIG = {
    "generation": {"with-security-parameters": False},
    "checks": {"enabled": False, **{name: {"enabled": True} for name in CHECKS}},
}
#: What the server has, and what reads well: made-up words alone would never get past the first look.
NAMESPACE, TABLE, BLOBS, BLOB, TAG, BRANCH, INDEX = "ns", "fuzz", "blobs", "picture", "first", "dev", "id_idx"
FILLED, VIEW = "next", "view"
COLUMNS = ["id", "word", "vector", BLOB, "id", "vector.x", "_rowid"]
KNOWN: dict[str, list[str]] = {
    "namespace": [NAMESPACE, NAMESPACE, "$", "missing", f"{NAMESPACE}$inner", ".."],
    "table": [TABLE, TABLE, f"{NAMESPACE}${TABLE}", BLOBS, "missing", f"{NAMESPACE}$missing", "$"],
    "delimiter": ["$"],
    "branch": [BRANCH, "main", "missing"],
    "from_branch": [BRANCH, "main", "missing"],
    "tag": [TAG, "new", "missing"],
    "column": COLUMNS,
    "columns": COLUMNS,
    "on": COLUMNS,
    "path": COLUMNS,
    "updates": ["id", "word", "id + 1", "'red'", "upper(word)"],
    "predicate": ["id > 3", "id +", "id / 0 = 1", "sum(id) > 1", "true", "nothing = 1"],
    "index_name": [INDEX, "missing"],
    "index_type": ["BTREE", "BITMAP", "FTS", "IVF_FLAT"],
    "row_id": ["0", "0", "1", "100"],
    "mode": ["create", "ExistOk", "overwrite", "append"],
}
#: Requests that succeed, by operation: what is made up takes the place of a part of them, and the rest stays sound.
SOUND: dict[str, dict[str, Any]] = {
    "DropNamespace": {"mode": "Skip", "behavior": "Cascade"},
    "BatchDeleteTableVersions": {"ranges": [{"start_version": 1, "end_version": 2}]},
    "BatchCommitTables": {"operations": [{"declare_table": {"id": ["declared"]}}]},
    "UpdateTable": {"updates": [["word", "'x'"]], "predicate": "id > 3"},
    "DeleteFromTable": {"predicate": "id > 3"},
    "QueryTable": {"k": 3, "vector": {"single_vector": [1.0, 2.0, 3.0, 4.0]}, "filter": "id > 3"},
    "ExplainTableQueryPlan": {"query": {"k": 3, "vector": {"single_vector": []}, "filter": "id > 3"}},
    "AnalyzeTableQueryPlan": {"k": 3, "vector": {"single_vector": []}, "filter": "id > 3"},
    "AlterTableAddColumns": {"new_columns": [{"name": "more", "expression": "id * 2"}]},
    "AlterTableAlterColumns": {"alterations": [{"path": "word", "rename": "term"}]},
    "AlterTableDropColumns": {"columns": ["word"]},
    "AlterTableBackfillColumns": {"column": FILLED},
    "DescribeColumnState": {"column": FILLED},
    "DescribeColumnFunction": {"column": FILLED},
    "UpdateFieldMetadata": {"updates": [{"path": "id", "metadata": {"a": "b"}}]},
    "RestoreTable": {"version": 1},
    "CreateTableIndex": {"column": "vector", "index_type": "IVF_FLAT", "metric_type": "l2"},
    "CreateTableScalarIndex": {"column": "word", "index_type": "BITMAP"},
    "CreateTableTag": {"tag": "new", "version": 1},
    "UpdateTableTag": {"tag": TAG, "version": 1},
    "DeleteTableTag": {"tag": TAG},
    "CreateTableBranch": {"name": "new"},
    "DeleteTableBranch": {"name": BRANCH},
    "DiffBranch": {"from_branch": BRANCH},
    "CherryPick": {"from_branch": BRANCH, "dry_run": True},
    "MergeBranch": {"from_branch": BRANCH, "dry_run": True},
    "FetchBlobs": {"column": BLOB, "row_ids": [0, 1]},
    "CreateMaterializedView": {"kind": "query", "output_schema": None, "source_query": f"SELECT id FROM {TABLE}"},
    "RefreshMaterializedView": {},
    "DescribeMaterializedView": {},
    "AlterMaterializedView": {"auto_refresh": True},
    "DescribeViewFunctions": {},
    "DropMaterializedView": {},
}
#: The same of those whose body is Arrow.
SOUND_QUERIES: dict[str, dict[str, Any]] = {
    "CreateTable": {"mode": "overwrite"},
    "MergeInsertIntoTable": {"on": "id", "when_matched_update_all": True, "when_not_matched_insert_all": True},
}
#: What those are about that are not about the table.
OBJECTS = {"FetchBlobs": BLOBS, "ReadBlob": BLOBS, "CreateMaterializedView": "new_view"}
WORDS = [
    "id", "word", TABLE, BRANCH, TAG, INDEX, "id > 3", "id = $1", "'", "`", "a.b", "l2", "30s", "int64", "../up", "\0",
    "{}", "x" * 300,
]  # fmt: skip
#: Numbers at the edges of what others can hold.
EDGES = [-1, 0, 2**31, 2**63 - 1, 2**63, -(2**63), 2**70]
#: Orders to build something; large ones would only take long.
COSTLY = {"CreateTableIndex", "CreateTableScalarIndex"}
LARGEST_ORDER = 100


@st.composite
def arrow_streams(draw: st.DrawFn) -> bytes:
    """Return Arrow streams: rows that fit the table, rows that do not, and streams that are broken."""
    fitting = rows(draw(st.integers(0, 30)), draw(st.integers(0, 40)))
    others = [pa.table({"other": ["x", None]}), pa.table({"id": ["text"]}), pa.table({}), fitting.select(["id"])]
    stream = bytearray(stream_of(draw(st.sampled_from([fitting, fitting, *others]))))
    damage = draw(st.sampled_from(["none", "none", "none", "cut", "changed", "longer"]))
    where = draw(st.integers(0, len(stream) - 1))
    if damage == "cut":
        del stream[where:]
    elif damage == "changed":
        stream[where] ^= draw(st.integers(1, 255))
    elif damage == "longer":
        stream += draw(st.binary(min_size=1, max_size=20))
    return bytes(stream)


schemathesis.openapi.media_type(STREAM, arrow_streams())


def familiar(name: str, value: Any) -> st.SearchStrategy[Any]:
    """Return a generated value and its likes, with texts that mean something in place of some of its own."""
    if isinstance(value, str):
        known = st.sampled_from(KNOWN.get(name, WORDS))
        return st.one_of(known, known, known, st.just(value))
    if isinstance(value, int) and not isinstance(value, bool):
        return st.one_of(st.just(value), st.just(value), st.just(value), st.sampled_from(EDGES))
    if isinstance(value, list):
        return st.tuples(*(familiar(name, item) for item in value)).map(list)
    if isinstance(value, dict):
        return st.fixed_dictionaries({key: familiar(key, item) for key, item in value.items()})
    return st.just(value)


def flatmap_path_parameters(context: HookContext, path_parameters: Any) -> st.SearchStrategy[Any]:
    """Name what exists."""
    operation, path = name_of(context), context.operation.path if context.operation else ""
    kind = "namespace" if path.startswith("/v1/namespace/") else "table"
    usual = VIEW if path.startswith("/v1/materialized_view/") else NAMESPACE if kind == "namespace" else TABLE
    return st.fixed_dictionaries(
        {
            name: st.one_of(st.just(OBJECTS.get(operation, usual)), familiar(kind, value))
            if name == "id"
            else familiar(name, value)
            for name, value in (path_parameters or {}).items()
        }
    )


def flatmap_query(context: HookContext, query: Any) -> st.SearchStrategy[Any]:
    """Say what is understood."""
    return mixed(SOUND_QUERIES.get(name_of(context), {}), familiar("", query or {}))


def flatmap_body(context: HookContext, body: Any) -> st.SearchStrategy[Any]:
    """Say what is understood; mostly without the id, which the path states, so that another one is always refused."""
    operation = name_of(context)
    if not isinstance(body, dict):
        return st.just(body)
    plain = familiar("", {name: item for name, item in body.items() if name != "id"})
    likely = st.one_of(plain, st.just(body), *[mixed(SOUND[operation], plain)] * 4 if operation in SOUND else [plain])
    return likely.map(within_reason) if operation in COSTLY else likely


def name_of(context: HookContext) -> str:
    """Return the operation that a request is made up for."""
    assert context.operation is not None
    return str(context.operation.definition.raw["operationId"])


def mixed(sound: dict[str, Any], made_up: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return what is sound with none, one or two made-up parts in it."""

    def mix(parts: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
        names = st.lists(st.sampled_from(sorted(parts)), max_size=2, unique=True) if parts else st.just([])
        return names.map(lambda chosen: {**sound, **{name: parts[name] for name in chosen}})

    return made_up.flatmap(mix)


def within_reason(body: dict[str, Any]) -> dict[str, Any]:
    """Return a body whose numbers are not too large."""
    return {name: min(item, LARGEST_ORDER) if isinstance(item, int) else item for name, item in body.items()}


def seed(http: RestClient) -> None:
    """Make what requests may be about, as far as it is not there."""
    http.raw.post(f"/v1/namespace/{NAMESPACE}/create", json={"mode": "ExistOk"})
    for names in ([TABLE], [NAMESPACE, TABLE]):
        table = DataTable(http, *names)
        table.send("create", rows(20), mode="exist_ok")
        table.ask("tags/create", {"tag": TAG, "version": 1})
        table.ask("branches/create", {"name": BRANCH})
        table.ask("create_scalar_index", {"column": "id", "index_type": "BTREE", "name": INDEX})
        table.ask("add_columns", {"new_columns": [{"name": FILLED, "computed": "id + 1"}]})
    picture = pa.field(BLOB, pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    DataTable(http, BLOBS).send("create", pa.table([[b"abc", None]], pa.schema([picture])), mode="exist_ok")
    http.raw.post(
        f"/v1/materialized_view/{VIEW}/create",
        json={"kind": "query", "output_schema": None, "source_query": f"SELECT id FROM {TABLE}"},
    )


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestClient]:
    """A server that these tests have for themselves: they drop whatever they hit."""
    directory, storage_root = tmp_path_factory.mktemp("schemathesis"), storage_root_with(new_root(request), request)
    with PennonProcess(directory, *storage_root) as process, RestClient(process.url) as client:
        yield client


@pytest.fixture(scope="module")
def document(server: RestClient) -> Any:
    """What the running server says it offers."""
    loaded = schemathesis.openapi.from_url(f"{server.raw.base_url}/openapi.json", config=Config.from_dict(CONFIG))
    for hook in (flatmap_path_parameters, flatmap_query, flatmap_body):
        loaded.hook(hook)
    return loaded


@pytest.mark.parametrize("row", OPERATIONS, ids=lambda row: row.id)
@pytest.mark.parametrize("examples", [FEW, pytest.param(MANY, marks=pytest.mark.long)])
def test_every_answer_is_one_that_the_document_describes(
    server: RestClient, document: Any, row: Operation, examples: int
) -> None:
    operation = document.find_operation_by_id(row.id)
    wanted, unwanted = (operation.as_strategy(mode) for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE))

    @settings(
        max_examples=examples, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(case=st.one_of(wanted, wanted, wanted, wanted, unwanted))
    def attempt(case: Any) -> None:
        answer = case.call_and_validate()
        if row.mutates and answer.status_code < 300:
            seed(server)

    seed(server)
    attempt()
    assert server.get("/healthz")["status"] == "ok"
