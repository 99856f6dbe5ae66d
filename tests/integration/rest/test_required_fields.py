"""Fields that the specification requires: a request without one is refused, and nothing changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, get_args

import lance_namespace_urllib3_client.models as models
import pytest
from pydantic import BaseModel

from pennon.server.operations.table import OPERATIONS
from tests.integration.rest.everything import everything_in
from tests.integration.rest.samples import SAMPLES, Home, Sample, path_of
from tests.integration.rest.wire import quoted

if TYPE_CHECKING:
    from pennon.server.operations.model import Operation
    from tests.support.server import PennonProcess

#: Requests whose model has another name than their operation.
MODELS = {"CreateTableScalarIndex": models.CreateTableIndexRequest}
#: Fields that a request may do without.
OPTIONAL = {
    ("QueryTable", "vector"): "a query without a vector is a scan",
    ("QueryTable", "k"): "a scan without a limit returns all rows",
    ("AnalyzeTableQueryPlan", "vector"): "as in QueryTable",
    ("AnalyzeTableQueryPlan", "k"): "as in QueryTable",
    ("ExplainTableQueryPlan", "query.vector"): "as in QueryTable",
    ("ExplainTableQueryPlan", "query.k"): "as in QueryTable",
}
#: A materialized view can also be created in the form of LanceDB's own client.
LEFT_OUT = {"CreateMaterializedView"}

#: A column whose function reads one that is not there.
FUNCTION: dict[str, Any] = {
    "input_columns": ["wrod"],
    "outputs": [{"column": "first", "struct_field": "", "data_type": {"type": "int64"}, "nullable": True}],
    "image": "any:1",
    "udf": "YQ==",
    "udf_name": "f",
    "udf_version": "1",
    "udf_backend": "DockerUDFSpecV1",
}
FEATURE = {"name": "first", "virtual_column": FUNCTION}


def feature(name: str, inputs: list[str]) -> dict[str, Any]:
    """Return a column that a function of others fills."""
    outputs = [{**FUNCTION["outputs"][0], "column": name}]
    return {"name": name, "virtual_column": {**FUNCTION, "input_columns": inputs, "outputs": outputs}}


Path = tuple[str | int, ...]


def model_of(operation: str) -> type[BaseModel] | None:
    """Return the model of an operation's request, as the published package has it."""
    return MODELS.get(operation) or getattr(models, f"{operation}Request", None)


