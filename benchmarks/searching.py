"""Measure small answers: nearest vectors with and without an index, and the first rows of a table."""

from __future__ import annotations

import itertools
import json
import time
from typing import TYPE_CHECKING, Any

import samples
from family import Family, Work
from load import Request, Sample, drive, run_wrk
from servers import BenchmarkError
from stage import fill, table_path
from transfer import AnswerClient, fetch
from verdicts import LOCAL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from servers import Server
    from stage import Stage

_TABLE = "t"
_ROWS = 100_000
_K = 10
_VECTORS = 64
_CONNECTIONS = (1, 16)
_NPROBES = 20
_PARTITIONS = 64
_SUB_VECTORS = 16
_FRESH = (number / 1e6 for number in itertools.count())  # no two of these are the same


def measure_vectors(stage: Stage) -> None:
    """Search the 10 nearest of 100,000 vectors: all of them looked at first, then by an index."""
    vectors = samples.query_vectors(_VECTORS)
    made = list(samples.batches(_ROWS))
    with stage.servers() as servers:
        local = _write_locally(stage, made)
        for server in servers:
            with stage.awake(server):
                fill(server, _TABLE, samples.reader(made))
                _verify_nearest(server, made, vectors[0])
        _measure(stage, servers, "vector-flat", lambda: _searches(vectors))
        _measure_locally(stage, "vector-flat c=1", local, [{"nearest": _options(vector)} for vector in vectors])
        index = _Index(local)
        index.build(local)
        for server in servers:
            with stage.awake(server):
                index.build_by(server)
        _measure(stage, servers, "vector-ivfpq", lambda: _searches(vectors, nprobes=_NPROBES))
        options = [{"nearest": {**_options(vector), "nprobes": _NPROBES}} for vector in vectors]
        _measure_locally(stage, "vector-ivfpq c=1", local, options)


def measure_scans(stage: Stage) -> None:
    """Read the first 10 rows of a table: each time by a new request, then by the same one again and again."""
    made = list(samples.batches(_ROWS))
    with stage.servers() as servers:
        local = _write_locally(stage, made)
        for server in servers:
            with stage.awake(server):
                fill(server, _TABLE, samples.reader(made))
                if _ids(server, _first_rows()) != list(range(_K)):
                    raise BenchmarkError(f"{server.name} answered other rows than the first {_K}")
        _measure(stage, servers, "scan", lambda: _first_rows(context={"number": "@@"}))
        _measure(stage, servers, "scan repeated", _first_rows)
        _measure_locally(stage, "scan c=1", local, [{"limit": _K}])


def _measure(stage: Stage, servers: list[Server], case: str, make: Callable[[], Request | Iterator[Request]]) -> None:
    for connections in _CONNECTIONS:
        for number in range(stage.plan.rounds):
            for server in servers:
                with stage.awake(server):
                    if number == 0:
                        _load(stage, server, make(), connections, 1)
                        Family(server).settle()
                    with Work(server) as work:
                        sample = _load(stage, server, make(), connections, stage.plan.seconds)
                name = f"{case} c={connections}"
                if sample.errors:
                    stage.findings.note(f"{name}, {server.name}: {sample.note}")
                spent = work.per(sample.requests)
                stage.add(name, server.name, rate=sample.rate, p50=sample.p50, p99=sample.p99, work=spent)


def _load(
    stage: Stage, server: Server, requests: Request | Iterator[Request], connections: int, seconds: int
) -> Sample:
    """Ask for a while: with wrk where a second holds hundreds of answers, else so that the last one counts too."""
    if isinstance(requests, Request):
        file = stage.folder / "requests.txt"
        file.write_text(requests.line() + "\n")
        return run_wrk(server, file, connections, seconds, f"{time.time_ns() % 10**9}")
    wires = (request.wire(server) for request in requests)
    return drive(server, [AnswerClient(wires) for _ in range(connections)], seconds)


def _searches(vectors: list[list[float]], **more: object) -> Iterator[Request]:
    """Search for vectors in turn, each time for one that was not asked for before."""
    for vector in itertools.cycle(vectors):
        yield _nearest([next(_FRESH), *vector[1:]], **more)


