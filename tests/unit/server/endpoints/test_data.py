"""What is left out of a request means, from one family of clients, not always what it means from the other."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from pennon.core.caller import ANONYMOUS_ADMIN
from pennon.server.endpoints.data import merge_insert_into_table
from pennon.server.operations.table import OPERATIONS
from pennon.server.request import RequestContext
from tests.unit.server.exchanges import exchange


def empty_stream() -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema({"id": pa.int64()})):
        pass
    return bytes(sink.getvalue().to_pybytes())


@pytest.mark.parametrize(
    ("is_lancedb", "params", "used"),
    [
        (True, {}, True),
        (True, {"use_index": False}, False),
        (False, {}, False),
        (False, {"use_index": True}, True),
    ],
)
def test_an_upsert_of_lancedbs_client_uses_an_index_unless_it_says_otherwise(
    is_lancedb: bool, params: dict[str, Any], used: bool
) -> None:
    settings = SimpleNamespace(max_grouped_append_bytes=2**20)
    namespace: Any = SimpleNamespace(
        services=SimpleNamespace(settings=settings, arrow_limits=None),
        rows=SimpleNamespace(merge_from=lambda request, _: request.use_index),
    )
    row = next(row for row in OPERATIONS if row.endpoint is merge_insert_into_table)
    context = RequestContext(
        row,
        exchange(),
        namespace,
        ANONYMOUS_ADMIN,
        b"",
        {"id": ["t"], "on": ["id"], **params},
        has_arrow_body=True,
        is_lancedb=is_lancedb,
        body=io.BytesIO(empty_stream()),
    )
    used_index: Any = merge_insert_into_table(context)
    assert used_index is used
