"""Tables whose rows do not fit into memory 8192 at a time, and the limit that holds for what no check foresees."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import lance
import numpy as np
import pyarrow as pa
import pytest

from tests.integration.data.tables import DataTable, error, rows
from tests.support.rest import RestClient
from tests.support.server import PennonProcess
from tests.support.waiting import wait_until

MEGABYTE = 1024**2
#: A fresh server has an address space of 2 GB. What is read 8192 rows at a time would need 4 GB and more.
ADDRESS_SPACE_BYTES = 5 * 1024 * MEGABYTE
#: What one request may add to the memory of the API process.
MAX_GROWTH_BYTES = 400 * MEGABYTE
ROWS = 4096
MANY = {"k": 3, "columns": {"column_names": ["id"]}}

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it limits and reads memory as Linux does")


def repeated_values() -> Iterator[tuple[str, pa.Array]]:
    """Return columns in which each row has the same value of a megabyte: as SQL names it, and its values."""
    word = pa.DictionaryArray.from_arrays(pa.array(np.zeros(ROWS, np.int32)), pa.array(["x" * MEGABYTE]))
    yield "v", word
    yield "v.part", pa.StructArray.from_arrays([word], ["part"])
    yield "v[1]", pa.ListArray.from_arrays(pa.array(range(ROWS + 1), pa.int32()), word)


def write_long_texts(path: Path) -> None:
    """Write rows of a megabyte, which take a hundredth of that on storage."""
    schema = pa.schema([("id", pa.int64()), ("v", pa.large_string())])
    text = ["x" * MEGABYTE] * 64
    batches = (
        pa.record_batch([pa.array(range(n, n + 64), pa.int64()), pa.array(text, pa.large_string())], schema=schema)
        for n in range(0, ROWS, 64)
    )
    lance.write_dataset(pa.RecordBatchReader.from_batches(schema, batches), path)


def write_ordinary_texts(path: Path) -> None:
    """Write rows that fit into memory 8192 at a time, but not many copies of them."""
    text = ["x" * 8000] * 1024
    schema = pa.schema([("id", pa.int64()), ("v", pa.string())])
    batches = (
        pa.record_batch([pa.array(range(n, n + 1024), pa.int64()), pa.array(text)], schema=schema)
        for n in range(0, 8192, 1024)
    )
    lance.write_dataset(pa.RecordBatchReader.from_batches(schema, batches), path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A storage root with tables that clients wrote themselves, by the name that SQL has for their values."""
    root = tmp_path_factory.mktemp("wide")
    ids = pa.array(range(ROWS), pa.int64())
    for number, (_, values) in enumerate(repeated_values()):
        lance.write_dataset(pa.table({"id": ids, "v": values}), root / f"repeated_{number}.lance")
    write_long_texts(root / "texts.lance")
    write_ordinary_texts(root / "ordinary.lance")
    return root


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[PennonProcess]:
    with PennonProcess(folder, address_space_bytes=ADDRESS_SPACE_BYTES) as running:
        yield running


def requests(value: str) -> Iterator[tuple[str, dict[str, Any], int]]:
    """Return requests that evaluate or read a wide column, and the status that answers each."""
    upper = f"upper(cast({value} as string)) = 'a'"
    yield "query", {**MANY, "filter": f"{value} IS NOT NULL"}, 200
    yield "query", {**MANY, "filter": upper}, 200
    yield "query", {**MANY, "filter": f"cast({value} as string) LIKE '%yes%'"}, 200
    yield "query", {**MANY, "filter": f"coalesce({value}, '') = 'a'"}, 200
    yield "query", {"k": 3000, "columns": {"column_aliases": {"n": f"length({value} || {value})"}}}, 200
    yield "query", {"k": 3, "order_by": [{"column_name": "id", "ascending": False}]}, 200
    yield "count_rows", {"predicate": upper}, 200
    yield "analyze_plan", {"k": 3, "vector": {}, "filter": upper}, 200
    yield "add_columns", {"new_columns": [{"name": "n", "expression": f"length(cast({value} as string))"}]}, 200
    yield "delete", {"predicate": upper}, 400
    yield "update", {"updates": [["id", "id + 1"]], "predicate": upper}, 400


