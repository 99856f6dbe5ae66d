"""Answers keep pace with who reads them: memory stays bounded, and work ends when nobody waits."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pennon.catalog import Database, open_database, tables
from tests.conftest import StartPennon
from tests.integration.data.tables import DataTable, stream_of
from tests.integration.data.test_streams import address_of, in_flight
from tests.support.rest import RestClient
from tests.support.server import PennonProcess
from tests.support.waiting import wait_until

ROWS, WIDTH = 300_000, 256
MEGABYTE = 1024 * 1024


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[PennonProcess, DataTable]]:
    """A server with a table whose rows are 300 MB."""
    flat = pa.array(np.arange(ROWS * WIDTH, dtype=np.float32))
    data = pa.table({"id": range(ROWS), "vector": pa.FixedSizeListArray.from_arrays(flat, WIDTH)})
    with PennonProcess(tmp_path_factory.mktemp("wide")) as server, RestClient(server.url) as http:
        yield server, DataTable(http).create(data)


def resident(server: PennonProcess) -> int:
    """Return how much memory a server holds."""
    pages = int(Path(f"/proc/{server.pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096


def ask_slowly(server: PennonProcess, table: DataTable) -> socket.socket:
    """Ask for all rows and read no more than the first bytes."""
    link = _ask(server, table, b'{"k": 9223372036854775807}')
    assert link.recv(12) == b"HTTP/1.1 200"
    return link


def _ask(server: PennonProcess, table: DataTable, query: bytes) -> socket.socket:
    host, port = address_of(server)
    link = socket.create_connection((host, port), timeout=60)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    head = f"POST {table.path}/query HTTP/1.1\r\nhost: {host}:{port}\r\ncontent-length: {len(query)}\r\n\r\n"
    link.sendall(head.encode() + query)
    return link


def test_readers_that_stall_do_not_make_the_server_grow(wide: tuple[PennonProcess, DataTable]) -> None:
    server, table = wide
    assert table.query().num_rows == ROWS  # whatever is loaded once is loaded now
    before = resident(server)
    links = [ask_slowly(server, table) for _ in range(3)]
    try:
        peak = max(_watch(server, 20))
        assert in_flight(table.http) == 4
        # Three whole answers would be 900 MB.
        assert peak - before < 450 * MEGABYTE
    finally:
        for link in links:
            link.close()
    wait_until(lambda: in_flight(table.http) == 1)


def _watch(server: PennonProcess, times: int) -> Iterator[int]:
    for _ in range(times):
        time.sleep(0.1)
        yield resident(server)


def test_an_upload_does_not_make_the_server_grow_however_few_bytes_it_was(
    wide: tuple[PennonProcess, DataTable],
) -> None:
    server, table = wide
    other = DataTable(table.http).create(pa.table({"id": [0]}))
    part = pa.table({"id": np.zeros(500_000, dtype=np.int64)})
    content = stream_of(pa.concat_tables([part] * 200), "zstd")
    assert len(content) < MEGABYTE
    before = resident(server)
    with ThreadPoolExecutor(1) as pool:
        upload = pool.submit(other.put, "insert", content)
        peak = max(_watch_until(server, upload.done))
        assert upload.result()["num_inserted_rows"] == 200 * part.num_rows
    # All of them at once would be 800 MB.
    assert peak - before < 400 * MEGABYTE


def _watch_until(server: PennonProcess, over: Callable[[], bool]) -> Iterator[int]:
    while not over():
        yield resident(server)
        time.sleep(0.01)
    yield resident(server)


def test_a_client_that_leaves_leaves_no_work_behind(wide: tuple[PennonProcess, DataTable]) -> None:
    server, table = wide
    for _ in range(5):
        ask_slowly(server, table).close()
    wait_until(lambda: in_flight(table.http) == 1)
    assert table.count() == ROWS


def test_nothing_is_read_for_clients_that_left_while_they_waited(start_pennon: StartPennon) -> None:
    server = start_pennon("--data-threads", "2")
    with RestClient(server.url) as http, ThreadPoolExecutor(2) as pool, closing(_catalog(server)) as catalog:
        table = DataTable(http).create(pa.table({"id": [1]}))
        found = catalog.read(lambda connection: tables.find(connection, tuple(table.names)))
        assert found is not None
        with catalog.exclusive(found.id):  # what changes the table waits, on all threads that there are
            changes = [pool.submit(table.do, "delete", {"predicate": "id = 2"}) for _ in range(2)]
            wait_until(lambda: in_flight(http) == 3)
            # What tells of tables has threads of its own.
            assert table.do("describe", {"load_detailed_metadata": True})["version"] == 1
            assert table.versions() == [1]
            assert table.do("tags/list")["tags"] == {}
            assert http.get("/v1/namespace/%24/table/list")["tables"] == table.names
            links = [_ask(server, table, b'{"k": 1, "filter": "id = 1"}') for _ in range(5)]
            wait_until(lambda: in_flight(http) == 8)
            for link in links:
                link.close()
            for _ in range(2):  # by then the server has seen that they left
                assert in_flight(http) == 8
        wait_until(lambda: in_flight(http) == 1)
        assert all(change.result()["version"] for change in changes)
        counted = http.raw.get("/metrics").text
        assert 'pennon_requests_total{operation="QueryTable",status="400"} 5' in counted
        assert table.ids(filter="id = 1") == [1]


def _catalog(server: PennonProcess) -> Database:
    return open_database(f"sqlite:///{server.directory / '.pennon' / 'catalog.db'}")


def test_an_answer_begins_before_it_is_complete(wide: tuple[PennonProcess, DataTable]) -> None:
    _, table = wide
    with table.http.raw.stream("POST", f"{table.path}/query", json={"k": 2**63 - 1}) as answer:
        assert "content-length" not in answer.headers
        size = sum(len(chunk) for chunk in answer.iter_raw())
    assert size > ROWS * WIDTH * 4


def test_stalled_uploads_do_not_keep_others_from_being_served(start_pennon: StartPennon) -> None:
    server = start_pennon("--data-threads", "2")
    with RestClient(server.url) as http:
        table = DataTable(http).create(pa.table({"id": [1]}))
        content = stream_of(pa.table({"id": range(100_000)}))
        host, port = address_of(server)
        head = f"POST {table.path}/insert HTTP/1.1\r\nhost: {host}:{port}\r\ncontent-length: {len(content)}\r\n\r\n"
        links = [socket.create_connection((host, port)) for _ in range(8)]
        for number, link in enumerate(links):  # half of them stall before their rows, the others among these
            link.sendall(head.encode() + content[: len(content) // 2 * (number % 2)])
        wait_until(lambda: in_flight(http) == 9)
        assert table.count() == 1
        assert table.query().num_rows == 1
        table.put("insert", pa.table({"id": [2]}))
        for _ in range(20):  # each is more than a thread waits for before it begins, and is given to another one
            table.put("insert", content)
        for link in links:
            link.close()
        wait_until(lambda: in_flight(http) == 1)
        assert table.count() == 2 + 20 * 100_000


def test_a_server_stops_although_uploads_and_answers_stall(start_pennon: StartPennon) -> None:
    server = start_pennon("--shutdown-timeout-seconds", "1")
    with RestClient(server.url) as http:
        rows = 5_000_000  # 40 MB, which are more than fit between the server and who does not read them
        table = DataTable(http).create(pa.table({"id": np.arange(rows)}))
        content = stream_of(pa.table({"id": range(100_000)}))
        host, port = address_of(server)
        head = f"POST {table.path}/insert HTTP/1.1\r\nhost: {host}:{port}\r\ncontent-length: {len(content)}\r\n\r\n"
        with ask_slowly(server, table), socket.create_connection((host, port)) as link:
            link.sendall(head.encode() + content[: len(content) // 2])
            wait_until(lambda: in_flight(http) == 3)
            assert server.stop() == 0
    server.start()
    with RestClient(server.url) as http:
        assert table.on(http).count() == rows
