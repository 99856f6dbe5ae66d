"""A query process: runs queries that must not run in the API process, one at a time, under a memory limit.

``process_pool`` starts it. It reads requests from standard input, one JSON object a line, and writes framed responses
to standard output. An expression that needs more memory than the limit kills this process alone.
"""

from __future__ import annotations

import io
import json
import os
import queue
import struct
import sys
import threading
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING, Literal, NotRequired, TypedDict

from pennon.core.lazy_models import install_lazy_models
from pennon.core.process import QUERY_OOM_SCORE, exit_with_parent, limit_memory, peak_memory_bytes, prefer_oom_kill

if TYPE_CHECKING:
    import pyarrow as pa
    from _typeshed import ReadableBuffer
    from lance import LanceDataset

#: The header of a frame: one byte for the kind, four for the length.
FRAME = struct.Struct("<BI")
DATA, ERROR, RESULT, END = range(4)
FRAME_BYTES = 1024 * 1024
#: A process exits after being idle for this long.
IDLE_SECONDS = 300.0
#: Batches are split into parts of about this size: the receiver holds one at a time.
_BATCH_BYTES = 4 * 1024 * 1024
#: A row may have at most this fraction (1/16) of the memory limit.
_ROW_SHARE = 16
_MAX_DATASETS = 8


class QueryRequest(TypedDict):
    """What a query process needs to open a version of a table and query it; it has no catalog."""

    location: str
    storage_options: dict[str, str] | None
    branch: str
    version: int
    #: The identity of the version's content; None if unknown.
    content: str | None
    #: The base paths that the version may refer to.
    bases: Sequence[str]
    #: ``Query.to_json``.
    query: dict[str, object]
    action: NotRequired[Literal["query", "count", "explain", "analyze"]]
    #: The condition of a count.
    filter: NotRequired[str]
    #: The detail of an explained plan.
    verbose: NotRequired[bool]


class QueryError(TypedDict):
    """An error that a query process reports: with the code of the specification, if it has one."""

    code: int | None
    message: str
    is_storage: bool


class _PandasBlocker(MetaPathFinder):
    """Blocks the import of pandas: Arrow imports it if it can, which takes longer than the rest of the start."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:  # noqa: ARG002
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is not used here", name=fullname)


class _Output(io.RawIOBase):
    """Standard output, in frames."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def writable(self) -> bool:
        return True

    def frame(self, kind: int, content: bytes | memoryview) -> None:
        self._write(FRAME.pack(kind, len(content)))
        self._write(content)

    def write(self, data: ReadableBuffer) -> int:
        """Send bytes of an Arrow stream."""
        whole = memoryview(data)
        for start in range(0, len(whole), FRAME_BYTES):
            self.frame(DATA, whole[start : start + FRAME_BYTES])
        return len(whole)

    def flush(self) -> None:
        """Do nothing: nothing is buffered."""

    def _write(self, content: bytes | memoryview) -> None:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]


class _Datasets:
    """The most recently opened datasets."""

    def __init__(self) -> None:
        from pennon.tables.snapshots import new_session

        self._session = new_session()
        self._opened: dict[tuple[str, str, int, str | None], LanceDataset] = {}

    def open(self, request: QueryRequest) -> LanceDataset:
        import lance

        from pennon.tables.snapshots import check_bases

        key = (request["location"], request["branch"], request["version"], request["content"])
        dataset = self._opened.pop(key, None)
        if dataset is None:
            branch, version = request["branch"], request["version"]
            dataset = lance.dataset(
                request["location"],
                None if branch else version,
                storage_options=request["storage_options"],
                session=self._session,
            )
            if branch:
                dataset = dataset.checkout_version((branch, version))
            check_bases(dataset, request["bases"])
        if request["content"] is not None:  # without it, a new table at the same location looks the same
            self._opened[key] = dataset
            while len(self._opened) > _MAX_DATASETS:
                del self._opened[next(iter(self._opened))]
        return dataset


def run(limit: int, parent: int) -> None:
    """Handle requests until standard input ends or the process has been idle for a while."""
    exit_with_parent(parent)
    prefer_oom_kill(QUERY_OOM_SCORE)
    limit_memory(limit)
    output = _Output(os.dup(1))
    os.dup2(2, 1)  # prints of libraries must not mix with the frames
    sys.meta_path.insert(0, _PandasBlocker())
    install_lazy_models()
    requests: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read_requests, args=(requests,), daemon=True).start()
    datasets = _Datasets()
    while True:
        try:
            line = requests.get(timeout=IDLE_SECONDS)
        except queue.Empty:
            return
        _handle(json.loads(line), datasets, output, limit // _ROW_SHARE)


def _read_requests(requests: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        requests.put(line)
    os._exit(0)  # the server has gone: drop a running query, too


def _handle(request: QueryRequest, datasets: _Datasets, output: _Output, row_bytes: int) -> None:
    from lance_namespace.errors import LanceNamespaceError

    from pennon.tables.lance_errors import typed_errors

    try:
        with typed_errors():
            _run_action(request, datasets.open(request), output, row_bytes)
    except LanceNamespaceError as error:
        _send_error(output, {"code": int(error.code), "message": str(error), "is_storage": False})
    except Exception as error:  # noqa: BLE001 (raised again by the server)
        _send_error(output, {"code": None, "message": str(error), "is_storage": isinstance(error, OSError)})
    else:
        output.frame(END, str(peak_memory_bytes()).encode())


def _send_error(output: _Output, error: QueryError) -> None:
    output.frame(ERROR, json.dumps(error).encode())


def _run_action(request: QueryRequest, dataset: LanceDataset, output: _Output, row_bytes: int) -> None:
    from pennon.tables.query.scan import TableQuery, build_scanner, count_rows, open_scan

    action = request["action"]
    query = TableQuery.from_json(request["query"])
    if action == "count":
        output.frame(RESULT, json.dumps(count_rows(dataset, request["filter"], query.batch_rows)).encode())
        return
    if action == "query":
        _send_batches(open_scan(dataset, query), output, row_bytes)
        return
    scanner = build_scanner(dataset, query)
    plan = scanner.explain_plan(request["verbose"]) if action == "explain" else scanner.analyze_plan()
    output.frame(RESULT, json.dumps(plan).encode())


def _send_batches(reader: pa.RecordBatchReader, output: _Output, row_bytes: int) -> None:
    import pyarrow as pa

    with pa.ipc.new_stream(pa.PythonFile(output, mode="w"), reader.schema) as writer:
        for batch in reader:
            for part in _parts(batch, row_bytes):
                writer.write_batch(part)


def _parts(batch: pa.RecordBatch, row_bytes: int) -> Iterator[pa.RecordBatch]:
    from lance_namespace.errors import InvalidInputError

    if batch.num_rows > 1 and batch.nbytes > _BATCH_BYTES:
        half = batch.num_rows // 2
        yield from _parts(batch.slice(0, half), row_bytes)
        yield from _parts(batch.slice(half), row_bytes)
        return
    if batch.nbytes > row_bytes:
        raise InvalidInputError(
            f"A row of the result has {batch.nbytes} bytes; a query with this SQL may return {row_bytes} bytes per row "
            "(1/16 of the server's query_process_memory_bytes). Select fewer columns or use smaller arguments."
        )
    yield batch


if __name__ == "__main__":
    run(int(sys.argv[1]), int(sys.argv[2]))