@pytest.mark.parametrize(
    ("name", "value"),
    [("repeated_0", "v"), ("repeated_1", "v.part"), ("repeated_2", "v[1]"), ("texts", "v")],
)
def test_wide_rows_are_read_in_small_batches(server: PennonProcess, name: str, value: str) -> None:
    with RestClient(server.url) as http:
        table = DataTable(http, name)
        for verb, body, status in requests(value):
            before = memory_of(server)
            answer = table.ask(verb, body)
            assert answer.status_code == status, f"{verb} {body}: {answer.text[:500]}"
            grown = server.peak_memory_bytes - before
            assert grown < MAX_GROWTH_BYTES, f"{verb} {body}: the server grew by {grown // MEGABYTE} MB"
        assert table.count() == ROWS


def test_wide_rows_are_scanned_and_updated_a_few_at_a_time(server: PennonProcess) -> None:
    with RestClient(server.url) as http:
        table = DataTable(http, "texts")
        before = memory_of(server)
        with http.raw.stream("POST", f"{table.path}/query", json={"k": 1000, "vector": {}}) as answer:
            assert sum(len(part) for part in answer.iter_bytes()) > 1000 * MEGABYTE
        assert server.peak_memory_bytes - before < MAX_GROWTH_BYTES
        refused = table.ask("update", {"updates": [["id", "id"]]})
        assert error(refused) == (400, 13)
        assert "rows at a time" in refused.text
        assert table.do("update", {"updates": [["id", "-1"]], "predicate": "id = 7"})["updated_rows"] == 1


@pytest.mark.parametrize(
    ("verb", "body", "status"),
    [
        ("count_rows", {"predicate": f"length({'||'.join(['v'] * 16)}) = 1"}, 200),
        ("delete", {"predicate": f"length({'||'.join(['v'] * 60)}) = 1"}, 400),
        ("update", {"updates": [["v", "||".join(["v"] * 60)]], "predicate": "id < 8000"}, 400),
        ("update", {"updates": [["v", "||".join(["v"] * 60)]], "predicate": "id < 3"}, 200),
    ],
)
def test_copies_of_values_count_towards_the_rows_of_a_batch(
    server: PennonProcess, verb: str, body: dict[str, Any], status: int
) -> None:
    with RestClient(server.url) as http:
        before = memory_of(server)
        answer = DataTable(http, "ordinary").ask(verb, body)
        assert answer.status_code == status, answer.text[:500]
        grown = server.peak_memory_bytes - before
        assert grown < MAX_GROWTH_BYTES, f"the server grew by {grown // MEGABYTE} MB"


def test_an_index_on_wide_values_is_refused(tmp_path: Path) -> None:
    texts = [f"{number} " + "x" * MEGABYTE for number in range(200)]
    lance.write_dataset(pa.table({"id": range(200), "v": texts}), tmp_path / "texts.lance")
    limit = ["--api-process-memory-bytes", str(512 * MEGABYTE)]
    with PennonProcess(tmp_path, *limit) as small, RestClient(small.url) as http:
        table = DataTable(http, "texts")
        refused = table.ask("create_index", {"column": "v", "index_type": "FTS"})
        assert error(refused) == (400, 13)
        assert "smaller values" in refused.text
        table.do("create_index", {"column": "id", "index_type": "BTREE"})


def memory_of(server: PennonProcess) -> int:
    """Return the memory of a server, and let its peak start from there."""
    Path(f"/proc/{server.pid}/clear_refs").write_text("5")
    return server.peak_memory_bytes


def test_a_dictionary_inside_a_list_has_no_value_that_is_too_long_for_each_row(table: DataTable) -> None:
    for _, values in repeated_values():
        refused = table.send("create", pa.table({"v": values}), mode="overwrite")
        assert error(refused) == (400, 13)
        assert "without a dictionary" in refused.text


def test_an_api_process_that_reaches_its_memory_limit_is_replaced(tmp_path: Path) -> None:
    huge = pa.array([b"x" * 600 * MEGABYTE], pa.large_binary())
    lance.write_dataset(pa.table({"v": huge}), tmp_path / "huge.lance")
    limit = ["--api-process-memory-bytes", str(512 * MEGABYTE), "--processes", "2"]
    with PennonProcess(tmp_path, *limit) as server, RestClient(server.url) as http:
        table = DataTable(http).create(rows(10))
        with pytest.raises(httpx.TransportError):
            DataTable(http, "huge").ask("query", {"k": 1})
        wait_until(lambda: "starting another" in server.stderr)
        assert "this API process ends: it holds" in server.stderr
        assert "it reached its memory limit (api_process_memory_bytes)" in server.stderr
        for _ in range(10):
            with RestClient(server.url) as again:
                assert table.on(again).count() == 10
        assert server.returncode is None
