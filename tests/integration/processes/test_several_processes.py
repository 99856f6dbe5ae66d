"""A server of several processes behaves as one: what one of them did, all of them know."""

from __future__ import annotations

import io
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from tests.conftest import StartPennon
from tests.support.server import PennonProcess
from tests.support.waiting import wait_until

ARROW = {"content-type": "application/vnd.apache.arrow.stream"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PennonProcess]:
    """A server for all tests here; each test has its own table."""
    with PennonProcess(tmp_path_factory.mktemp("pennon"), "--processes", "2") as running:
        yield running


@pytest.fixture
def mortal(start_pennon: StartPennon) -> PennonProcess:
    """A server for a test that ends it, or a part of it."""
    return start_pennon("--processes", "2")


class InheritingPennon(PennonProcess):
    """A server whose processes accept from one socket, as on systems that do not balance a shared port."""

    program = "tests.support.inheriting_server"


def children_of(pid: int) -> set[int]:
    """Return the processes a process has started, by its own record."""
    return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


def encode(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


#: Every request has a connection of its own, which any of the processes may get.
CLIENT = httpx.Client(timeout=60, limits=httpx.Limits(max_keepalive_connections=0))


def post(server: PennonProcess, path: str, **request: Any) -> httpx.Response:
    return CLIENT.post(server.url + path, **request)


def test_every_process_answers_requests(server: PennonProcess) -> None:
    for _ in range(100):
        assert CLIENT.get(f"{server.url}/healthz").status_code == 200
    text = CLIENT.get(f"{server.url}/metrics").text
    counted = re.search(r'pennon_requests_total{operation="page",status="200"} (\d+)', text)
    assert counted is not None
    assert int(counted[1]) >= 100
    assert len(children_of(server.pid)) == 2


def test_processes_that_cannot_share_a_port_share_a_socket(tmp_path: Path) -> None:
    with InheritingPennon(tmp_path, "--processes", "2") as server:
        for _ in range(50):
            assert CLIENT.get(f"{server.url}/healthz").status_code == 200
        before = children_of(server.pid)
        for child in before:
            arguments = Path(f"/proc/{child}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
            assert arguments[-2] == str(server.pid).encode()  # and the socket
        victim = min(before)
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: len(children_of(server.pid) - {victim}) == 2)
        assert CLIENT.get(f"{server.url}/healthz").status_code == 200
        assert server.stop() == 0


def test_a_write_through_one_process_is_read_through_any_other(server: PennonProcess) -> None:
    for number in range(40):
        assert post(server, f"/v1/namespace/n{number}/create", json={}).status_code == 200
        assert post(server, f"/v1/namespace/n{number}/exists", json={}).status_code == 200
        assert post(server, f"/v1/namespace/n{number}/exists", json={}).status_code == 200


def test_single_rows_from_many_connections_all_arrive_once(server: PennonProcess) -> None:
    assert post(server, "/v1/table/t/create", content=encode(pa.table({"a": [0]})), headers=ARROW).status_code == 200

    def insert(number: int) -> int:
        return post(server, "/v1/table/t/insert", content=encode(pa.table({"a": [number]})), headers=ARROW).status_code

    with ThreadPoolExecutor(8) as threads:
        statuses = list(threads.map(insert, range(1, 65)))
    assert set(statuses) == {200}
    assert post(server, "/v1/table/t/count_rows", json={}).json() == 65


def test_upserts_of_the_same_keys_through_all_processes_leave_one_row_a_key(server: PennonProcess) -> None:
    rows = encode(pa.table({"k": [1, 2, 3], "v": [0, 0, 0]}))
    assert post(server, "/v1/table/upserted/create", content=rows, headers=ARROW).status_code == 200
    path = "/v1/table/upserted/merge_insert?on=k&when_matched_update_all=true&when_not_matched_insert_all=true"

    def upsert(number: int) -> int:
        body = encode(pa.table({"k": list(range(1, 11)), "v": [number] * 10}))
        return post(server, path, content=body, headers=ARROW).status_code

    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(upsert, range(16))) == {200}
    assert post(server, "/v1/table/upserted/count_rows", json={}).json() == 10


def test_an_index_that_one_process_builds_is_listed_by_all(server: PennonProcess) -> None:
    rows = encode(pa.table({"a": list(range(1000))}))
    assert post(server, "/v1/table/indexed/create", content=rows, headers=ARROW).status_code == 200
    body = {"column": "a", "index_type": "BTREE"}
    assert post(server, "/v1/table/indexed/create_scalar_index", json=body).status_code == 200

    def is_done() -> bool:
        listed = post(server, "/v1/table/indexed/index/list", json={}).json()["indexes"]
        return [index["status"] for index in listed] == ["done"]

    wait_until(is_done)
    assert all(is_done() for _ in range(10))


def test_dead_processes_are_replaced_and_their_active_requests_not_counted(mortal: PennonProcess) -> None:
    before, address = children_of(mortal.pid), httpx.URL(mortal.url)
    with socket.create_connection((address.host, address.port or 0)) as unfinished:
        head = f"POST /v1/namespace/n/create HTTP/1.1\r\nhost: {address.host}\r\ncontent-length: 2\r\n\r\n"
        unfinished.sendall(head.encode())
        wait_until(lambda: _under_way(mortal) == 2)
        for child in before:
            os.kill(child, signal.SIGKILL)
        wait_until(lambda: len(children_of(mortal.pid) - before) == 2 and len(children_of(mortal.pid)) == 2)
    wait_until(lambda: all(_is_up(mortal) for _ in range(10)))
    wait_until(lambda: _under_way(mortal) == 1)


def _under_way(server: PennonProcess) -> float:
    """Return the number of active requests, including this one."""
    found = re.search(r"^pennon_requests_in_flight (\S+)$", CLIENT.get(f"{server.url}/metrics").text, re.MULTILINE)
    assert found is not None
    return float(found[1])


def _is_up(server: PennonProcess) -> bool:
    try:
        return CLIENT.get(f"{server.url}/healthz", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def test_all_processes_end_with_the_one_that_started_them(mortal: PennonProcess) -> None:
    children = children_of(mortal.pid)
    mortal.kill()
    wait_until(lambda: not any(Path(f"/proc/{child}").exists() for child in children))


def test_a_stopped_server_ends_all_its_processes_and_exits_with_0(mortal: PennonProcess) -> None:
    children = children_of(mortal.pid)
    assert mortal.stop() == 0
    assert not any(Path(f"/proc/{child}").exists() for child in children)


TOLD_WHILE_IT_STARTS = """
import sys
from pathlib import Path
from pennon.core.settings import load_settings
from pennon.server import supervisor

class Impatient(supervisor._Supervisor):
    def start(self):
        self._stopping.set()  # as a signal does
        return super().start()

supervisor._Supervisor = Impatient
supervisor.supervise(load_settings(directory=Path(sys.argv[1]), port=0))
"""


def test_a_server_stopped_while_it_starts_prints_no_error(tmp_path: Path) -> None:
    command = [sys.executable, "-c", TOLD_WHILE_IT_STARTS, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_a_port_that_another_server_has_is_not_shared_with_it(server: PennonProcess, start_pennon: StartPennon) -> None:
    port = server.url.rsplit(":", 1)[1]
    with pytest.raises(Exception, match="Choose another port"):
        start_pennon("--processes", "2", "--port", port)