def required(model: type[BaseModel], body: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the paths of the required fields of a body, also of the objects inside."""
    for name, field in model.model_fields.items():
        key = field.alias or name
        if field.is_required() and (path or key != "id"):  # that of the request stands in its path
            yield (*path, key)
        if not isinstance(body, dict) or key not in body:
            continue
        inner = next(_models(field.annotation), None)
        value = body[key]
        if inner is not None and isinstance(value, list):
            yield from required(inner, value[0], (*path, key, 0))
        elif inner is not None:
            yield from required(inner, value, (*path, key))


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def without(body: Any, path: Path, *, null: bool) -> Any:
    """Return a body without one field, or with null in it."""
    first, rest = path[0], path[1:]
    copy = list(body) if isinstance(body, list) else dict(body)
    if rest:
        copy[first] = without(copy[first], rest, null=null)  # type: ignore[index]
    elif null:
        copy[first] = None  # type: ignore[index]
    else:
        del copy[first]  # type: ignore[arg-type]
    return copy


def name_of(path: Path) -> str:
    return ".".join(str(part) for part in path if not isinstance(part, int))


def has_required(row: Operation) -> bool:
    model = model_of(row.id)
    return row.in_spec and row.id not in LEFT_OUT and model is not None and any(required(model, None))


@pytest.mark.parametrize("row", [row for row in OPERATIONS if has_required(row)], ids=lambda row: row.id)
def test_a_request_without_a_required_field_changes_nothing(
    home: Home, row: Operation, pennon_server: PennonProcess
) -> None:
    model = model_of(row.id)
    assert model is not None
    sample: Sample = SAMPLES[row.id](home.fill())
    path = path_of(row, sample.identifier, sample.values, sample.query)
    fields = [field for field in required(model, sample.body) if (row.id, name_of(field)) not in OPTIONAL]
    before = everything_in(pennon_server.directory)
    for field in fields:
        for null in (False, True):
            assert home.wire.post(path, without(sample.body, field, null=null)).outcome == (400, 13), field
    assert everything_in(pennon_server.directory) == before


def test_a_batch_needs_what_its_parts_need(home: Home, pennon_server: PennonProcess) -> None:
    table = home.fill().table.split("$")
    parts: dict[str, tuple[type[BaseModel], dict[str, Any]]] = {
        "create_table_version": (models.CreateTableVersionRequest, {"id": table, **home.staged(home.table)}),
        "delete_table_versions": (
            models.BatchDeleteTableVersionsRequest,
            {"id": table, "ranges": [{"start_version": 2, "end_version": 3}]},
        ),
    }
    before = everything_in(pennon_server.directory)
    for name, (model, body) in parts.items():
        for field in required(model, body):
            operation = {name: without(body, field, null=False)}
            assert home.wire.post("/v1/table/batch-commit", {"operations": [operation]}).outcome == (400, 13), field
    assert everything_in(pennon_server.directory) == before


#: Requests with all fields, one of them invalid.
REFUSED: dict[str, tuple[str, Any, int, int]] = {
    "a range that runs backwards": ("version/delete", {"ranges": [{"start_version": 3, "end_version": 2}]}, 400, 13),
    "one of two ranges": (
        "version/delete",
        {"ranges": [{"start_version": 2, "end_version": 3}, {"start_version": 2, "end_version": 1}]},
        400,
        13,
    ),
    "a restore without a version": ("restore", None, 400, 13),
    "metadata without a body": ("schema_metadata/update", b"", 400, 13),
    "metadata of an unknown branch": ("schema_metadata/update?branch=nope", {"a": "b"}, 404, 22),
    "an input that is missing": ("add_columns", {"new_columns": [FEATURE]}, 404, 12),
    "an input of a struct that is missing": (
        "add_columns",
        {"new_columns": [{**FEATURE, "virtual_column": {**FUNCTION, "input_columns": ["id.part"]}}]},
        404,
        12,
    ),
    "a function of its own column": (
        "add_columns",
        {"new_columns": [{**FEATURE, "virtual_column": {**FUNCTION, "input_columns": ["id", "first"]}}]},
        404,
        12,
    ),
    "functions of each other's columns": (
        "add_columns",
        {"new_columns": [feature("first", ["second"]), feature("second", ["first"])]},
        404,
        12,
    ),
    "an input of another function": (
        "alter_columns",
        {"alterations": [{"path": "word", "virtual_column": {**FUNCTION, "input_columns": ["id", "wrod"]}}]},
        404,
        12,
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_refused_changes_nothing(home: Home, pennon_server: PennonProcess, kind: str) -> None:
    verb, body, status, code = REFUSED[kind]
    home.fill()
    before = everything_in(pennon_server.directory)
    answer = home.wire.post(f"/v1/table/{quoted(home.table)}/{verb}", body)
    assert answer.outcome == (status, code), answer
    assert everything_in(pennon_server.directory) == before


def test_lancedbs_own_client_restores_without_a_version(home: Home) -> None:
    home.fill()
    for body in ({"version": None}, {}):
        assert home.wire.post(f"/v1/table/{quoted(home.table)}/restore/", body).status == 200


def test_a_function_may_read_a_column_of_the_same_request(home: Home) -> None:
    home.fill()
    added = [feature("second", ["first"]), feature("first", ["id"])]
    home.ask("table", home.table, "add_columns", {"new_columns": added})


@pytest.mark.parametrize("managed", [True, False])
def test_a_version_of_an_unknown_branch_is_refused(home: Home, pennon_server: PennonProcess, managed: bool) -> None:
    home.fill()
    name = home.table
    if not managed:
        location = home.folder(home.table)
        home.ask("table", home.table, "deregister")
        name = home.other("unmanaged")
        home.ask("table", name, "register", {"location": str(location)})
    staged = home.staged(name)
    tree = staged["manifest_path"].replace("/_versions/", "/tree/nope/_versions/")
    before = everything_in(pennon_server.directory)
    for path in (staged["manifest_path"], tree):
        body = {**staged, "manifest_path": path, "branch": "nope"}
        answer = home.wire.post(f"/v1/table/{quoted(name)}/version/create", body)
        assert answer.outcome == (404, 22), answer
    assert everything_in(pennon_server.directory) == before


def test_the_metadata_of_a_schema_is_that_of_a_branch_and_described(home: Home) -> None:
    home.fill()
    home.ask("table", home.table, "schema_metadata/update", {"of": "main"})
    home.ask("table", home.table, "schema_metadata/update?branch=dev", {"of": "dev"})
    for branch, expected in ((None, {"of": "main"}), ("dev", {"of": "dev"})):
        described = home.ask("table", home.table, "describe?load_detailed_metadata=true", {"branch": branch})
        assert (described["metadata"], described["schema"]["metadata"]) == (expected, expected)
