"""Requests are repeated when that is harmless, and only then; errors come back as what they are."""

from __future__ import annotations

import pickle
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from lance_namespace.errors import (
    ConcurrentModificationError,
    ErrorCode,
    InternalError,
    InvalidInputError,
    LanceNamespaceError,
    PermissionDeniedError,
    ServiceUnavailableError,
    TableColumnNotFoundError,
    ThrottlingError,
    from_error_code,
)

from pennon.client import transport as module
from pennon.client.server_events import ServerEvent
from pennon.client.transport import Transport, new_key
from tests.unit.client.scripted import ScriptedServer, answer, hang_up, stream

BUSY = answer(503, {"error": "not now", "code": 17}, {"retry-after": "0"})
GONE = answer(429, {"error": "slow down", "code": 21})


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FIRST_BACKOFF_SECONDS", 0.001)


def test_a_request_carries_its_body_key_and_database() -> None:
    with ScriptedServer([answer(200, {"a": 1})]) as server:
        transport = Transport(f"{server.url}/", "secret", database="lake", headers={"x-more": "1"})
        assert transport.post("/v1/x", {"b": 2}, idempotency_key="k") == {"a": 1}
    (request,) = server.received
    assert (request.method, request.path, request.body) == ("POST", "/v1/x", {"b": 2})
    assert request.headers["x-api-key"] == "secret"
    assert request.headers["x-lancedb-database"] == "lake"
    assert request.headers["x-more"] == "1"
    assert request.headers["idempotency-key"] == "k"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["user-agent"].startswith("pennon/")


def test_headers_that_change_are_asked_for_with_every_request() -> None:
    tokens = iter(["one", "two"])
    with ScriptedServer([answer(200, {})]) as server:
        transport = Transport(server.url, header_provider=lambda: {"authorization": next(tokens)})
        transport.read("/v1/x")
        transport.read("/v1/x")
    assert [request.headers["authorization"] for request in server.received] == ["one", "two"]


@pytest.mark.parametrize("fault", [BUSY, GONE, hang_up, answer(502, b"<html>bad gateway</html>")])
def test_what_reads_is_repeated(fault: Any) -> None:
    with ScriptedServer([fault, fault, answer(200, {"a": 1})]) as server:
        assert Transport(server.url).read("/v1/x") == {"a": 1}
    assert len(server.received) == 3


@pytest.mark.parametrize("fault", [BUSY, GONE, hang_up, answer(409, {"error": "elsewhere", "code": 14})])
def test_what_changes_is_repeated_under_its_key(fault: Any) -> None:
    key = new_key()
    with ScriptedServer([fault, answer(202, {"job_id": "j"})]) as server:
        assert Transport(server.url).post("/v1/x", {"a": 1}, idempotency_key=key) == {"job_id": "j"}
    assert [(request.headers["idempotency-key"], request.body) for request in server.received] == [(key, {"a": 1})] * 2


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (BUSY, ServiceUnavailableError),
        (GONE, ThrottlingError),
        (answer(409, {"error": "no", "code": 14}), ConcurrentModificationError),
    ],
)
def test_what_changes_without_a_key_is_not_repeated(fault: Any, error: type[Exception]) -> None:
    with ScriptedServer([fault, answer(200, {})]) as server:
        with pytest.raises(error):
            Transport(server.url).post("/v1/x")
        assert len(server.received) == 1


def test_a_lost_response_to_a_write_is_its_own_error() -> None:
    with ScriptedServer([hang_up, answer(200, {})]) as server:
        with pytest.raises(ServiceUnavailableError, match="may or may not have been executed"):
            Transport(server.url).post("/v1/x")
        assert len(server.received) == 1


@pytest.mark.parametrize("repeats", [True, False])
def test_a_persistent_fault_is_raised_after_the_retries(repeats: bool) -> None:
    with ScriptedServer([BUSY]) as server:
        with pytest.raises(ServiceUnavailableError, match="not now"):
            Transport(server.url).post("/v1/x", idempotency_key="k" if repeats else None)
        assert len(server.received) == (4 if repeats else 1)


