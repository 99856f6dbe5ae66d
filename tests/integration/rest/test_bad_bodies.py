"""Bodies that cannot be: refused by every operation, with its right status and code, and nothing changes."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any, get_args

import pytest

from pennon.server.operations.model import Operation
from pennon.server.operations.table import OPERATIONS
from tests.integration.rest.everything import everything_in
from tests.integration.rest.samples import SAMPLES, Home, path_of
from tests.integration.rest.wire import Wire, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.server import PennonProcess

JSON_ROWS = [row for row in OPERATIONS if row.method == "POST" and row.body != "arrow"]
ARROW_ROWS = [row for row in OPERATIONS if row.body == "arrow"]
NOT_JSON = [
    b"{",
    b"nonsense",
    b"{'id': []}",
    b"\xff\xfe",
    b'{"a": "\xff"}',
    b'{"a": NaN}',
    b'{"a": "\\ud800"}',
    b"[]",
    b"[{}]",
    b'"text"',
    b"7",
    b"true",
    b'{"a":' * 200_000,
    b"[" * 200_000,
]
#: Queries may also have the form that LanceDB's own client gives them: a field counts only where it is needed.
OWN_FORM = {"QueryTable", "AnalyzeTableQueryPlan"}
TYPED_ROWS = [row for row in JSON_ROWS if row.request is not None and row.id not in OWN_FORM and row.body_field is None]
#: Values that almost no field can have.
WRONG: list[Any] = [{"x": {"y": []}}, [[[]]], "\0", "x" * 5000, -1, 2**64, 10**40, 1.5, True, "", "../../etc"]


@pytest.fixture(scope="class")
def unchanged(pennon_server: PennonProcess, shared_home: Home) -> Iterator[None]:
    before, logged = everything_in(pennon_server.directory), len(pennon_server.stderr)
    yield
    assert everything_in(pennon_server.directory) == before
    assert "Traceback" not in pennon_server.stderr[logged:]


@pytest.mark.parametrize("row", JSON_ROWS, ids=lambda row: row.id)
@pytest.mark.usefixtures("unchanged")
class TestJson:
    def test_what_is_no_json_object_is_refused(self, shared_home: Home, row: Operation) -> None:
        path = path_of(row, quoted(shared_home.table))
        for body in NOT_JSON:
            answer = shared_home.wire.post(path, body)
            assert answer.outcome == (400, 13), body[:30]


@pytest.mark.parametrize("row", JSON_ROWS, ids=lambda row: row.id)
class TestValues:
    def test_no_value_of_any_field_breaks_it(self, home: Home, row: Operation, pennon_server: PennonProcess) -> None:
        sample = SAMPLES[row.id](home.fill()) if row.id in SAMPLES else None
        body = (sample.body if sample else None) or {}
        path = path_of(row, sample.identifier if sample else quoted(home.table), sample.values if sample else None)
        fields = set(body) | (set(row.request.model_fields) if row.request else set())
        logged = len(pennon_server.stderr)
        for field in sorted(fields - {"id"}):
            for wrong in WRONG:
                answer = home.wire.post(path, {**body, field: wrong})
                assert answer.status < 500, (field, wrong, answer)
        for inner in _inner(body):
            for wrong in WRONG:
                assert home.wire.post(path, inner(wrong)).status < 500, wrong
        assert "Traceback" not in pennon_server.stderr[logged:]


def _inner(body: dict[str, Any]) -> list[Any]:
    """Return what puts a wrong value into each of the deeper places of a body."""
    text = json.dumps(body)
    found = []

    def walk(value: Any, path: tuple[Any, ...]) -> None:
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, inner in items:
            if path:
                found.append((*path, key))
            walk(inner, (*path, key))

    walk(body, ())

    def put(path: tuple[Any, ...]) -> Any:
        def make(wrong: Any) -> Any:
            copy = json.loads(text)
            holder = copy
            for key in path[:-1]:
                holder = holder[key]
            holder[path[-1]] = wrong
            return copy

        return make

    return [put(path) for path in found]


@pytest.mark.parametrize("row", TYPED_ROWS, ids=lambda row: row.id)
@pytest.mark.usefixtures("unchanged")
class TestTypes:
    def test_a_field_of_the_wrong_type_is_refused(self, shared_home: Home, row: Operation) -> None:
        path = path_of(row, quoted(shared_home.table))
        assert row.request is not None
        for name, field in row.request.model_fields.items():
            if name == "id" or "{" + name + "}" in row.path or "Any" in str(field.annotation):
                continue
            wrong: Any = "text" if _is_collection(field.annotation) else [["list"]]
            answer = shared_home.wire.post(path, {field.alias or name: wrong})
            assert answer.outcome == (400, 13), (name, answer)

    def test_an_identity_or_context_of_the_wrong_form_is_refused(self, shared_home: Home, row: Operation) -> None:
        path = path_of(row, quoted(shared_home.table))
        for wrong in ({"identity": "x"}, {"identity": {"api_key": 7}}, {"context": ["x"]}, {"context": {"a": 1}}):
            assert shared_home.wire.post(path, wrong).status == 400


def _is_collection(annotation: Any) -> bool:
    kinds = [annotation, *get_args(annotation)]
    return any("List" in str(kind) or "Dict" in str(kind) or "list" in str(kind) for kind in kinds)


@pytest.mark.usefixtures("unchanged")
class TestArrow:
    @pytest.mark.parametrize("row", ARROW_ROWS, ids=lambda row: row.id)
    def test_what_is_no_arrow_stream_is_refused(self, shared_home: Home, row: Operation) -> None:
        identifier = shared_home.other("never") if row.id == "CreateTable" else shared_home.table
        path = path_of(row, quoted(identifier), query="on=id" if row.id == "MergeInsertIntoTable" else "")
        for body in (b"", b"{}", b"nonsense", b"ARROW1\0\0", b"\xff\xff\xff\xff\x10\0\0\0", b"\0" * 1000):
            answer = shared_home.wire.post(path, body)
            assert answer.status == 400, (body, answer)


class TestSizes:
    @pytest.fixture(scope="class")
    @staticmethod
    def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PennonProcess]:
        from tests.support.server import PennonProcess

        arguments = ["--max-json-bytes", "1024", "--processes", "1"]
        with PennonProcess(tmp_path_factory.mktemp("pennon"), *arguments) as server:
            yield server

    @pytest.mark.parametrize("row", JSON_ROWS, ids=lambda row: row.id)
    def test_a_body_that_is_too_large_is_refused(self, small: PennonProcess, row: Operation) -> None:
        wire = Wire(small.url)
        try:
            body = json.dumps({"x": "y" * 2000}).encode()
            assert wire.post(path_of(row, "t"), body).outcome == (413, 13)
            chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
            answer = wire.post(path_of(row, "t"), chunked, {"transfer-encoding": "chunked"})
            assert answer.outcome == (413, 13)
            wire.close()
            assert wire.get("/v1/table").status == 200
        finally:
            wire.close()

    def test_a_body_of_just_the_size_is_taken(self, small: PennonProcess) -> None:
        wire = Wire(small.url)
        try:
            body = json.dumps({"properties": {"x": ""}})
            fitting = json.dumps({"properties": {"x": "y" * (1024 - len(body))}}).encode()
            assert len(fitting) == 1024
            assert wire.post("/v1/namespace/fits/create", fitting).status == 200
            assert wire.post("/v1/namespace/burst/create", fitting + b" ").status == 413
            wire.close()
            assert wire.post("/v1/namespace/burst/exists").outcome == (404, 1)
        finally:
            wire.close()

    def test_what_is_far_too_large_is_refused_before_it_is_sent(self, small: PennonProcess) -> None:
        wire = Wire(small.url)
        with socket.create_connection((wire.address.hostname or "", wire.address.port or 0), timeout=60) as raw:
            raw.sendall(
                b"POST /v1/table/t/declare HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 1000000000000\r\n\r\n"
            )
            assert raw.recv(4096).startswith(b"HTTP/1.1 413")
