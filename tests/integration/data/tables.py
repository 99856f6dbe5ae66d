"""A table over HTTP, as the specification has it: no trailing slashes, and the delimiter in the query."""

from __future__ import annotations

import io
import json
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tests.support.rest import RestClient
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import httpx

STREAM = "application/vnd.apache.arrow.stream"
WIDTH = 4
WORDS = ["red", "green", "blue"]


def rows(*bounds: int) -> pa.Table:
    """Return rows with the ids of a range: a word of three, and a vector near those of the neighbours."""
    ids = list(range(*bounds))
    flat = pa.array([float(number) for number in ids for _ in range(WIDTH)], pa.float32())
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "word": pa.array([WORDS[number % 3] for number in ids], pa.string()),
            "vector": pa.FixedSizeListArray.from_arrays(flat, WIDTH),
        }
    )


def stream_of(data: pa.Table, compression: str | None = None, batch_rows: int | None = None) -> bytes:
    """Return a table as an Arrow stream."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, data.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(data, max_chunksize=batch_rows)
    return sink.getvalue()


def vector(number: float) -> dict[str, list[float]]:
    """Return the vector of an id, as a query states it."""
    return {"single_vector": [float(number)] * WIDTH}


class DataTable:
    """One table on one server."""

    def __init__(self, http: RestClient, *names: str) -> None:
        self.http = http
        self.names = list(names) or [f"table_{secrets.token_hex(6)}"]

    @property
    def path(self) -> str:
        """The path of the table."""
        return f"/v1/table/{'%24'.join(self.names)}"

    def on(self, http: RestClient) -> DataTable:
        """Return the same table on another server."""
        return DataTable(http, *self.names)

    def ask(self, verb: str, body: Any = None, **parameters: Any) -> httpx.Response:
        """Send a JSON body and return the answer, whatever it is."""
        return self.http.raw.post(
            f"{self.path}/{verb}", json={} if body is None else body, params={"delimiter": "$", **parameters}
        )

    def send(
        self, verb: str, data: pa.Table | bytes | Iterator[bytes] | Iterable[bytes], **parameters: Any
    ) -> httpx.Response:
        """Send an Arrow body and return the answer, whatever it is."""
        content = stream_of(data) if isinstance(data, pa.Table) else data
        headers = {"content-type": STREAM, **parameters.pop("headers", {})}
        given = {"delimiter": "$", **parameters}
        return self.http.raw.post(f"{self.path}/{verb}", content=content, params=given, headers=headers)

    def do(self, verb: str, body: Any = None, **parameters: Any) -> Any:
        """Send a JSON body and return that of the answer."""
        return _answer(self.ask(verb, body, **parameters))

    def put(self, verb: str, data: pa.Table | bytes | Iterable[bytes], **parameters: Any) -> Any:
        """Send an Arrow body and return the JSON of the answer."""
        return _answer(self.send(verb, data, **parameters))

    def create(self, data: pa.Table, **parameters: Any) -> DataTable:
        """Create the table."""
        self.put("create", data, **parameters)
        return self

    def query(self, **body: Any) -> pa.Table:
        """Return what a query answers; by default all rows."""
        answer = self.ask("query", {"k": 2**63 - 1, **body})
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"] == "application/vnd.apache.arrow.file"
        return pa.ipc.open_file(io.BytesIO(answer.content)).read_all()

    def ids(self, **body: Any) -> list[int]:
        """Return the ids that a query finds, in its order."""
        return [int(number) for number in self.query(**body)["id"].to_pylist()]

    def count(self, **body: Any) -> int:
        """Return the number of rows."""
        return int(self.do("count_rows", body))

    def versions(self, branch: str | None = None) -> list[int]:
        """Return the versions there are."""
        given = {} if branch is None else {"branch": branch}
        return [version["version"] for version in self.do("version/list", **given)["versions"]]

    def schema(self, branch: str | None = None) -> dict[str, Any]:
        """Return the fields of the schema by their names."""
        described = self.do("describe", {"load_detailed_metadata": True, "branch": branch})
        return {field["name"]: field for field in described["schema"]["fields"]}

    def files(self, folder: str = "data") -> set[str]:
        """Return the names of the files in a folder of the table, where that is on this machine's disk."""
        path = Path(self.do("describe")["location"], folder)
        return {str(found.relative_to(path)) for found in path.rglob("*") if found.is_file()}

    def wait_for_index(self, name: str, branch: str | None = None) -> dict[str, Any]:
        """Wait until an index covers all rows, and return its statistics."""

        def covered() -> dict[str, Any] | None:
            stats: dict[str, Any] = self.do(f"index/{name}/stats", {"branch": branch})
            return stats if stats["num_unindexed_rows"] == 0 else None

        found: dict[str, Any] = wait_until(covered)
        return found


def error(answer: httpx.Response) -> tuple[int, int]:
    """Return status and code of an error, and insist on the specification's body."""
    assert answer.status_code >= 400, f"{answer.request.url} was answered with {answer.status_code}"
    body = json.loads(answer.content)
    assert isinstance(body["error"], str)
    assert body["error"]
    return answer.status_code, body["code"]


def _answer(answer: httpx.Response) -> Any:
    request = answer.request
    assert answer.status_code == 200, f"{request.url} gave {answer.status_code}: {answer.text[:2000]}"
    return json.loads(answer.content) if answer.content else None
