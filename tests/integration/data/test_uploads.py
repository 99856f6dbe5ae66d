"""Uploads in parts, while servers come and go."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from lance_namespace import CreateTableRequest

from pennon.catalog import uploads
from pennon.core.clock import now_millis
from pennon.namespace import PennonNamespace
from tests.conftest import StartPennon
from tests.integration.data.tables import DataTable, error, rows, stream_of
from tests.integration.data.test_streams import address_of, in_flight
from tests.support.rest import RestClient
from tests.support.server import PennonProcess
from tests.support.waiting import wait_until


def begin(table: DataTable) -> str:
    upload_id: str = table.do("multipart_write/create")["upload_id"]
    return upload_id


def part(table: DataTable, upload_id: str, name: str, data: pa.Table, **options: str) -> None:
    table.put("insert", data, upload_id=upload_id, upload_part_id=name, **options)


def test_an_upload_outlives_the_servers_that_take_it_in(
    catalog_url: str, tmp_path: Path, start_pennon: StartPennon
) -> None:
    options = ("--database", catalog_url, "--root", str(tmp_path / "lake"))
    one, two = start_pennon(*options), start_pennon(*options)
    with RestClient(one.url) as first, RestClient(two.url) as second:
        here = DataTable(first).create(rows(3))
        there = here.on(second)
        upload_id = begin(here)
        one.kill()
        part(there, upload_id, "a", rows(10, 13))
        one.start()
        part(here, upload_id, "b", rows(20, 23))
        part(here, upload_id, "a", rows(10, 12))  # sent again, to another server
        with half_a_part(two, there, upload_id):
            wait_until(lambda: in_flight(second) == 2)
            two.kill()
        two.start()
        assert there.count() == 3
        assert there.do("multipart_write/complete", upload_id=upload_id)["num_inserted_rows"] == 5
        for table in (here, there):
            assert table.ids() == [0, 1, 2, 10, 11, 20, 21, 22]
            assert table.versions() == [1, 2]
            assert error(table.ask("multipart_write/complete", upload_id=upload_id)) == (404, 4)


@contextmanager
def half_a_part(server: PennonProcess, table: DataTable, upload_id: str) -> Iterator[None]:
    """Send all of a part but its end, and keep the connection."""
    content = stream_of(rows(100_000))
    host, port = address_of(server)
    address = f"{table.path}/insert?upload_id={upload_id}&upload_part_id=c"
    head = f"POST {address} HTTP/1.1\r\nhost: {host}:{port}\r\ncontent-length: {len(content)}\r\n\r\n"
    with socket.create_connection((host, port)) as link:
        link.sendall(head.encode() + content[:-1])
        yield


@pytest.mark.parametrize("kind", [pa.list_(pa.string(), 1), pa.list_(pa.list_(pa.struct([("a", pa.int8())]), 1))])
def test_a_part_that_lance_cannot_store_is_refused(table: DataTable, kind: pa.DataType) -> None:
    given = {"upload_id": begin(table), "upload_part_id": "a", "mode": "overwrite"}
    assert error(table.send("insert", pa.table({"column": pa.nulls(1, kind)}), **given)) == (400, 20)
    reserved = pa.table({"_rowid": [1]})
    assert error(table.send("insert", reserved, **given)) == (400, 20)


def test_an_upload_is_of_one_table(table: DataTable) -> None:
    upload_id = begin(table)
    other = DataTable(table.http).create(rows(1))
    for verb in ("complete", "abort"):
        assert error(other.ask(f"multipart_write/{verb}", upload_id=upload_id)) == (404, 4)
    given = {"upload_id": upload_id, "upload_part_id": "a"}
    assert error(other.send("insert", rows(1), **given)) == (404, 4)
    table.do("multipart_write/abort", upload_id=upload_id)


def test_two_processes_may_give_up_the_same_upload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    namespace = PennonNamespace(directory=str(tmp_path))
    namespace.create_table(CreateTableRequest(id=["t"]), stream_of(rows(3)))
    namespace.uploads.begin_upload(("t",), None)
    begun, both = uploads.created_before, 2
    monkeypatch.setattr(uploads, "created_before", lambda *when: begun(*when) * both)  # as both have read it
    services, later = namespace.services, now_millis() + 1
    services.uploads.sweep(later)
    assert services.database.read(lambda connection: begun(connection, later)) == []
    namespace.close()
