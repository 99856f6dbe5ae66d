"""Clients that stop in the middle of something: each is waited for only so long, and holds nothing after that."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.integration.data.tables import STREAM, DataTable, rows, stream_of
from tests.integration.data.test_pace import ask_slowly
from tests.integration.data.test_streams import LARGE_ROWS, address_of, in_flight
from tests.support.rest import RestClient
from tests.support.server import PennonProcess
from tests.support.waiting import SECONDS, wait_until

NAMESPACE = "POST /v1/namespace/late/create HTTP/1.1\r\nhost: localhost\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PennonProcess]:
    """A server that waits for nobody longer than two seconds."""
    arguments = ["--stall-timeout-seconds", "2", "--keep-alive-timeout-seconds", "2"]
    with PennonProcess(tmp_path_factory.mktemp("stalls"), *arguments) as started:
        yield started


@pytest.fixture
def client(server: PennonProcess) -> Iterator[RestClient]:
    """A client that keeps no connection: the server would end it before long."""
    with RestClient(server.url, {"connection": "close"}) as http:
        yield http


def connect(server: PennonProcess, request: bytes) -> socket.socket:
    link = socket.create_connection(address_of(server), timeout=SECONDS)
    link.sendall(request)
    return link


def drip(link: socket.socket, drop: bytes, *, until: list[socket.socket]) -> int:
    """Send a byte now and then until there is something to read from all of some links; return how many it were."""
    drops = 0

    def all_can_be_read() -> bool:
        nonlocal drops
        drops += link.send(drop)
        return len(select.select(until, [], [], 0)[0]) == len(until)

    wait_until(all_can_be_read)
    return drops


def read_to_end(link: socket.socket) -> bytes:
    received = b""
    while piece := link.recv(65536):
        received += piece
    return received


def test_a_body_that_stops_is_refused_and_leaves_nothing_while_a_slow_one_is_taken(
    server: PennonProcess, client: RestClient
) -> None:
    table, new = DataTable(client).create(rows(100)), DataTable(client)
    upload = table.do("multipart_write/create")["upload_id"]
    small, large = stream_of(rows(1000)), stream_of(rows(LARGE_ROWS), batch_rows=50_000)
    paths = [
        f"{table.path}/insert",
        f"{table.path}/merge_insert?on=id&when_not_matched_insert_all=true",
        f"{new.path}/create",
        f"{table.path}/insert?upload_id={upload}&upload_part_id=a",
    ]
    before = (table.versions(), files_of(server))
    halves = [f"{NAMESPACE}content-length: 1000\r\n\r\n".encode(), f"{NAMESPACE}content-length: 2\r\n\r\n{{".encode()]
    for path in paths:
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {STREAM}\r\n"
        for content in (small, large):
            part = content[: len(content) * 2 // 3]
            halves.append(f"{head}content-length: {len(content)}\r\n\r\n".encode() + part)
            halves.append(f"{head}transfer-encoding: chunked\r\n\r\n{len(part):x}\r\n".encode() + part + b"\r\n")
    links = [connect(server, half) for half in halves]
    with connect(server, f"{NAMESPACE}content-length: 100000\r\nconnection: close\r\n\r\n".encode()) as slow:
        sent = drip(slow, b" ", until=links)
        slow.sendall(b" " * (100000 - sent - 2) + b"{}")
        assert read_to_end(slow).startswith(b"HTTP/1.1 200 ")
    for link in links:
        with link:
            answer, _, body = read_to_end(link).partition(b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 400 ")
            assert b"connection: close" in answer
            assert json.loads(body)["code"] == 13
            assert "stall_timeout_seconds" in json.loads(body)["error"]
    assert (table.versions(), files_of(server)) == before
    assert new.ask("describe").status_code == 404
    table.put("insert", rows(100, 101), upload_id=upload, upload_part_id="b")
    assert table.do("multipart_write/complete", upload_id=upload)["num_inserted_rows"] == 1
    assert "Traceback" not in server.stderr


def files_of(server: PennonProcess) -> set[str]:
    return {str(path) for path in server.directory.rglob("*") if path.is_file() and ".pennon" not in path.parts}


def ended(link: socket.socket) -> bool:
    try:
        return link.recv(1) == b""
    except ConnectionResetError:
        return True


def test_an_answer_that_is_not_read_is_given_up(server: PennonProcess, client: RestClient) -> None:
    table = DataTable(client).create(pa.table({"id": np.arange(5_000_000)}))
    with ask_slowly(server, table) as link:
        wait_until(lambda: in_flight(client) == 1)
        assert not read_to_end(link).endswith(b"0\r\n\r\n")
    assert table.query(k=10).num_rows == 10
    assert "Traceback" not in server.stderr


def test_a_connection_without_a_request_is_ended_whatever_else_comes(server: PennonProcess) -> None:
    whole = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
    refused = b"POST /nowhere HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n"
    links = [connect(server, sent) for sent in (b"", whole[:-2], whole, refused)]
    for link in links[2:]:
        assert link.recv(4096).startswith(b"HTTP/1.1 ")
    links[-1].sendall(b"01234")  # a part of a body that was answered for already
    with connect(server, whole[:-2] + b"x: ") as dripping:
        with contextlib.suppress(OSError):  # unless it is the last one to be ended
            drip(dripping, b"a", until=[*links, dripping])
        assert ended(dripping)
    for link in links:
        with link:
            assert ended(link)


def test_a_whole_body_is_inserted_while_all_threads_wait_for_slow_ones(tmp_path: Path) -> None:
    with PennonProcess(tmp_path, "--data-threads", "2") as server, RestClient(server.url) as http:
        table = DataTable(http).create(rows(10))
        body = stream_of(rows(10, 6_000))
        assert len(body) > 128 * 1024
        head = f"POST {table.path}/insert HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
        with connect(server, head.encode() + body[:-1000]), connect(server, head.encode() + body[:-1000]):
            wait_until(lambda: in_flight(http) >= 3)
            time.sleep(0.5)  # until threads read from both
            for _ in range(5):
                table.put("insert", rows(10, 6_000))
        assert table.count() == 10 + 5 * 5_990
