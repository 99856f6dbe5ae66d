"""What is left out of a request means, from one family of clients, not always what it means from the other."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from pennon.server.endpoints.data import Call, merge_insert_into_table
from pennon.tables.arrow_stream import BytesBody


def empty_stream() -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema({"id": pa.int64()})):
        pass
    return bytes(sink.getvalue().to_pybytes())


@pytest.mark.parametrize(
    ("remote", "stated", "used"),
    [
        (True, {}, True),
        (True, {"use_index": False}, False),
        (False, {}, False),
        (False, {"use_index": True}, True),
    ],
)
def test_an_upsert_of_lancedbs_client_uses_an_index_unless_it_says_otherwise(
    remote: bool, stated: dict[str, Any], used: bool
) -> None:
    settings = SimpleNamespace(group_append_bytes=2**20)
    namespace: Any = SimpleNamespace(
        services=SimpleNamespace(settings=settings, arrow_limits=None), merge_from=lambda request, _: request.use_index
    )
    call = Call(namespace, ("t",), {"on": ["id"], **stated}, {}, BytesBody(empty_stream()), remote)
    assert merge_insert_into_table(call) is used