def _write_locally(stage: Stage, made: list[Any]) -> Any:
    import lance

    return lance.write_dataset(samples.reader(made), str(stage.folder / "local.lance"))


def _measure_locally(stage: Stage, case: str, dataset: Any, queries: list[dict[str, Any]]) -> None:
    """Ask pylance itself, one query after the other."""
    for _ in range(stage.plan.rounds):
        millis = _repeat(lambda query: dataset.to_table(**query), queries, stage.plan.seconds)
        p50, p99 = (sorted(millis)[int(len(millis) * share)] for share in (0.5, 0.99))
        stage.add(case, LOCAL, rate=1e3 * len(millis) / sum(millis), p50=p50, p99=p99)


def _repeat(ask: Callable[[dict[str, Any]], Any], queries: list[dict[str, Any]], seconds: int) -> list[float]:
    millis = []
    deadline = time.perf_counter() + seconds
    for query in itertools.cycle(queries):
        began = time.perf_counter()
        if ask(query).num_rows != _K:
            raise BenchmarkError("pylance itself answered too few rows")
        millis.append((time.perf_counter() - began) * 1e3)
        if time.perf_counter() >= deadline:
            break
    return millis


def _nearest(vector: list[float], **more: object) -> Request:
    body = {"id": [_TABLE], "vector": {"single_vector": vector}, "vector_column": "vector", "k": _K, **more}
    return Request("POST", table_path(_TABLE, "query"), json.dumps(body))


def _first_rows(**more: object) -> Request:
    body = {"id": [_TABLE], "vector": {"single_vector": []}, "k": _K, **more}
    return Request("POST", table_path(_TABLE, "query"), json.dumps(body))


def _options(vector: list[float]) -> dict[str, Any]:
    import numpy as np

    return {"column": "vector", "q": np.asarray(vector, dtype=np.float32), "k": _K}


def _ids(server: Server, request: Request) -> list[int]:
    import pyarrow as pa

    found: list[int] = pa.ipc.open_file(fetch(server, request.path, request.body)).read_all()["id"].to_pylist()
    return found


def _verify_nearest(server: Server, made: list[Any], vector: list[float]) -> None:
    """Compare an answer with the true nearest rows."""
    import numpy as np

    every = np.concatenate([batch.column(1).flatten().to_numpy() for batch in made]).reshape(-1, samples.WIDTH)
    distances = ((every - np.asarray(vector, dtype=np.float32)) ** 2).sum(axis=1)
    found = _ids(server, _nearest(vector))
    if found != np.argsort(distances)[:_K].tolist():
        raise BenchmarkError(f"{server.name} does not find the nearest rows: {found}")


class _Index:
    """An index whose centroids are found once: all that build it answer alike, and none of them has to train it."""

    def __init__(self, dataset: Any) -> None:
        from lance.indices import IndicesBuilder

        builder = IndicesBuilder(dataset, "vector")
        centroids = builder.train_ivf(num_partitions=_PARTITIONS, distance_type="l2")
        codes = builder.train_pq(centroids, num_subvectors=_SUB_VECTORS)
        self._options = {"ivf_centroids": centroids.centroids, "pq_codebook": codes.codebook}

    def build(self, dataset: Any) -> None:
        """Index the vectors of a dataset."""
        shape = {"num_partitions": _PARTITIONS, "num_sub_vectors": _SUB_VECTORS}
        dataset.create_index("vector", "IVF_PQ", metric="l2", **shape, **self._options)

    def build_by(self, server: Server) -> None:
        """Index the server's table, with the client that people use, and try it."""
        import lance
        import lance_namespace

        client = lance_namespace.connect("rest", {"uri": server.url})
        self.build(lance.dataset(namespace_client=client, table_id=[_TABLE]))
        if len(_ids(server, _nearest(samples.query_vectors(1)[0], nprobes=_NPROBES))) != _K:
            raise BenchmarkError(f"{server.name} answers too few rows by the index")
