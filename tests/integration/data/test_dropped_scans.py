"""Answers that take their time: they are read to the end, although their table is dropped meanwhile."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from pennon.catalog.database.postgres import PostgresDatabase
from pennon.namespace import PennonNamespace
from tests.integration.data.tables import DataTable
from tests.support.rest import RestClient

if TYPE_CHECKING:
    from tests.conftest import StartPennon

FRAGMENTS, ROWS, WIDTH = 8, 20_000, 128


def fragment(number: int) -> pa.Table:
    """Return rows of 10 MB."""
    flat = pa.array(np.full(ROWS * WIDTH, number, dtype=np.float32))
    ids = pa.array(range(number * ROWS, (number + 1) * ROWS))
    return pa.table({"id": ids, "vector": pa.FixedSizeListArray.from_arrays(flat, WIDTH)})


def test_a_scan_goes_on_when_another_server_drops_its_table(
    catalog_url: str, tmp_path: Path, start_pennon: StartPennon
) -> None:
    options = ("--database", catalog_url, "--root", str(tmp_path / "lake"), "--workers", "0")
    reading, dropping = start_pennon(*options), start_pennon(*options)
    with RestClient(reading.url) as reader, RestClient(dropping.url) as dropper:
        table = DataTable(reader).create(fragment(0))
        for number in range(1, FRAGMENTS):
            table.put("insert", fragment(number))
        place = Path(table.do("describe")["location"])
        with reader.raw.stream("POST", f"{table.path}/query", json={"k": 2**63 - 1}) as answer:
            pieces = answer.iter_raw()
            content = next(pieces)
            assert table.on(dropper).ask("drop").status_code == 200
            assert table.ask("describe").status_code == 404
            content += b"".join(pieces)
        found = pa.ipc.open_file(content).read_all()
        assert sorted(found["id"].to_pylist()) == list(range(FRAGMENTS * ROWS))
        again = DataTable(dropper, *table.names).create(fragment(0))
        assert again.count() == ROWS
        new_place = Path(again.do("describe")["location"])
        read_blob_of_dropped_table(reader, dropper)
    assert not place.is_symlink()
    # Nobody reads it any more: who looks for what is left over removes it, and lets its name lead to the new table.
    namespace = PennonNamespace(directory=str(tmp_path / "other"), database=catalog_url, root=str(tmp_path / "lake"))
    namespace.maintain()
    assert place.resolve() == new_place.resolve() != place


def read_blob_of_dropped_table(reader: RestClient, dropper: RestClient) -> None:
    blob = pa.field("blob", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    whole = np.random.default_rng(1).bytes(40_000_000)
    table = DataTable(reader).create(pa.table([pa.array([whole], blob.type)], schema=pa.schema([blob])))
    path, size = f"{table.path}/blob/blob/0/bytes", len(whole)
    inner = reader.raw.get(path, headers={"range": "bytes=10-30000000"})
    assert (inner.status_code, inner.headers["content-range"]) == (206, f"bytes 10-30000000/{size}")
    assert inner.content == whole[10:30000001]
    with reader.raw.stream("GET", path) as answer:
        assert answer.headers["content-length"] == str(size)
        pieces = answer.iter_raw()
        content = next(pieces)
        assert table.on(dropper).ask("drop").status_code == 200
        assert content + b"".join(pieces) == whole


def test_an_abandoned_response_does_not_block_the_next_one(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(PostgresDatabase(postgres_url, pool_size=1)) as database:
        let_go = database.lock_shared("reading-first")
        connection: Any = database._shared_locks._connection
        execute = connection.execute

        def execute_amid_garbage(*arguments: Any) -> Any:
            monkeypatch.undo()
            let_go()  # as the garbage collector does it, which may run at any moment
            return execute(*arguments)

        monkeypatch.setattr(connection, "execute", execute_amid_garbage)
        begun = threading.Thread(target=database.lock_shared, args=("reading-second",), daemon=True)
        begun.start()
        begun.join(60)
        assert not begun.is_alive()
        assert (database.is_locked("reading-first"), database.is_locked("reading-second")) == (False, True)
