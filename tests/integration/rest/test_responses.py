"""Every operation, asked as the specification has it, answers as the specification has it."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from openapi_schema_validator import OAS31Validator

from pennon.server.operations.model import Operation
from pennon.server.operations.openapi import build_document
from pennon.server.operations.table import OPERATIONS
from tests.integration.rest.samples import SAMPLES, STREAM, Home, Sample, path_of

if TYPE_CHECKING:
    from tests.integration.rest.wire import Answer

#: What the specification says of answers that are no 200.
STATUSES = {
    "AlterTableBackfillColumns": 202,
    "MaintainTable": 202,
    "CreateMaterializedView": 201,
    "RefreshMaterializedView": 202,
}
ROWS = [row for row in OPERATIONS if row.id in SAMPLES]
DOCUMENT = build_document()
BODILESS = {"NamespaceExists", "TableExists"}
#: What an answer must at least hold, for clients to work with it.
NEEDED = {
    "BatchCommitTables": {"transaction_id", "results"},
    "BatchCreateTableVersions": {"transaction_id", "versions"},
    "BatchDeleteTableVersions": {"transaction_id", "deleted_count"},
    "CreateEmptyTable": {"transaction_id", "location", "managed_versioning"},
    "CreateNamespace": {"transaction_id", "properties"},
    "CreateTableVersion": {"transaction_id", "version"},
    "DeclareTable": {"transaction_id", "location", "managed_versioning"},
    "DeregisterTable": {"transaction_id", "id", "location"},
    "DescribeNamespace": {"properties"},
    "DescribeTable": {"table", "namespace", "version", "location", "table_uri", "schema", "stats", "is_only_declared"},
    "DescribeTableVersion": {"version"},
    "DescribeTransaction": {"status", "properties"},
    "DropNamespace": {"transaction_id", "properties"},
    "DropTable": {"transaction_id", "id", "location"},
    "ListAllTables": {"tables"},
    "ListNamespaces": {"namespaces"},
    "ListTables": {"tables"},
    "ListTableVersions": {"versions", "page_token"},
    "RegisterTable": {"transaction_id", "location"},
    "RenameTable": {"transaction_id"},
}


def ask(home: Home, row: Operation, sample: Sample, *, slash: bool = False, raw: bool = False, **more: Any) -> Answer:
    """Ask for what a sample asks for, in one of the spellings a client may choose."""
    identifier = sample.identifier.replace("%24", "$") if raw else sample.identifier
    path, _, query = path_of(row, identifier, sample.values, sample.query).partition("?")
    parameters = [query, "" if raw or slash else "delimiter=%24"]
    path += ("/" if slash else "") + ("?" if any(parameters) else "") + "&".join(filter(None, parameters))
    if row.method == "GET":
        return home.wire.get(path)
    if sample.arrow:
        return home.wire.post(path, sample.body, STREAM)
    return home.wire.post(path, {**(sample.body or {}), **more})


def described(row: Operation, answer: Answer) -> Any:
    """Return the schema that the server's own document has for an answer: one that not every object fits."""
    of_row = DOCUMENT["paths"][row.path][row.method.lower()]["responses"][str(answer.status)]
    schema = of_row["content"]["application/json"]["schema"]
    assert schema != {"type": "object"}
    return OAS31Validator({**schema, "components": DOCUMENT["components"]})


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
class TestEveryOperation:
    def test_it_answers_as_the_specification_says(self, home: Home, row: Operation) -> None:
        sample = SAMPLES[row.id](home.fill())
        more: Any = {"unknown_field": {"deep": [1]}, "context": {"a": "b"}, "identity": {"api_key": "x"}}
        answer = ask(home, row, sample, **(more if row.body_field is None else {}))
        assert answer.status == STATUSES.get(row.id, 200)
        if row.id in BODILESS:
            assert answer.content == b""
        elif row.response_format == "arrow":
            assert pa.ipc.open_file(io.BytesIO(answer.content)).read_all().num_rows == 2
        else:
            assert answer.headers["content-type"] == "application/json"
            described(row, answer).validate(answer.json)
            self.check(row, answer.json)
            self.check_transaction(home, row, answer.json)

    @staticmethod
    def check(row: Operation, body: Any) -> None:
        if row.response is not None and isinstance(body, dict):
            row.response.model_validate(body)
            known = {field.alias or name for name, field in row.response.model_fields.items()}
            assert set(body) <= known | {"updated_rows", "rows_updated", "num_deleted_rows"}
        assert NEEDED.get(row.id, set()) <= (set(body) if isinstance(body, dict) else set())

    @staticmethod
    def check_transaction(home: Home, row: Operation, body: Any) -> None:
        """Insist that whatever changes something names a transaction, if its answer can, and that it is there."""
        if row.response is None or "transaction_id" not in row.response.model_fields:
            return
        named = body["transaction_id"]
        (transaction,) = named if isinstance(named, list) else [named]
        assert home.wire.post(f"/v1/transaction/{transaction}/describe").json["status"] == "Succeeded"

    def test_a_slash_at_the_end_leads_to_the_same_and_nowhere_else(self, home: Home, row: Operation) -> None:
        sample = SAMPLES[row.id](home.fill())
        answer = ask(home, row, sample, slash=True)
        assert answer.status == STATUSES.get(row.id, 200)
        assert "location" not in answer.headers

    def test_the_delimiter_may_be_written_as_it_is(self, home: Home, row: Operation) -> None:
        sample = SAMPLES[row.id](home.fill())
        assert ask(home, row, sample, raw=True).status == STATUSES.get(row.id, 200)

    def test_another_method_is_refused(self, shared_home: Home, row: Operation) -> None:
        path = path_of(row, "t")
        for method in {"GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"} - {row.method}:
            if (method, row.path) in {(other.method, other.path) for other in OPERATIONS}:
                continue
            answer = shared_home.wire.send(method, path, b"")
            assert answer.outcome == (405, 0)
            assert row.method in answer.json["error"]


class TestPaths:
    @pytest.mark.parametrize(
        "path",
        [
            "/console/nonsense.js",
            "/console/../catalog.db",
            "/console/%2e%2e/catalog.db",
            "/v1",
            "/v1/",
            "/v1/nonsense",
            "/v2/table",
            "/v1/table/t",
            "/v1/table/t/nonsense",
            "//v1/table",
            "/v1/table//",
        ],
    )
    def test_unknown_routes_are_errors(self, shared_home: Home, path: str) -> None:
        assert shared_home.wire.get(path).outcome == (404, 0)
        assert shared_home.wire.post(path, {}).status in {404, 405}

    def test_a_request_keeps_its_own_id(self, shared_home: Home) -> None:
        given = shared_home.wire.get("/v1/table", {"x-request-id": "my-id:1.2_3"})
        assert given.headers["x-request-id"] == "my-id:1.2_3"
        for bad in ("", "a b", "x" * 129, "<script>"):
            answer = shared_home.wire.get("/v1/table", {"x-request-id": bad})
            assert answer.headers["x-request-id"] != bad

    def test_every_response_has_its_own_id(self, shared_home: Home) -> None:
        ids = {shared_home.wire.get("/v1/table").headers["x-request-id"] for _ in range(20)}
        assert len(ids) == 20

    def test_a_table_may_be_called_like_a_route(self, home: Home) -> None:
        for name in ("version", "batch-commit", "list", "describe", "index", "table"):
            home.ask("table", home.other(name), "declare")
            home.ask("table", home.other(name), "describe")
        assert home.wire.get(f"/v1/namespace/{home.name}/table/list").json["tables"] == sorted(
            ["version", "batch-commit", "list", "describe", "index", "table"]
        )
