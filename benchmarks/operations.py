"""Name the measured operations, their requests and the catalog they meet."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from load import Client, Request, call, drive
from servers import BenchmarkError, Server

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMESPACE = "bench"
PAGE = 100
WRITTEN = 16  # this many tables of a catalog hold data; the others are only declared
FILL_CONNECTIONS = 8
COMMIT = "CreateTableVersion"


@dataclass(frozen=True)
class Operation:
    """An operation of the specification, as it is measured."""

    name: str
    grows: bool  # it adds to the catalog, so it runs after all that only read
    description: str


OPERATIONS = (
    Operation("NamespaceExists", False, "does the one namespace exist"),
    Operation("DescribeTable", False, "a random declared table"),
    Operation("DescribeWritten", False, "DescribeTable of a random table that holds data"),
    Operation("TableExists", False, "a random declared table"),
    Operation("ListTables", False, f"the first {PAGE} tables of the namespace"),
    Operation("ListAllTables", False, f"the first {PAGE} tables of the catalog"),
    Operation(COMMIT, True, "each client commits version after version of its own table"),
    Operation("CreateNamespace", True, "a fresh name at the root"),
    Operation("DeclareTable", True, "a fresh name in the namespace"),
)


def object_path(kind: str, identifier: list[str], verb: str) -> str:
    """Build the path as the published clients do: the delimiter is encoded and always sent."""
    return f"/v1/{kind}/{quote('$'.join(identifier), safe='@')}/{verb}?delimiter=%24"


def post(kind: str, identifier: list[str], verb: str, **more: object) -> Request:
    """Build a POST whose body names the object, as the published clients do."""
    body = json.dumps({"id": identifier, **more}, separators=(",", ":"))
    return Request("POST", object_path(kind, identifier, verb), body)


def declared_names(size: int) -> list[str]:
    """Name the tables of a catalog that are only declared."""
    return [f"t{number:06d}" for number in range(size - WRITTEN)]


def written_names() -> list[str]:
    """Name the tables of a catalog that hold data."""
    return [f"w{number:06d}" for number in range(WRITTEN)]


def requests_of(operation: str, size: int) -> list[Request]:
    """List the requests of an operation: the load picks one at random, or fills in fresh names."""
    declared = [[NAMESPACE, name] for name in declared_names(size)]
    match operation:
        case "NamespaceExists":
            return [post("namespace", [NAMESPACE], "exists")]
        case "DescribeTable":
            return [post("table", table, "describe") for table in declared]
        case "DescribeWritten":
            return [post("table", [NAMESPACE, name], "describe") for name in written_names()]
        case "TableExists":
            return [post("table", table, "exists") for table in declared]
        case "ListTables":
            return [Request("GET", object_path("namespace", [NAMESPACE], "table/list") + f"&limit={PAGE}")]
        case "ListAllTables":
            return [Request("GET", f"/v1/table?delimiter=%24&limit={PAGE}")]
        case "CreateNamespace":
            return [post("namespace", ["n@@"], "create")]
        case "DeclareTable":
            return [post("table", [NAMESPACE, "d@@"], "declare")]
    raise ValueError(f"no plain requests for {operation}")


def fill(server: Server, size: int) -> float:
    """Make the namespace and its tables in an empty catalog; return the seconds that the declares took."""
    expect(server, post("namespace", [NAMESPACE], "create"))
    _write_tables(server)
    names = declared_names(size)

    def share(first: int) -> Iterator[bytes]:
        for name in names[first::FILL_CONNECTIONS]:
            yield post("table", [NAMESPACE, name], "declare").wire(server)

    sample = drive(server, [Client(share(first)) for first in range(FILL_CONNECTIONS)])
    if sample.errors:
        raise BenchmarkError(f"filling {server.name} failed: {sample.note}")
    return sample.seconds


def expect(server: Server, request: Request) -> bytes:
    """Send a request that has to succeed; return the answer's body."""
    status, body = call(server, request)
    if status != 200:
        text = body[:300].decode(errors="replace")
        raise BenchmarkError(f"{server.name}: {request.path} answered {status}: {text}")
    return body


def _write_tables(server: Server) -> None:
    """Write small tables through the server, with the client that people use."""
    import lance
    import lance_namespace
    import pyarrow as pa

    headers = {f"headers.{name}": value for name, value in server.headers.items()}
    client = lance_namespace.connect("rest", {"uri": server.url, **headers})
    rows = pa.table({"key": list(range(10)), "value": [f"value {number}" for number in range(10)]})
    try:
        for name in written_names():
            lance.write_dataset(rows, namespace_client=client, table_id=[NAMESPACE, name], mode="create")
    except Exception as problem:
        raise BenchmarkError(f"{server.name} refused a table written by pylance: {problem}") from problem