def test_a_server_that_is_not_there_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(
            ServiceUnavailableError, match=f"Cannot connect to the server at {url}: Failed to establish a new"
        ):
            Transport(url).post("/v1/x")


def test_what_never_arrived_is_sent_again_without_a_key() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    attempts = 0

    def headers() -> dict[str, str]:
        nonlocal attempts
        attempts += 1
        return {}

    with pytest.raises(ServiceUnavailableError):
        Transport(f"http://127.0.0.1:{port}", header_provider=headers).post("/v1/x")
    assert attempts == 4


@pytest.mark.parametrize("code", [code for code in ErrorCode if code not in module._TRANSIENT])
def test_every_code_is_an_error_of_its_class_and_not_repeated(code: ErrorCode) -> None:
    body = {"error": "the reason", "code": int(code), "detail": "the advice", "request_id": "r1"}
    with ScriptedServer([answer(400, body)]) as server:
        with pytest.raises(LanceNamespaceError, match="the reason") as caught:
            Transport(server.url).read("/v1/x")
        assert len(server.received) == 1
    assert type(caught.value) is type(from_error_code(code, ""))
    assert any("the advice" in note for note in caught.value.__notes__)
    assert any("r1" in note for note in caught.value.__notes__)


@pytest.mark.parametrize(
    ("status", "error"),
    [(404, InternalError), (403, PermissionDeniedError), (307, InternalError), (500, InternalError)],
)
def test_an_answer_that_is_not_pennons_is_quoted(status: int, error: type[Exception]) -> None:
    with (
        ScriptedServer([answer(status, b"<html>somebody else</html>")]) as server,
        pytest.raises(error, match=rf"not a Pennon server.*{status}: <html>somebody else"),
    ):
        Transport(server.url).read("/v1/x")


@pytest.mark.parametrize("body", [b"<html>", b"[1]", b"\xff"])
def test_a_success_that_is_not_pennons_is_an_error(body: bytes) -> None:
    with (
        ScriptedServer([answer(200, body)]) as server,
        pytest.raises(ServiceUnavailableError, match="is not a Pennon server"),
    ):
        Transport(server.url).read("/v1/x")


def test_all_pages_of_a_listing_are_asked_for() -> None:
    pages = [answer(200, {"jobs": [{"n": 1}, {"n": 2}], "page_token": "t"}), answer(200, {"jobs": [{"n": 3}]})]
    with ScriptedServer(pages) as server:
        assert Transport(server.url).read_all("/v1/x", {"a": 1}, "jobs") == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert [request.body for request in server.received] == [{"a": 1}, {"a": 1, "page_token": "t"}]


def test_a_listing_ends_at_its_limit() -> None:
    page = answer(200, {"jobs": [{"n": 1}, {"n": 2}], "page_token": "t"})
    with ScriptedServer([page]) as server:
        assert len(Transport(server.url).read_all("/v1/x", {}, "jobs", 4)) == 4
        assert Transport(server.url).read_all("/v1/x", {}, "jobs", 0) == []
    assert [request.body["limit"] for request in server.received] == [4, 2]


def test_a_transport_can_be_pickled() -> None:
    with ScriptedServer([answer(200, {"a": 1})]) as server:
        copy = pickle.loads(pickle.dumps(Transport(server.url, "secret")))  # noqa: S301
        assert copy.read("/v1/x") == {"a": 1}
    assert server.received[0].headers["x-api-key"] == "secret"


