"""Clients of one table: LanceDB's for Pennon, and plain HTTP for the peer, which LanceDB's client cannot open."""

from __future__ import annotations

import http.client
import io
import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

import samples
from servers import PEER, BenchmarkError
from stage import fill, table_path
from transfer import ARROW

if TYPE_CHECKING:
    from servers import Server

SUB_VECTORS = 16
_INDEX_SECONDS = 300
_ANSWER_SECONDS = 120


class TableClient(Protocol):
    """One connection to one table."""

    def add(self, number: int) -> None:
        """Insert one row with an id."""

    def search(self, vector: list[float], k: int) -> list[int]:
        """Return the ids of the nearest rows."""

    def select(self, low: int, high: int) -> list[int]:
        """Return the ids in a range, both ends included."""


def open_table(server: Server, name: str) -> TableClient:
    """Connect to a table."""
    return PlainClient(server, name) if server.name == PEER else LanceDBClient(server, name)


def create_table(server: Server, name: str, made: list[Any]) -> None:
    """Create a table of record batches with an IVF_PQ index of its vectors and a BTREE index of its ids."""
    if server.name == PEER:
        fill(server, name, samples.reader(made))
        _index_with_pylance(server, name)
        return
    from lancedb.index import BTree, IvfPq

    table = _connect(server).create_table(name, samples.reader(made))
    table.create_index("vector", config=IvfPq(distance_type="l2", num_sub_vectors=SUB_VECTORS))
    table.create_index("id", config=BTree())
    table.wait_for_index(["vector_idx", "id_idx"], timeout=timedelta(seconds=_INDEX_SECONDS))


class LanceDBClient:
    """LanceDB's client over `db://`."""

    def __init__(self, server: Server, name: str) -> None:
        self._table = _connect(server).open_table(name)

    def add(self, number: int) -> None:
        """Insert one row with an id."""
        import pyarrow as pa

        self._table.add(pa.Table.from_batches(list(samples.batches(1, first=number, seed=number))))

    def search(self, vector: list[float], k: int) -> list[int]:
        """Return the ids of the nearest rows."""
        found: list[int] = self._table.search(vector).limit(k).select(["id"]).to_arrow()["id"].to_pylist()
        return found

    def select(self, low: int, high: int) -> list[int]:
        """Return the ids in a range, both ends included."""
        query = self._table.search().where(f"id >= {low} AND id <= {high}").select(["id"]).limit(high - low + 1)
        found: list[int] = query.to_arrow()["id"].to_pylist()
        return found


class PlainClient:
    """One kept-alive HTTP connection that sends the specification's requests."""

    def __init__(self, server: Server, name: str) -> None:
        self._connection = http.client.HTTPConnection(server.host, server.port, timeout=_ANSWER_SECONDS)
        self._name = name

    def add(self, number: int) -> None:
        """Insert one row with an id."""
        body = samples.stream(samples.batches(1, first=number, seed=number)).to_pybytes()
        self._post("insert", body, ARROW)

    def search(self, vector: list[float], k: int) -> list[int]:
        """Return the ids of the nearest rows."""
        return self._query(vector={"single_vector": vector}, vector_column="vector", k=k)

    def select(self, low: int, high: int) -> list[int]:
        """Return the ids in a range, both ends included."""
        return self._query(vector={"single_vector": []}, filter=f"id >= {low} AND id <= {high}", k=high - low + 1)

    def _query(self, **query: object) -> list[int]:
        import pyarrow as pa

        body = json.dumps({"id": [self._name], "columns": {"column_names": ["id"]}, **query}).encode()
        found = pa.ipc.open_file(io.BytesIO(self._post("query", body, "application/json")))
        ids: list[int] = found.read_all()["id"].to_pylist()
        return ids

    def _post(self, verb: str, body: bytes, kind: str) -> bytes:
        path = table_path(self._name, verb)
        try:
            self._connection.request("POST", path, body, {"Content-Type": kind})
            answer = self._connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            raise
        if answer.status != 200:
            raise BenchmarkError(f"{path} answered {answer.status}: {content[:200]!r}")
        return content


def _connect(server: Server) -> Any:
    """Connect with LanceDB's client; it does not retry, so that each error is seen."""
    import lancedb

    config = {"retry_config": {"retries": 0}}
    return lancedb.connect("db://lake", api_key="none", host_override=server.url, client_config=config)


def _index_with_pylance(server: Server, name: str) -> None:
    import lance
    import lance_namespace

    client = lance_namespace.connect("rest", {"uri": server.url})
    dataset = lance.dataset(namespace_client=client, table_id=[name])
    dataset.create_index("vector", "IVF_PQ", metric="l2", num_sub_vectors=SUB_VECTORS)
    dataset.create_scalar_index("id", "BTREE")
