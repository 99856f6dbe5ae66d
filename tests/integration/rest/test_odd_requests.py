"""Requests that are no HTTP, or HTTP that Pennon does not speak: the answer is still the protocol's."""

from __future__ import annotations

import gzip
import json
import socket
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.rest.samples import STREAM, stream

if TYPE_CHECKING:
    from tests.integration.rest.samples import Home
    from tests.integration.rest.wire import Wire

POST = b"POST /v1/namespace/%24/describe HTTP/1.1\r\nhost: localhost\r\n"
CLOSE = b"connection: close\r\n"
UNREADABLE = {
    "no HTTP at all": b"hello\r\n\r\n",
    "TLS": b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "an unknown method": b"FETCH /v1/table HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "two lengths": POST + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}",
    "a length and chunks": POST + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "a length that is none": POST + b"content-length: -1\r\n\r\n{}",
    "a NUL in a header": POST + b"x: a\0b\r\ncontent-length: 2\r\n\r\n{}",
}


def exchange(wire: Wire, request: bytes) -> bytes:
    """Send bytes and return all that comes back until the server closes."""
    with socket.create_connection((wire.address.hostname, wire.address.port), timeout=30) as connection:
        connection.sendall(request)
        received = b""
        while piece := connection.recv(65536):
            received += piece
    return received


def answers_of(received: bytes) -> list[tuple[int, Any]]:
    """Return the status and the JSON of each answer in what came back."""
    found = []
    while received:
        head, _, rest = received.partition(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        length = int(fields[b"content-length"])
        found.append((int(head.split()[1]), json.loads(rest[:length])))
        received = rest[length:]
    return found


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_cannot_be_read_is_answered_with_the_error_of_the_protocol(wire: Wire, name: str) -> None:
    [(status, body)] = answers_of(exchange(wire, UNREADABLE[name]))
    assert (status, body["code"]) == (400, 13)
    assert body.keys() == {"error", "code", "detail", "instance", "request_id"}


def test_pipelined_requests_are_answered_in_order(wire: Wire, home: Home) -> None:
    names = [f"{home.name}%24n{number}" for number in range(10)]
    head = "POST /v1/namespace/{}/create HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n"
    requests = [f"{head.format(name)}\r\n{{}}".encode() for name in (*names, names[0])]
    requests.append(POST + CLOSE + b"\r\n")
    answers = answers_of(exchange(wire, b"".join(requests)))
    assert [status for status, _ in answers] == [200] * 10 + [409, 200]


def test_chunks_may_have_extensions_and_trailers(wire: Wire) -> None:
    body = b"1;a=b\r\n{\r\n1\r\n}\r\n0\r\nx-checksum: 5\r\n\r\n"
    request = POST + CLOSE + b"transfer-encoding: chunked\r\ntrailer: x-checksum\r\n\r\n" + body
    assert [status for status, _ in answers_of(exchange(wire, request))] == [200]


@pytest.mark.parametrize(
    ("path", "allowed"), [("/v1/table/t/describe", "POST"), ("/v1/table", "GET"), ("/healthz", "GET, HEAD")]
)
def test_a_wrong_method_is_answered_with_the_allowed_ones(wire: Wire, path: str, allowed: str) -> None:
    for method in ("OPTIONS", "PUT", "PATCH", "DELETE", "TRACE"):
        answer = wire.send(method, path)
        assert answer.outcome == (405, 0)
        assert answer.headers["allow"] == allowed


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
def test_an_encoded_body_is_refused_for_what_it_is(wire: Wire, home: Home, encoding: str) -> None:
    home.fill()
    headers = {"content-encoding": encoding}
    answers = [
        wire.post(f"/v1/table/{home.name}%24t/insert", gzip.compress(stream()), {**STREAM, **headers}),
        wire.post(f"/v1/table/{home.name}%24t/describe", gzip.compress(b"{}"), headers),
    ]
    for answer in answers:
        assert answer.outcome == (406, 0)
        assert encoding in answer.json["error"]
