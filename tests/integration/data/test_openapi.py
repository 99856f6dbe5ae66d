"""Whatever is asked for, the answer is one that the server's own OpenAPI document describes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openapi_schema_validator import OAS31Validator

from pennon.server.openapi import build_document
from tests.integration.data.fuzzing import IDENTIFIERS, INDICES, Json, arrow_bodies, texts_of, values_of
from tests.integration.data.tables import STREAM, DataTable, rows
from tests.support.rest import RestClient
from tests.support.server import PennonProcess

DOCUMENT: Json = json.loads(json.dumps(build_document()))
OPERATIONS: dict[str, tuple[str, str, Json]] = {
    described["operationId"]: (method.upper(), path, described)
    for path, methods in DOCUMENT["paths"].items()
    for method, described in methods.items()
}
#: Building an index takes numbers as orders; the wide ones would only take long.
CAREFUL = {"CreateTableIndex", "CreateTableScalarIndex"}
EXAMPLES = 25


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestClient]:
    """A server that these tests have for themselves: they drop whatever they hit."""
    with PennonProcess(tmp_path_factory.mktemp("fuzz")) as process, RestClient(process.url) as client:
        assert client.get("/openapi.json")["paths"].keys() == DOCUMENT["paths"].keys()
        yield client


def parameters_of(operation: Json) -> dict[str, Any]:
    """Return strategies for the query parameters of an operation."""
    return {
        found["name"]: texts_of(found["schema"])
        for found in operation["parameters"]
        if found["in"] == "query" and found["name"] != "delimiter"
    }


@st.composite
def requests(draw: Any, name: str) -> httpx.Request:
    """Return requests to an operation."""
    method, path, operation = OPERATIONS[name]
    # A transaction's id and a job's are never those of a table; a made-up one will do.
    where = path.replace("{id}", quote(draw(st.sampled_from(IDENTIFIERS)), safe="$%"))
    for part in ("index_name", "column", "row_id"):
        where = where.replace(f"{{{part}}}", draw(st.sampled_from(INDICES)))
    query = draw(st.fixed_dictionaries({}, optional=parameters_of(operation)))
    content = operation.get("requestBody", {}).get("content", {})
    kinds = sorted(content)
    kind = draw(st.sampled_from(kinds)) if kinds else None
    body: bytes = b""
    if kind == STREAM:
        body = draw(arrow_bodies())
    elif kind is not None:
        schema = content[kind]["schema"]
        body = json.dumps(draw(values_of(schema, DOCUMENT, careful=name in CAREFUL))).encode()
    headers = {"content-type": kind} if kind else {}
    return httpx.Request(
        method, f"http://server{where}", params={"delimiter": "$", **query}, content=body, headers=headers
    )


def check(answer: httpx.Response, operation: Json) -> None:
    """Insist that an answer is one of those that the document has for the operation."""
    shown = f"{answer.request.method} {answer.request.url} {answer.request.content[:500]!r}: {answer.text[:500]}"
    assert answer.status_code < 500, shown
    described = operation["responses"].get(str(answer.status_code))
    assert described is not None, f"the document has no answer {answer.status_code}; {shown}"
    if not answer.content:
        return
    media = answer.headers["content-type"].split(";")[0]
    assert media in described.get("content", {}), shown
    if media == "application/json":
        schema = {**described["content"][media]["schema"], "components": DOCUMENT["components"]}
        errors = [found.message for found in OAS31Validator(schema).iter_errors(answer.json())]
        assert not errors, f"{errors}; {shown}"


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_answer_is_one_that_the_document_describes(server: RestClient, name: str) -> None:
    table = DataTable(server, "fuzz")

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )
    @given(request=requests(name))
    def attempt(request: httpx.Request) -> None:
        url = str(request.url).replace("http://server", str(server.raw.base_url).rstrip("/"), 1)
        headers = {key: value for key, value in request.headers.items() if key == "content-type"}
        sent = server.raw.build_request(request.method, url, content=request.content, headers=headers)
        check(server.raw.send(sent), OPERATIONS[name][2])

    for made in (
        table.send("create", rows(20), mode="exist_ok"),
        table.ask("tags/create", {"tag": "first", "version": 1}),
    ):
        assert made.status_code in {200, 404, 409}, made.text
    attempt()
    assert server.get("/healthz")["status"] == "ok"
