"""How much one answer of rows as JSON holds."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from pennon.namespace.queries import QueryResult
from pennon.server.http import json_rows
from pennon.server.http.json_rows import JsonRows


def response_for(*sizes: int, width: int = 8) -> Any:
    """Return the response for batches of these numbers of rows, each row with this number of bytes."""
    schema = pa.schema([pa.field("content", pa.binary(width))])
    batches = [pa.record_batch([pa.array([b"x" * width] * size, pa.binary(width))], schema=schema) for size in sizes]
    reader = pa.RecordBatchReader.from_batches(schema, batches)
    return json.loads(JsonRows(QueryResult(reader, 7)).body)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_rows, "MAX_ROWS", 10)
    monkeypatch.setattr(json_rows, "MAX_BYTES", 1000)


@pytest.mark.parametrize(
    ("sizes", "width", "rows", "truncated"),
    [
        ((), 8, 0, False),
        ((0, 3, 0), 8, 3, False),
        ((10,), 8, 10, False),
        ((5, 5), 8, 10, False),
        ((11,), 8, 10, True),
        ((5, 5, 1), 8, 10, True),
        ((9,), 400, 3, True),
        ((1, 1, 1, 1), 400, 3, True),
        ((1,), 5000, 1, False),
        ((2,), 5000, 1, True),
    ],
)
def test_rows_and_bytes_have_a_most(sizes: tuple[int, ...], width: int, rows: int, *, truncated: bool) -> None:
    answer = response_for(*sizes, width=width)
    assert (len(answer["rows"]), answer["truncated"], answer["version"]) == (rows, truncated, 7)