class TestStreams:
    def test_events_come_while_the_stream_is_open(self) -> None:
        heard, goes_on = threading.Event(), []
        wait = lambda: goes_on.append(heard.wait(30))  # noqa: E731
        with ScriptedServer([stream(b"id: 1\ndata: a\n\n", b": alive\n\n", then=wait)]) as server:
            events = Transport(server.url).stream_events("/v1/e", after="0")
            assert next(events) == ServerEvent("message", "a", "1")
            heard.set()
            assert list(events) == []
        assert goes_on == [True]
        assert server.received[0].headers["last-event-id"] == "0"
        assert server.received[0].headers["accept"] == "text/event-stream"

    def test_a_quiet_stream_ends(self) -> None:
        released = threading.Event()
        with ScriptedServer([stream(b"data: a\n\n", then=lambda: released.wait(30))]) as server:
            events = Transport(server.url).stream_events("/v1/e", quiet_seconds=2)
            assert [event.data for event in events] == ["a"]
            released.set()

    def test_a_stream_ends_when_its_time_has_come(self) -> None:
        released = threading.Event()
        with ScriptedServer([stream(b"data: a\n\n", then=lambda: released.wait(30))]) as server:
            events = Transport(server.url).stream_events("/v1/e", until=time.monotonic() + 2)
            assert [event.data for event in events] == ["a"]
            released.set()

    def test_a_broken_stream_ends(self) -> None:
        def cut(handler: Any) -> None:
            handler.send_response(200)
            handler.send_header("transfer-encoding", "chunked")
            handler.end_headers()
            handler.wfile.write(b"9\r\ndata: a\n\n\r\n50\r\ndata:")
            handler.close_connection = True

        with ScriptedServer([cut]) as server:
            assert [event.data for event in Transport(server.url).stream_events("/v1/e")] == ["a"]

    def test_a_refused_stream_is_an_error(self) -> None:
        with (
            ScriptedServer([answer(404, {"error": "no job", "code": 12})]) as server,
            pytest.raises(TableColumnNotFoundError, match="no job"),
        ):
            next(Transport(server.url).stream_events("/v1/e"))


def test_invalid_input_is_not_repeated_even_under_a_key() -> None:
    with ScriptedServer([answer(400, {"error": "wrong", "code": 13})]) as server:
        with pytest.raises(InvalidInputError):
            Transport(server.url).post("/v1/x", idempotency_key="k")
        assert len(server.received) == 1


def test_a_listing_is_read_page_by_page() -> None:
    pages = [answer(200, {"tables": ["a", "b"], "page_token": "t/1"}), answer(200, {"tables": ["c"]})]
    with ScriptedServer(pages) as server:
        assert Transport(server.url).get_all("/v1/table", "tables") == ["a", "b", "c"]
    paths = [(request.method, request.path) for request in server.received]
    assert paths == [
        ("GET", "/v1/table"),
        ("GET", "/v1/table?page_token=t%2F1"),
    ]


def test_no_more_of_a_listing_is_read_than_is_wanted() -> None:
    with ScriptedServer([answer(200, {"tables": ["a", "b"], "page_token": "t"})]) as server:
        assert Transport(server.url).get_all("/v1/table", "tables", 2) == ["a", "b"]
    assert [request.path for request in server.received] == ["/v1/table?limit=2"]


def test_bytes_are_passed_on_as_they_come() -> None:
    came = threading.Event()
    with ScriptedServer([stream(b"first", then=lambda: came.wait(30))]) as server:
        pieces = Transport(server.url).stream_bytes("/v1/x", {"a": 1})
        assert next(pieces) == b"first"
        came.set()
        assert list(pieces) == []


def break_off(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("content-length", "8")
    handler.end_headers()
    handler.wfile.write(b"half")
    handler.close_connection = True


def test_a_stream_that_is_refused_or_breaks_is_an_error() -> None:
    with (
        ScriptedServer([answer(404, {"error": "There is no column 'x'.", "code": 12})]) as server,
        pytest.raises(TableColumnNotFoundError, match="no column 'x'"),
    ):
        list(Transport(server.url).stream_bytes("/v1/x"))
    with (
        ScriptedServer([break_off]) as server,
        pytest.raises(ServiceUnavailableError, match="Lost the connection"),
    ):
        list(Transport(server.url).stream_bytes("/v1/x"))


def test_who_does_not_want_to_wait_says_so() -> None:
    with ScriptedServer([BUSY]) as server:
        with pytest.raises(ServiceUnavailableError):
            Transport(server.url, attempts=1).read("/v1/x")
        assert len(server.received) == 1
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ServiceUnavailableError):
            Transport(url, attempts=1, seconds=0.05).read("/v1/x")
