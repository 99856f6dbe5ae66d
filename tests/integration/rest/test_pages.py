"""The pages about the server itself."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from pennon import __version__
from pennon.catalog.schema import latest_version
from pennon.server.operations.table import OPERATIONS

if TYPE_CHECKING:
    from tests.integration.rest.wire import Wire
    from tests.support.rest import RestClient
    from tests.support.server import PennonProcess


class TestHealth:
    def test_it_says_that_it_lives_and_is_ready(self, wire: Wire) -> None:
        assert wire.get("/healthz").json == {"status": "ok", "version": __version__}
        assert wire.get("/readyz").json == {"status": "ready", "schema_version": latest_version()}

    def test_it_is_not_ready_while_the_catalog_has_another_schema(
        self, http: RestClient, pennon_server: PennonProcess
    ) -> None:
        with closing(sqlite3.connect(pennon_server.directory / ".pennon" / "catalog.db")) as catalog:
            try:
                with catalog:
                    catalog.execute("UPDATE pennon_schema SET version = version + 1")
                answer = http.raw.get("/readyz")
            finally:
                with catalog:
                    catalog.execute("UPDATE pennon_schema SET version = ?", (latest_version(),))
        assert answer.status_code == 503
        assert answer.json() == {"status": "not ready", "schema_version": latest_version() + 1}
        assert http.raw.get("/readyz").status_code == 200

    @pytest.mark.parametrize("path", ["/healthz", "/readyz", "/openapi.json", "/metrics"])
    def test_the_head_alone_can_be_asked_for(self, wire: Wire, path: str) -> None:
        whole = wire.get(path)
        head = wire.send("HEAD", path)
        assert head.status == 200
        assert head.content == b""
        assert head.headers["content-type"] == whole.headers["content-type"]
        assert wire.get(f"{path}/").status == 200
        assert wire.post(path, {}).outcome == (405, 0)


class TestOpenApi:
    @pytest.fixture
    def document(self, wire: Wire) -> Any:
        return wire.get("/openapi.json").json

    def test_it_describes_every_operation(self, document: Any) -> None:
        assert document["openapi"].startswith("3.1")
        assert document["info"]["version"] == __version__
        described = {
            (operation["operationId"], method.upper(), path)
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
        }
        assert described == {(row.id, row.method, row.path) for row in OPERATIONS}

    def test_every_reference_leads_somewhere(self, document: Any) -> None:
        def references(value: Any) -> list[str]:
            if isinstance(value, dict):
                own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
                return own + [found for inner in value.values() for found in references(inner)]
            if isinstance(value, list):
                return [found for inner in value for found in references(inner)]
            return []

        found = references(document)
        assert found
        for reference in found:
            target = document
            assert reference.startswith("#/")
            for part in reference[2:].split("/"):
                target = target[part]

    def test_every_placeholder_is_a_parameter_and_every_answer_is_described(self, document: Any) -> None:
        for path, methods in document["paths"].items():
            for operation in methods.values():
                names = {parameter["name"] for parameter in operation["parameters"] if parameter["in"] == "path"}
                assert names == set(re.findall(r"\{(\w+)\}", path))
                assert all(parameter["schema"]["type"] for parameter in operation["parameters"])
                statuses = set(operation["responses"])
                assert {"400", "401", "403", "404", "409", "413"} <= statuses
                assert any(status.startswith("2") for status in statuses)
                assert operation["summary"]
                assert operation["x-pennon-role"] in {"reader", "writer", "admin"}
                for response in operation["responses"].values():
                    assert response["description"]


class TestMetrics:
    def test_requests_are_counted_by_operation_and_status(self, wire: Wire) -> None:
        wire.post("/v1/namespace/never-made/exists")
        wire.get("/nowhere")
        answer = wire.get("/metrics")
        assert answer.headers["content-type"].startswith("text/plain")
        text = answer.content.decode()
        assert re.search(r'pennon_requests_total\{operation="NamespaceExists",status="404"\} [1-9]', text)
        assert re.search(r'pennon_requests_total\{operation="unknown",status="404"\} [1-9]', text)
        assert "pennon_request_seconds_bucket" in text
        assert f'pennon_build_info{{version="{__version__}"}}' in text

    def test_what_a_client_writes_makes_no_label(self, wire: Wire) -> None:
        wire.get("/v1/table/peculiar-name/describe")
        wire.get("/peculiar-path")
        assert b"peculiar" not in wire.get("/metrics").content


def test_metrics_count_pages_by_the_status_they_were_answered_with(wire: Wire) -> None:
    assert wire.get("/console").status == 307
    tag = wire.get("/").headers["etag"]
    assert wire.get("/", {"if-none-match": tag}).status == 304
    counted = wire.get("/metrics").content.decode()
    for status in (200, 304, 307):
        assert re.search(rf'operation="page",status="{status}"', counted), counted
