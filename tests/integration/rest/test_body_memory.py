"""Bodies in memory: little of them before it is known who calls, and no more than a budget of all together."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import NamedTuple

import pytest

from pennon.catalog import keys, open_database
from pennon.core.caller import Role
from tests.integration.rest.wire import Wire
from tests.support.server import PennonProcess
from tests.support.waiting import wait_until

MEGABYTE = 1024 * 1024
BUDGET = 32 * MEGABYTE
JSON_BYTES = 12 * MEGABYTE
#: What a process may take beyond its bodies: it has just started, and these are its first requests.
SLACK = 64 * MEGABYTE
CONNECTIONS = 30


class Guarded(NamedTuple):
    """A server with a key."""

    server: PennonProcess
    key: str
    wire: Wire

    def connect(self) -> socket.socket:
        address = self.wire.address
        assert address.hostname is not None
        assert address.port is not None
        return socket.create_connection((address.hostname, address.port), timeout=60)

    def begin(self, headers: str, *, length: int | None) -> socket.socket:
        """Send the head of a request with a large body."""
        link = self.connect()
        size = "transfer-encoding: chunked" if length is None else f"content-length: {length}"
        link.sendall(f"POST /v1/table/t/describe HTTP/1.1\r\nhost: localhost\r\n{headers}{size}\r\n\r\n".encode())
        return link


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("bodies")
    limits = ["--body-memory-bytes", str(BUDGET), "--max-json-bytes", str(JSON_BYTES)]
    with PennonProcess(folder, *limits) as server, closing(Wire(server.url)) as wire:
        with closing(open_database(f"sqlite:///{folder / '.pennon' / 'catalog.db'}")) as database:
            key = database.write(lambda connection: keys.create(connection, "ada", Role.WRITER, (), None))
        assert key is not None
        assert wire.post("/v1/namespace/list", {}, {"x-api-key": key}).status in {200, 404}  # once warm
        yield Guarded(server, key, wire)


def fill(link: socket.socket, size: int, *, chunked: bool = False) -> bytes:
    """Send bytes of a body until the server answers or has taken them all; return the head of its answer, if any."""
    piece = b"[" * 65536
    content = b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece
    link.settimeout(0.2)
    try:
        for _ in range(size // len(piece)):
            link.sendall(content)
    except (TimeoutError, ConnectionError):
        pass  # it takes no more
    try:
        return link.recv(4096)
    except (TimeoutError, ConnectionError):
        return b""


@pytest.mark.parametrize("length", [None, 10 * MEGABYTE])
@pytest.mark.parametrize("headers", ["", "x-api-key: pennon_wrong\r\n"])
def test_who_has_no_key_in_a_header_makes_the_server_hold_little(
    guarded: Guarded, headers: str, length: int | None
) -> None:
    before = guarded.server.peak_memory_bytes
    with ExitStack() as links:
        for _ in range(CONNECTIONS):
            link = links.enter_context(closing(guarded.begin(headers, length=length)))
            answer = fill(link, 8 * MEGABYTE, chunked=length is None)
            assert b" 401 " in answer.split(b"\r\n")[0] or not answer
    assert guarded.server.peak_memory_bytes - before < SLACK


def test_all_bodies_together_take_no_more_than_the_budget(guarded: Guarded) -> None:
    before = guarded.server.peak_memory_bytes
    with ExitStack() as links:
        for _ in range(CONNECTIONS):
            link = guarded.begin(f"x-api-key: {guarded.key}\r\n", length=10 * MEGABYTE)
            fill(links.enter_context(closing(link)), 9 * MEGABYTE)
        assert guarded.server.peak_memory_bytes - before < BUDGET + SLACK
        assert guarded.wire.post("/v1/table/t/exists", {}, {"x-api-key": guarded.key}).outcome == (404, 4)

    def room_is_back() -> bool:
        body = json.dumps({"pad": "x" * (10 * MEGABYTE)}).encode()
        return guarded.wire.post("/v1/table/t/exists", body, {"x-api-key": guarded.key}).outcome == (404, 4)

    wait_until(room_is_back)


def test_a_key_in_the_body_is_looked_for_in_a_megabyte(guarded: Guarded) -> None:
    body = {"identity": {"api_key": guarded.key}, "pad": "x" * (900 * 1024)}
    assert guarded.wire.post("/v1/table/t/exists", body).outcome == (404, 4)
    body["pad"] = "x" * (1100 * 1024)
    assert guarded.wire.post("/v1/table/t/exists", body).outcome == (401, 16)


def test_json_of_too_many_values_is_refused(guarded: Guarded) -> None:
    head = {"x-api-key": guarded.key}
    for body in (b'{"a":[' + b"1," * 3_000_000 + b"1]}", b"{" + b'"a":1,' * 300_000 + b'"a":1}'):
        assert guarded.wire.post("/v1/table/t/exists", body, head).outcome == (400, 13)
    assert guarded.wire.post("/v1/table/t/exists", b"x" * (JSON_BYTES + 1), head).outcome == (413, 13)


def test_nothing_of_a_request_is_remembered_before_it_is_known_who_calls(guarded: Guarded) -> None:
    before = guarded.server.peak_memory_bytes
    for number in range(150):
        padding = "x" * 900_000
        assert guarded.wire.get(f"/v1/table?a{number}={padding}").status in {400, 401}
        assert guarded.wire.get("/v1/table", {"host": f"h{number}{padding}"}).status in {401, 403}
    assert guarded.server.peak_memory_bytes - before < SLACK
