"""A process that evaluates demanding queries, one at a time, under a limit on its memory.

It is started by ``process_pool``, reads requests as lines of JSON from standard input, and answers on standard output
in frames. An expression that asks for more memory than there is ends this process alone.
"""

from __future__ import annotations

import json
import os
import queue
import struct
import sys
import threading
from collections.abc import Iterator
from importlib.abc import MetaPathFinder
from typing import Any

from pennon.core.lazy_models import load_client_late
from pennon.core.process import exit_with_parent, limit_memory, peak_memory_bytes

#: One byte for the kind, four for the length.
FRAME = struct.Struct("<BI")
DATA, ERROR, RESULT, END = range(4)
FRAME_BYTES = 1024 * 1024
#: A process that had nothing to do for so long ends.
IDLE_SECONDS = 300.0
#: Batches are sent in parts of about this size: the reader holds one at a time.
_BATCH_BYTES = 4 * 1024 * 1024
#: One row is never larger than this share of the limit.
_ROW_SHARE = 16
_CACHE_BYTES = 32 * 1024 * 1024
_MOST_HANDLES = 8


class _WithoutPandas(MetaPathFinder):
    """Leaves pandas out: Arrow looks for it when it is imported, which takes longer than everything else here."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:  # noqa: ARG002
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is not used here", name=fullname)


class _Output:
    """Standard output, in frames."""

    closed = False

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def frame(self, kind: int, content: Any) -> None:
        self._write(FRAME.pack(kind, len(content)))
        self._write(content)

    def write(self, data: Any) -> int:
        """Send bytes of an Arrow stream."""
        whole = memoryview(data)
        for start in range(0, len(whole), FRAME_BYTES):
            self.frame(DATA, whole[start : start + FRAME_BYTES])
        return len(whole)

    def flush(self) -> None:
        """Do nothing: everything is written at once."""

    def close(self) -> None:
        self.closed = True

    def _write(self, content: Any) -> None:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]


class _Datasets:
    """The datasets that were opened last."""

    def __init__(self) -> None:
        import lance

        self._session = lance.Session(index_cache_size_bytes=_CACHE_BYTES, metadata_cache_size_bytes=_CACHE_BYTES)
        self._opened: dict[tuple[Any, ...], Any] = {}

    def open(self, request: dict[str, Any]) -> Any:
        import lance

        from pennon.tables.snapshots import check_bases

        key = tuple(request[name] for name in ("location", "branch", "version", "content"))
        found = self._opened.pop(key, None)
        if found is None:
            options, branch, version = request["storage_options"], request["branch"], request["version"]
            pinned = {} if branch else {"version": version}
            found = lance.dataset(request["location"], storage_options=options, session=self._session, **pinned)
            if branch:
                found = found.checkout_version((branch, version))
            check_bases(found, request["bases"])
        if request["content"] is not None:  # without it, another table may come to be at the same place
            self._opened[key] = found
            while len(self._opened) > _MOST_HANDLES:
                del self._opened[next(iter(self._opened))]
        return found


def run(limit: int, parent: int) -> None:
    """Answer requests until standard input ends, or nothing was asked for a while."""
    exit_with_parent(parent)
    limit_memory(limit)
    output = _Output(os.dup(1))
    os.dup2(2, 1)  # whatever else prints
    sys.meta_path.insert(0, _WithoutPandas())
    load_client_late()
    requests: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read_requests, args=(requests,), daemon=True).start()
    datasets = _Datasets()
    while True:
        try:
            line = requests.get(timeout=IDLE_SECONDS)
        except queue.Empty:
            return
        _answer(json.loads(line), datasets, output, limit // _ROW_SHARE)


def _read_requests(requests: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        requests.put(line)
    os._exit(0)  # the server is gone, whatever is being done


def _answer(request: dict[str, Any], datasets: _Datasets, output: _Output, row_bytes: int) -> None:
    from lance_namespace.errors import LanceNamespaceError

    from pennon.tables.lance_errors import typed_errors

    try:
        with typed_errors():
            _carry_out(request, datasets.open(request), output, row_bytes)
    except LanceNamespaceError as error:
        _send_error(output, {"code": int(error.code), "message": str(error)})
    except Exception as error:  # noqa: BLE001 (raised again by the server)
        _send_error(output, {"code": None, "message": str(error), "storage": isinstance(error, OSError)})
    else:
        output.frame(END, str(peak_memory_bytes()).encode())


def _send_error(output: _Output, error: dict[str, Any]) -> None:
    output.frame(ERROR, json.dumps(error).encode())


def _carry_out(request: dict[str, Any], dataset: Any, output: _Output, row_bytes: int) -> None:
    from pennon.tables.query.scan import Query, build_scanner, open_scan

    action = request["action"]
    if action == "count":
        output.frame(RESULT, json.dumps(dataset.count_rows(request["filter"])).encode())
        return
    query = Query.from_json(request["query"])
    if action == "query":
        _send_batches(open_scan(dataset, query), output, row_bytes)
        return
    scanner = build_scanner(dataset, query)
    plan = scanner.explain_plan(request["verbose"]) if action == "explain" else scanner.analyze_plan()
    output.frame(RESULT, json.dumps(plan).encode())


def _send_batches(reader: Any, output: _Output, row_bytes: int) -> None:
    import pyarrow as pa

    with pa.ipc.new_stream(pa.PythonFile(output, mode="w"), reader.schema) as writer:
        for batch in reader:
            for part in _parts(batch, row_bytes):
                writer.write_batch(part)


def _parts(batch: Any, row_bytes: int) -> Iterator[Any]:
    from lance_namespace.errors import InvalidInputError

    if batch.num_rows > 1 and batch.nbytes > _BATCH_BYTES:
        half = batch.num_rows // 2
        yield from _parts(batch.slice(0, half), row_bytes)
        yield from _parts(batch.slice(half), row_bytes)
        return
    if batch.nbytes > row_bytes:
        raise InvalidInputError(
            f"A row of the result has {batch.nbytes} bytes; a query with this SQL may return {row_bytes} a row, a "
            f"sixteenth of the server's query_process_memory_bytes."
        )
    yield batch


if __name__ == "__main__":
    run(int(sys.argv[1]), int(sys.argv[2]))
