"""Arrow streams that come in: whole, in any form, or refused without a trace."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pyarrow as pa
import pytest

from tests.conftest import StartPennon
from tests.integration.data.conftest import Stored
from tests.integration.data.tables import STREAM, DataTable, error, rows, stream_of
from tests.support.rest import RestClient
from tests.support.server import PennonProcess
from tests.support.waiting import wait_until

END = struct.pack("<II", 0xFFFFFFFF, 0)
#: More than what is committed together with others: such a stream is written as it comes.
LARGE_ROWS = 300_000


def messages(stream: bytes) -> list[tuple[int, int, int]]:
    """Return where each message of a stream begins, where its body begins, and where it ends."""
    found = []
    at = 0
    while stream[at : at + 8] != END:
        (length,) = struct.unpack("<I", stream[at + 4 : at + 8])
        message = pa.ipc.read_message(pa.BufferReader(stream[at:]))
        body = at + 8 + length
        end = body + (message.body.size if message.body is not None else 0)
        found.append((at, body, end))
        at = end
    return found


def inside_the_schema(stream: bytes) -> bytes:
    return stream[: messages(stream)[0][1] // 2]


def after_the_schema(stream: bytes) -> bytes:
    return stream[: messages(stream)[0][2]]


def inside_the_head_of_a_batch(stream: bytes) -> bytes:
    start, body, _ = messages(stream)[-1]
    return stream[: (start + body) // 2]


def inside_the_prefix_of_a_batch(stream: bytes) -> bytes:
    return stream[: messages(stream)[-1][0] + 6]


def inside_the_body_of_a_batch(stream: bytes) -> bytes:
    _, body, end = messages(stream)[-1]
    return stream[: (body + end) // 2]


def one_byte_before_the_end_of_a_batch(stream: bytes) -> bytes:
    return stream[: messages(stream)[-1][2] - 1]


def at_a_batch_boundary(stream: bytes) -> bytes:
    return stream[: messages(stream)[-1][0]]


def without_the_end_marker(stream: bytes) -> bytes:
    return stream[: -len(END)]


def inside_the_end_marker(stream: bytes) -> bytes:
    return stream[:-3]


def with_garbage_behind(stream: bytes) -> bytes:
    return stream + b"garbage"


def with_zeros_behind(stream: bytes) -> bytes:
    return stream + bytes(16)


def with_another_stream_behind(stream: bytes) -> bytes:
    return stream + stream


def with_a_broken_schema(stream: bytes) -> bytes:
    return stream[:12] + b"\xff" * 24 + stream[36:]


def with_a_broken_batch_head(stream: bytes) -> bytes:
    start = messages(stream)[-1][0] + 12
    return stream[:start] + b"\xff" * 24 + stream[start + 24 :]


def with_a_body_shorter_than_told(stream: bytes) -> bytes:
    _, body, end = messages(stream)[-1]
    return stream[:body] + stream[body + 64 : end] + END


def with_offsets_that_lead_out_of_their_buffer(stream: bytes) -> bytes:
    """Point the last words beyond the bytes of the words; the buffers themselves stay whole."""
    _, body, end = messages(stream)[-1]
    last = pa.ipc.open_stream(stream).read_all().to_batches()[-1]
    ends = last.column(1).buffers()[1].to_pybytes()[: 4 * (last.num_rows + 1)]
    at = stream.index(ends, body, end)
    middle = at + 4 * (last.num_rows // 2)
    return stream[:middle] + struct.pack("<i", 2**30) + stream[middle + 4 :]


def with_words_that_are_not_text(stream: bytes) -> bytes:
    _, body, end = messages(stream)[-1]
    at = stream.index(b"green", body, end)
    return stream[:at] + b"\xff\xfe\xff\xfe\xff" + stream[at + 5 :]


BROKEN: list[Callable[[bytes], bytes]] = [
    inside_the_schema,
    after_the_schema,
    inside_the_prefix_of_a_batch,
    inside_the_head_of_a_batch,
    inside_the_body_of_a_batch,
    one_byte_before_the_end_of_a_batch,
    at_a_batch_boundary,
    without_the_end_marker,
    inside_the_end_marker,
    with_garbage_behind,
    with_zeros_behind,
    with_another_stream_behind,
    with_a_broken_schema,
    with_a_broken_batch_head,
    with_a_body_shorter_than_told,
    with_offsets_that_lead_out_of_their_buffer,
    with_words_that_are_not_text,
]


@pytest.fixture(scope="module")
def small() -> bytes:
    """Three batches that are committed together with what others send."""
    return stream_of(rows(3000), batch_rows=1000)


@pytest.fixture(scope="module")
def large() -> bytes:
    """Batches that are written while they come."""
    content = stream_of(rows(LARGE_ROWS), batch_rows=LARGE_ROWS // 3)
    assert len(content) > 4 * 1024 * 1024
    return content


@pytest.mark.parametrize("size", ["small", "large"])
@pytest.mark.parametrize("broken", BROKEN, ids=lambda function: function.__name__.replace("_", " "))
def test_a_broken_stream_leaves_no_version_and_no_file(
    request: pytest.FixtureRequest, table: DataTable, stored: Stored, size: str, broken: Callable[[bytes], bytes]
) -> None:
    content = broken(request.getfixturevalue(size))
    before = (table.versions(), stored(table), table.count())
    options = {"on": "id", "when_not_matched_insert_all": "true"}
    assert error(table.send("insert", content)) == (400, 13)
    assert error(table.send("insert", content, mode="overwrite")) == (400, 13)
    assert error(table.send("merge_insert", content, **options)) == (400, 13)
    assert (table.versions(), stored(table), table.count()) == before
    assert len(stored(table)) == 1


@pytest.mark.parametrize("size", ["small", "large"])
@pytest.mark.parametrize("broken", BROKEN, ids=lambda function: function.__name__.replace("_", " "))
def test_a_table_does_not_come_of_a_broken_stream(
    request: pytest.FixtureRequest, new: DataTable, stored: Stored, size: str, broken: Callable[[bytes], bytes]
) -> None:
    assert error(new.send("create", broken(request.getfixturevalue(size)))) == (400, 13)
    assert error(new.ask("describe")) == (404, 4)
    assert stored(new) == set()
    assert new.put("create", rows(3))["version"] == 1
    assert new.count() == 3


@pytest.mark.parametrize("size", ["small", "large"])
@pytest.mark.parametrize("verb", ["insert", "create", "merge_insert"])
def test_a_connection_that_ends_in_the_middle_leaves_nothing(
    request: pytest.FixtureRequest, pennon_server: PennonProcess, table: DataTable, stored: Stored, size: str, verb: str
) -> None:
    content: bytes = request.getfixturevalue(size)
    target = DataTable(table.http) if verb == "create" else table
    before = (table.versions(), stored(target))
    host, port = address_of(pennon_server)
    query = "?delimiter=%24&on=id&when_not_matched_insert_all=true"
    head = f"POST {target.path}/{verb}{query} HTTP/1.1\r\nhost: {host}:{port}\r\ncontent-type: {STREAM}\r\n"
    for form in (f"content-length: {len(content)}\r\n\r\n", "transfer-encoding: chunked\r\n\r\n"):
        with socket.create_connection((host, port)) as link:
            link.sendall((head + form).encode())
            part = content[: len(content) * 2 // 3]
            link.sendall(part if "length" in form else f"{len(part):x}\r\n".encode() + part + b"\r\n")
    wait_until(lambda: in_flight(table.http) == 1)
    assert (table.versions(), stored(target)) == before
    if verb == "create":
        assert error(target.ask("describe")) == (404, 4)


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize("form", ["content-length", "chunked"])
@pytest.mark.parametrize("count", [0, 10, LARGE_ROWS])
def test_a_stream_comes_compressed_or_not_in_one_piece_or_many(
    new: DataTable, compression: str | None, form: str, count: int
) -> None:
    new.create(rows(0))
    content = stream_of(rows(count), compression, batch_rows=50_000)
    new.put("insert", content if form == "content-length" else chunks(content))
    assert new.count() == count
    assert new.query(filter=f"id >= {count - 3}").equals(rows(max(count - 3, 0), count))


@pytest.mark.parametrize("cut", [1, 7, 8, 9, 1000])
def test_a_stream_may_come_in_pieces_of_any_size(table: DataTable, cut: int) -> None:
    table.put("insert", chunks(stream_of(rows(100, 150)), cut))
    assert table.count() == 150


def test_a_stream_of_the_older_form_is_taken(new: DataTable) -> None:
    """The first Arrow releases ended a stream with four zeros."""
    content = stream_of(rows(5))
    new.create(rows(0))
    new.put("insert", content[: -len(END)] + bytes(4))
    assert new.count() == 5


def test_empty_batches_among_others_are_taken(new: DataTable) -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows(0).schema) as writer:
        for part in (rows(0), rows(3), rows(0), rows(3, 5)):
            for batch in part.to_batches() or [pa.RecordBatch.from_pylist([], schema=part.schema)]:
                writer.write_batch(batch)
    new.put("create", sink.getvalue().to_pybytes())
    assert new.ids() == [0, 1, 2, 3, 4]


def test_a_schema_alone_makes_an_empty_table_and_adds_no_rows(new: DataTable) -> None:
    new.put("create", rows(0))
    assert new.count() == 0
    assert list(new.schema()) == ["id", "word", "vector"]
    new.put("insert", rows(0))
    assert new.count() == 0


def test_a_body_above_the_limit_is_refused_before_it_is_read(start_pennon: StartPennon) -> None:
    server = start_pennon("--max-upload-bytes", "100000")
    with RestClient(server.url) as http:
        table = DataTable(http).create(rows(10))
        content = stream_of(rows(10_000))
        assert error(table.send("insert", content)) == (413, 13)
        assert error(table.send("insert", chunks(content))) == (413, 13)
        assert error(DataTable(http).send("create", content)) == (413, 13)
        assert (table.versions(), table.count(), len(table.files())) == ([1], 10, 1)
        table.put("insert", rows(100))
        host, port = address_of(server)
        head = f"POST {table.path}/insert HTTP/1.1\r\nhost: {host}:{port}\r\ncontent-type: {STREAM}\r\n"
        with socket.create_connection((host, port), timeout=30) as link:
            link.sendall(f"{head}content-length: 100001\r\n\r\n".encode())
            assert link.recv(12) == b"HTTP/1.1 413"


def test_a_too_large_upload_is_refused_with_the_reason(table: DataTable) -> None:
    wrong = pa.table({"other": pa.array(range(3_000_000), pa.int64())})
    answer = table.send("insert", stream_of(wrong, batch_rows=100_000))
    assert error(answer) == (400, 20)
    assert json.loads(answer.content)["error"]


def chunks(content: bytes, size: int = 65536) -> Iterator[bytes]:
    for start in range(0, len(content), size):
        yield content[start : start + size]


def in_flight(http: RestClient) -> int:
    """Return how many requests the server is answering, this one among them."""
    text = http.raw.get("/metrics").text
    (line,) = [line for line in text.splitlines() if line.startswith("pennon_requests_in_flight ")]
    return int(float(line.split()[1]))


def address_of(server: PennonProcess) -> tuple[str, int]:
    """Return where a server listens."""
    host, port = urlsplit(server.url).hostname, urlsplit(server.url).port
    assert host is not None
    assert port is not None
    return host, port
